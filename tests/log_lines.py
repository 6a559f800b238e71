"""A task's log in one look, for tests."""

from agentd.core.log_window import Line
from agentd.logs.reader import Dropped, LogReader


def read_log(directory: str, over: bool, offset: int = 0) -> list[Line | Dropped]:
    """All from `offset` on; with the unfinished lines where the log is `over`."""
    reader = LogReader(directory)
    try:
        reader.seek(offset)
        items: list[Line | Dropped] = []
        while batch := reader.read():
            items += batch
        return items + (reader.finish() if over else [])
    finally:
        reader.close()


def texts(items: list[Line | Dropped]) -> list[str]:
    return [item.text for item in items if isinstance(item, Line)]

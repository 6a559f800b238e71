"""agent.log: one JSON object a line, rotated, with the mesh token never in it, and nothing that a terminal obeys."""

import json
import logging
import logging.handlers
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from schemas.instants import iso_utc

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
REDACTED = "[redacted]"
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


class JsonLines(logging.Formatter):
    def __init__(self, node: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._node = node
        self._secrets = [secret for secret in secrets if secret]

    def hide(self, secret: str) -> None:
        if secret and secret not in self._secrets:
            self._secrets.append(secret)

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": iso_utc(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "node": self._node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        line = _BEYOND_ASCII.sub(_shown, json.dumps(entry, ensure_ascii=False, default=str))
        for secret in self._secrets:
            line = line.replace(secret, REDACTED)
        return line


def _shown(found: re.Match[str]) -> str:
    """What is no printable character, as JSON escapes it: others wrote it, and people look at logs with `cat`."""
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def open_agent_log(log_dir: Path, node: str, echo: bool = True) -> JsonLines:
    """Returns the formatter, which learns the token later: it is not known when the first lines are written."""
    lines = JsonLines(node)
    file = logging.handlers.RotatingFileHandler(
        log_dir / "agent.log", maxBytes=8 << 20, backupCount=4, encoding="utf-8"
    )
    file.setFormatter(lines)
    handlers: list[logging.Handler] = [file]
    if echo:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(lines)
        handlers.append(console)
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(logging.INFO)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    return lines

"""The command line with a heartbeat on its event loop: `python -m ... FILE ARGUMENTS`, lateness in seconds into FILE.

Each line is the moment, on the machine's monotonic clock, and by how much that beat was late.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from console.cli.main import main

BEAT_S = 0.05


async def _beat(file: Path) -> None:
    with file.open("w", encoding="ascii") as out:
        while True:
            due = time.monotonic() + BEAT_S
            await asyncio.sleep(BEAT_S)
            out.write(f"{due:.6f} {max(time.monotonic() - due, 0.0):.6f}\n")
            out.flush()


def run(file: Path, words: list[str]) -> int:
    plain = asyncio.run

    def with_beat(work: Any, **options: Any) -> Any:
        async def both() -> Any:
            beating = asyncio.create_task(_beat(file))
            try:
                return await work
            finally:
                beating.cancel()

        return plain(both(), **options)

    asyncio.run = with_beat  # type: ignore[assignment]  # with fewer arguments than its own
    return main(words)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))

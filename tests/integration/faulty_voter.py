"""A voter on a disk that fails on demand: the file named by HF_FAULT holds `full`, `ioerr`, `slow` or nothing.

Only log.db and state.db's own files are concerned, as SQLite writes and syncs them.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import apsw

REAL = apsw.vfs_names()[0]
FAULT = Path(os.environ["HF_FAULT"])


def fault() -> str:
    try:
        return FAULT.read_text().strip()
    except FileNotFoundError:
        return ""


class FaultyFile(apsw.VFSFile):
    def xWrite(self, data: bytes, offset: int) -> None:
        if fault() == "full":
            raise apsw.FullError("no space left on device")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if fault() == "ioerr":
            raise apsw.IOError("input/output error")
        while fault() == "slow":
            time.sleep(0.02)
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("faulty", REAL, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(REAL, name, flags)


if __name__ == "__main__":
    disk = FaultyDisk()
    from mesh.voter.process import main

    sys.exit(main())

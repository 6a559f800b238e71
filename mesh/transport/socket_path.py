"""Unix socket paths may have 107 bytes; data directories may be deeper than that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PATH_MAX = 107


@contextlib.contextmanager
def bindable(path: Path) -> Iterator[str]:
    """A name of the same place, short enough to bind or connect to while the context lasts."""
    if len(os.fsencode(path)) <= _PATH_MAX:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)

"""exit.json: room for it is taken before the task starts, so that a full disk cannot swallow how the task ended."""

import json
import os
from typing import Any

from agentd.shim.record import EXIT

_ROOM = 4096
_RESERVE = "exit.reserve"


def reserve(directory: str) -> None:
    fd = os.open(os.path.join(directory, _RESERVE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _ROOM)
    finally:
        os.close(fd)


def write(directory: str, value: dict[str, Any]) -> None:
    """Whole or not at all; blanks fill the room that was taken."""
    body = json.dumps(value).encode()
    if len(body) > _ROOM:
        body = json.dumps({**value, "error": str(value.get("error", ""))[:500]}).encode()
    path = os.path.join(directory, _RESERVE)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, body.ljust(_ROOM), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(path, os.path.join(directory, EXIT))

"""The frames of an exec session over a WebSocket, between client and agent and between agents.

Text frames are JSON. The client first sends the request, later `{"resize": [rows, cols]}` and `{"eof": true}`. The
agent answers `{"started": true}`, and at the end `{"exit_code": n}`, `{"signal": n}` or `{"problem": {...}}`. Binary
frames are one byte that names the stream, and its bytes: 0 to the program, 1 and 2 from it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import InvalidInput
from schemas.limits import EXEC_FRAME_MAX

STDIN, STDOUT, STDERR = 0, 1, 2
# Of what one execve takes; a script belongs into a file.
WORDS_MAX, WORDS_BYTES_MAX = 1024, 32 * 1024
SIDE_MAX = 10_000
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")
DEFAULT_TERM = "xterm"


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """argv: empty for a shell. tty: on a terminal of its own, rows x cols, of kind term."""

    argv: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    cols: int = 80
    term: str = field(default=DEFAULT_TERM)

    def to_dict(self) -> dict[str, Any]:
        return {
            "argv": list(self.argv),
            "tty": self.tty,
            "rows": self.rows,
            "cols": self.cols,
            "term": self.term,
        }


def read_request(raw: object) -> ExecRequest:
    """Raises InvalidInput."""
    if not isinstance(raw, Mapping) or not raw.keys() <= {"argv", "tty", "rows", "cols", "term"}:
        raise InvalidInput("invalid_exec", "the first frame must be a JSON object of argv, tty, rows, cols and term")
    argv, tty, term = raw.get("argv", []), raw.get("tty", False), raw.get("term", DEFAULT_TERM)
    if not isinstance(argv, list) or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise InvalidInput("invalid_exec", "argv must be a list of texts without NUL", field="argv")
    if len(argv) > WORDS_MAX or sum(len(word) for word in argv) > WORDS_BYTES_MAX or (argv and not argv[0]):
        raise InvalidInput(
            "invalid_exec",
            f"argv must name a program and have at most {WORDS_MAX} words of {WORDS_BYTES_MAX} characters together",
            "put it into a script and run that",
            "argv",
        )
    if any("\ud800" <= character <= "\udfff" for word in argv for character in word):
        raise InvalidInput("invalid_exec", "argv holds half of a surrogate pair, which is no character", field="argv")
    if not isinstance(tty, bool):
        raise InvalidInput("invalid_exec", "tty must be true or false", field="tty")
    # A kind of terminal with strange characters could be a path to a database of its own.
    known = term if isinstance(term, str) and _TERM.match(term) else DEFAULT_TERM
    rows, cols = read_size([raw.get("rows", 24), raw.get("cols", 80)])
    return ExecRequest(tuple(argv), tty, rows, cols, known)


def read_size(raw: object) -> tuple[int, int]:
    """rows, cols. Raises InvalidInput."""
    if (
        not isinstance(raw, list)
        or len(raw) != 2
        or not all(type(side) is int and 0 < side <= SIDE_MAX for side in raw)
    ):
        raise InvalidInput("invalid_exec", f"a size is [rows, cols], each from 1 to {SIDE_MAX}", field="resize")
    return raw[0], raw[1]


def read_control(text: str) -> dict[str, Any]:
    """Raises InvalidInput."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("invalid_exec", "a text frame must be one JSON object")
    return value


def data_frame(stream: int, data: bytes) -> bytes:
    return bytes((stream,)) + data


def split_frame(raw: bytes) -> tuple[int, bytes]:
    """(stream, data). Raises InvalidInput."""
    if not raw or raw[0] not in (STDIN, STDOUT, STDERR) or len(raw) > EXEC_FRAME_MAX:
        raise InvalidInput("invalid_exec", "a binary frame begins with 0, 1 or 2 and has a bounded size")
    return raw[0], raw[1:]

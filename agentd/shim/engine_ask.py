"""Requests to a Docker engine over its unix socket that never wait for it: a hung engine must not hold up a fence.

HTTP/1.0, one connection a request: the answer ends where the connection does.
"""

import json
import os
import socket
from typing import Any, NamedTuple

_ANSWER_MAX = 8 << 20


class Answer(NamedTuple):
    """status 0: no whole answer came, `message` says why."""

    status: int
    body: Any
    message: str


class Ask:
    def __init__(self, socket_path: str, method: str, path: str) -> None:
        self.answer: Answer | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        try:
            self._socket.connect(socket_path)
            self._socket.sendall(f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
        except OSError as error:
            self._end(Answer(0, None, f"{socket_path}: {error.strerror}"))

    def fileno(self) -> int:
        return self._socket.fileno()

    def move(self) -> None:
        """To be called when the descriptor is readable; sets `answer` at the end."""
        if self.answer is not None:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(Answer(0, None, os.strerror(error.errno or 0)))
            return
        self._parts.append(data)
        self._size += len(data)
        if not data or self._size > _ANSWER_MAX:
            self._end(_parse(b"".join(self._parts)))

    def give_up(self, why: str) -> None:
        if self.answer is None:
            self._end(Answer(0, None, why))

    def _end(self, answer: Answer) -> None:
        self.answer = answer
        self._socket.close()


def _parse(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Answer(0, None, "the engine closed the connection without an answer")
    try:
        value = json.loads(body) if body.strip() else None
    except ValueError:
        return Answer(0, None, "the engine's answer was cut short")
    message = str(value.get("message", "")) if isinstance(value, dict) else ""
    return Answer(int(words[1]), value, message)

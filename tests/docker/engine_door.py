"""A socket in front of the test engine that can be shut or hung, so that nobody else's engine has to be."""

import contextlib
import selectors
import socket
import threading
from pathlib import Path

from tests.docker.engine import engine_socket


class EngineDoor:
    """path: of the socket to give to an agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = engine_socket()
        self._open = threading.Event()
        self._open.set()
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Answers again, also what was held back."""
        self._open.set()
        if self._listener is None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self.path))
            self._listener.listen(64)
            threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def hang(self) -> None:
        """Takes connections and requests, and says nothing."""
        self._open.clear()

    def shut(self) -> None:
        """As when the engine was stopped."""
        if self._listener is not None:
            self.path.unlink()
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        self._open.set()
        self.shut()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                threading.Thread(target=self._carry, args=(one,), daemon=True).start()

    def _carry(self, one: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            one,
            socket.socket(socket.AF_UNIX) as other,
            selectors.DefaultSelector() as on,
        ):
            other.connect(self._engine)
            on.register(one, selectors.EVENT_READ, other)
            on.register(other, selectors.EVENT_READ, one)
            while True:
                for key, _ in on.select():
                    self._open.wait()
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    if not (taken := source.recv(65536)):
                        return
                    key.data.sendall(taken)

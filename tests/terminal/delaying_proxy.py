"""Stands between a console and its agent and holds one answer back, so that the agent can die before it is heard."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_S = 30.0


class DelayingProxy:
    """Passes everything on. After `hold` the next POST is passed on too, but its answer never: the connection is cut
    when the agent closes it, which it does by dying."""

    def __init__(self, host: str, port: int) -> None:
        self._agent = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._armed = threading.Event()
        self._asked, self._answered = threading.Event(), threading.Event()
        self._sockets: set[socket.socket] = set()
        self._run(self._accept)

    def hold(self) -> None:
        self._asked.clear()
        self._answered.clear()
        self._armed.set()

    def wait(self, answered: bool) -> None:
        """Until the whole request is with the agent, or until the agent has answered it."""
        event = self._answered if answered else self._asked
        assert event.wait(WAIT_S), f"no POST {'was answered' if answered else 'came'}"

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _run(self, work: object, *arguments: object) -> None:
        assert callable(work)
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                agent = socket.create_connection(self._agent, WAIT_S)
            except OSError:
                client.close()
                continue
            agent.settimeout(None)
            self._sockets |= {client, agent}
            held = threading.Event()
            self._run(self._up, client, agent, held)
            self._run(self._down, client, agent, held)

    def _up(self, client: socket.socket, agent: socket.socket, held: threading.Event) -> None:
        request = b""
        for piece in _pieces(client):
            if not held.is_set() and piece.startswith(b"POST ") and self._armed.is_set():
                self._armed.clear()
                held.set()
            with contextlib.suppress(OSError):
                agent.sendall(piece)
            if held.is_set():
                request += piece
                if _is_whole(request):
                    self._asked.set()
        self._end(client, agent)

    def _down(self, client: socket.socket, agent: socket.socket, held: threading.Event) -> None:
        for piece in _pieces(agent):
            if held.is_set():
                self._answered.set()
                continue
            with contextlib.suppress(OSError):
                client.sendall(piece)
        self._end(client, agent)

    def _end(self, *both: socket.socket) -> None:
        for each in both:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _pieces(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            yield piece


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= int(lengths[0] if lengths else 0)


@contextmanager
def delaying_proxy(address: str) -> Iterator[DelayingProxy]:
    host, _, port = address.rpartition(":")
    proxy = DelayingProxy(host, int(port))
    try:
        yield proxy
    finally:
        proxy.close()

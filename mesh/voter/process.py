"""The voter's process: check, then open, then serve, and end with the code that says why."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import hmac
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from mesh.core.raft.entry import Entry
from mesh.core.raft.errors import InvariantViolation
from mesh.core.state.reducer import apply
from mesh.security.wire import PlainWire, Wire
from mesh.store.directory import Roster, check_owner, lock_directory, read_roster
from mesh.store.errors import DirectoryInUse, DirectoryRefused, DiskFailed, DiskFull, LogDamaged
from mesh.store.log_db import LogDb
from mesh.store.open_log import Identity, open_log
from mesh.store.raft_storage import RaftStorage
from mesh.store.state_db import StateDb, open_state
from mesh.store.state_reader import open_reader
from mesh.store.worker import Worker
from mesh.transport.carrier import UnixCarrier, WebSocketCarrier
from mesh.transport.codec import FRAMES, PREFIX
from mesh.transport.peers import RAFT_PATH
from mesh.transport.socket_path import bindable
from mesh.voter.options import Options, parse_options
from mesh.voter.service import Parts, Voter
from mesh.voter.sessions import Session
from schemas.errors import NotAuthorised
from schemas.limits import WEBSOCKET_MAX
from schemas.versions import SUPPORTED

EXIT_OK, EXIT_USAGE, EXIT_REFUSED, EXIT_ADDRESS, EXIT_DAMAGED, EXIT_DISK, EXIT_IN_USE = 0, 2, 3, 4, 5, 6, 7
_ADDRESS_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
SESSION_PATH = "/v1/session"
REFRESH_S = 1.0
REPLAY_BYTES = 4 * 1024 * 1024
SWITCH_INTERVAL_S = 0.0005
"""How long the loop waits for the interpreter while another thread computes; the default, 5 ms, is a commit."""

_logger = logging.getLogger("heteroflow.voter")


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    options = parse_options(argv)
    # The log holds documents of every tenant, and what tokens are signed with.
    os.umask(0o077)
    try:
        check_owner(options.data_dir)
        roster = read_roster(options.roster, options.raft_id)
        lock = lock_directory(options.data_dir)
    except DirectoryRefused as refusal:
        return _end(EXIT_IN_USE if isinstance(refusal, DirectoryInUse) else EXIT_REFUSED, str(refusal))
    except OSError as error:
        return _end(EXIT_DISK, f"{options.data_dir}: {error}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return asyncio.run(_run(options, roster))
    except DirectoryRefused as refusal:
        return _end(EXIT_IN_USE if isinstance(refusal, DirectoryInUse) else EXIT_REFUSED, str(refusal))
    except LogDamaged as damage:
        return _end(EXIT_DAMAGED, str(damage))
    except (DiskFailed, DiskFull) as failure:
        return _end(EXIT_DISK, f"{failure}. The process ends; check the disk, then start again")
    except OSError as error:
        return _end(EXIT_DISK, f"{options.data_dir}: {error}. The process ends; put this right, then start again")
    except InvariantViolation as violation:
        return _end(
            EXIT_DAMAGED, f"{options.data_dir}: {violation}. Move the directory aside and join again as a new member"
        )
    finally:
        os.close(lock)


def _end(code: int, message: str) -> int:
    _logger.critical("%s", message)
    return code


def _open(options: Options, roster: Roster, workers: tuple[Worker, Worker, Worker]) -> Parts:
    log_worker, state_worker, reader_worker = workers
    identity = Identity(roster.cluster_id, options.raft_id)
    log, tail = log_worker.ask(lambda: open_log(options.data_dir, identity))

    def load(lo: int, hi: int, max_bytes: int) -> list[Entry]:
        return log_worker.ask(lambda: log.entries(lo, hi, max_bytes))

    voters = tuple(v.raft_id for v in roster.voters)
    storage = RaftStorage(log.hard_state, voters, log.terms.runs(), log.last_index, tail, load)
    path = options.data_dir / "state.db"
    state = state_worker.ask(lambda: open_state(path, roster.cluster_id, apply, log.last_index, log.terms.term))
    _replay(log, state, storage, state_worker)
    if state.cluster_version > SUPPORTED:
        raise DirectoryRefused(
            f"this mesh is at cluster version {state.cluster_version}, and this release knows versions up to "
            f"{SUPPORTED}: it would misread the log. Install the release that this host had before, or a newer one"
        )
    reader = reader_worker.ask(lambda: open_reader(path))
    return Parts(options, roster, log, log_worker, storage, state, state_worker, reader, reader_worker)


def _replay(log: LogDb, state: StateDb, storage: RaftStorage, worker: Worker) -> None:
    """Apply what is known to be committed before taking part, so that a long log costs no election."""
    commit = log.hard_state.commit
    while state.index < commit:
        entries = storage.entries(state.index + 1, commit + 1, REPLAY_BYTES)
        worker.ask(partial(state.apply, entries))


async def _run(options: Options, roster: Roster) -> int:
    loop = asyncio.get_running_loop()
    workers = (Worker("log", loop), Worker("state", loop), Worker("reader", loop))
    ended: asyncio.Future[int] = loop.create_future()

    def end(result: int | BaseException) -> None:
        if ended.done():
            return
        if isinstance(result, int):
            ended.set_result(result)
        else:
            ended.set_exception(result)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, EXIT_OK)
    if options.control_fd is not None:
        _watch_control(loop, options.control_fd, lambda: end(EXIT_OK))
    parts = _open(options, roster, workers)
    wire = _wire(options)
    async with wire.session(limit=0) as client, _refreshing(wire):
        voter = Voter(parts, client, wire, end)
        try:
            async with _listening(options, voter, wire):
                voter.start()
                gc.collect()
                gc.freeze()
                _logger.info("voter %x serves on %s:%d", options.raft_id, options.listen_host, options.listen_port)
                code = await ended
                await voter.hand_over()
                return code
        except OSError as error:
            if not isinstance(error, socket.gaierror) and error.errno not in _ADDRESS_ERRORS:
                raise
            return _end(EXIT_ADDRESS, f"cannot listen on {options.listen_host}:{options.listen_port}: {error.strerror}")
        finally:
            await voter.stop()
            failed = ended.done() and ended.exception() is not None
            _close(parts, parts.log.abandon if failed else parts.log.close)


def _close(parts: Parts, close_log: Callable[[], None]) -> None:
    for worker, close in (
        (parts.reader_worker, parts.reader.close),
        (parts.state_worker, parts.state.close),
        (parts.log_worker, close_log),
    ):
        try:
            worker.ask(close)
        except Exception as error:
            # The end is near already and has its own reason; a disk that also fails to close must not replace it.
            _logger.error("closing: %s", error)
        worker.stop()


def _watch_control(loop: asyncio.AbstractEventLoop, fd: int, on_closed: Callable[[], None]) -> None:
    os.set_blocking(fd, False)

    def readable() -> None:
        try:
            data = os.read(fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(fd)
            _logger.info("the agent closed the control descriptor; ending")
            on_closed()

    loop.add_reader(fd, readable)


def _wire(options: Options) -> Wire:
    """Raises DirectoryRefused."""
    if options.tls_dir is None:
        return PlainWire()
    # Only here: a voter without TLS does not pay for the library of certificates.
    from mesh.security.mesh_tls import IdentityDamaged, MeshTls

    try:
        tls = MeshTls(options.tls_dir)
    except IdentityDamaged as error:
        raise DirectoryRefused(str(error)) from error
    if not tls.joined:
        raise DirectoryRefused(f"{options.tls_dir} holds no certificate of this host; its agent gets one by joining")
    return tls


@contextlib.asynccontextmanager
async def _refreshing(wire: Wire) -> AsyncIterator[None]:
    """A new certificate and new revocations are taken up while the voter runs."""

    async def look() -> None:
        while wire.secure:
            await asyncio.sleep(REFRESH_S)
            wire.refresh()

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@contextlib.asynccontextmanager
async def _listening(options: Options, voter: Voter, wire: Wire) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    app = web.Application(middlewares=[_nodes_only(wire) if wire.secure else _bearer(options.token)])
    app.router.add_get(RAFT_PATH, voter.peer_server.handle)
    app.router.add_get(SESSION_PATH, lambda request: _websocket_session(voter, wire, request))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    socket_path = options.data_dir / "voter.sock"
    stack = contextlib.ExitStack()
    try:
        listener = await wire.listen(runner, options.listen_host, options.listen_port, nodes_only=True)
        stack.callback(listener.close)
        socket_path.unlink(missing_ok=True)
        with _umask(0o177), bindable(socket_path) as name:
            server = await loop.create_unix_server(lambda: _unix_session(voter, loop), name)
        try:
            yield
        finally:
            server.close()
            socket_path.unlink(missing_ok=True)
    finally:
        stack.close()
        await runner.cleanup()


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _bearer(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), expected):
            return web.json_response(
                {
                    "code": "unauthorised",
                    "message": "the mesh token is missing or wrong",
                    "hint": "Send Authorization: Bearer TOKEN.",
                },
                status=401,
            )
        return await handler(request)

    return check


def _unix_session(voter: Voter, loop: asyncio.AbstractEventLoop) -> UnixCarrier:
    carrier = UnixCarrier(loop)
    session = Session(voter, carrier, local=True)
    carrier.on_frame = session.on_frame

    def lost(reason: str) -> None:
        voter.sessions.discard(session)
        session.closed()

    carrier.on_lost = lost
    voter.sessions.add(session)
    return carrier


def _nodes_only(wire: Wire) -> Middleware:
    """The same check as on the agents' port: certificate of this mesh, in force."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if wire.caller(request) is None:
                raise NotAuthorised("node_certificate_needed", "voters speak with nodes that show a certificate")
            return await handler(request)
        except NotAuthorised as refusal:
            _logger.warning("refused %s: %s", request.remote, refusal)
            return web.json_response(refusal.problem.to_dict(), status=refusal.problem.status)

    return check


async def _websocket_session(voter: Voter, wire: Wire, request: web.Request) -> web.WebSocketResponse:
    caller = wire.caller(request)
    websocket = web.WebSocketResponse(
        protocols=(FRAMES,), max_msg_size=WEBSOCKET_MAX + PREFIX, compress=False, heartbeat=5.0
    )
    await websocket.prepare(request)
    carrier = WebSocketCarrier(websocket)
    session = Session(voter, carrier, local=False, node=caller.name.node if caller is not None else None)
    carrier.on_frame = session.on_frame
    voter.sessions.add(session)
    try:
        await carrier.run()
    finally:
        voter.sessions.discard(session)
        session.closed()
    return websocket

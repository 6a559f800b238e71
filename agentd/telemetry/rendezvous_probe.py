"""Who of this host's tasks has rank 0's port open, who is connected to it, and what launchers told their processes.

From /proc, and known lines of the log. Sockets are found by the inodes that the task's processes hold, in the task's
own network namespace.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from agentd.core.log_window import Line
from agentd.core.rendezvous import Processes, RendezvousNow
from agentd.core.rendezvous_lines import world_said
from agentd.logs.reader import LogReader
from agentd.runtime.base import TaskId
from agentd.shim.host import descendants, process_table

_ESTABLISHED, _LISTEN = "01", "0A"
# How launchers name a process's number and its world; those that gather all nodes first say so by a variable.
_NUMBERS = (("RANK", "WORLD_SIZE"), ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"))
_GATHERED = ("TORCHELASTIC_RUN_ID", "PADDLE_TRAINER_ENDPOINTS")
_ENVIRONMENT_MAX = 256 * 1024
# Of a world that is not complete after a while every look costs the same, and nothing is in a hurry any more.
_SLOWER_BY = 0.05
# Of a task's output: programs say who they are before they train.
_LINES_A_LOOK, _LINES_MAX = 4096, 50_000
Ip = IPv4Address | IPv6Address
_LITTLE = sys.byteorder == "little"


@dataclass(frozen=True, slots=True)
class Wanted:
    """pid: of the task's first process. host, port: what rank 0 is given."""

    pid: int
    host: str
    port: int

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Watch:
    """What was seen once holds: a launcher may close its connection when it has gathered its world."""

    began: float
    looked: float = float("-inf")
    addresses: frozenset[Ip] = frozenset()
    listens: bool | None = None
    connected: bool | None = None
    held: float | None = None
    inside: set[int] = field(default_factory=set)
    processes: Processes | None = None
    log: LogReader | None = None
    lines: int = 0
    spoken: dict[int, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        said = self.processes
        return said is not None and said.outside is None and bool(self.connected)


class RendezvousProbe:
    """Blocking, for one thread at a time. log_dir: of a task, where its output is."""

    def __init__(self, log_dir: Callable[[TaskId], str] | None = None) -> None:
        self._log_dir = log_dir
        self._watches: dict[TaskId, _Watch] = {}

    def look(self, wanted: Mapping[TaskId, Wanted], now: float) -> dict[TaskId, RendezvousNow]:
        """wanted: the tasks that run, of groups of several nodes; the others are forgotten. now: never goes back."""
        for key in [key for key in self._watches if key not in wanted]:
            _close_log(self._watches.pop(key))
        self._watches = {key: self._watches.get(key) or _Watch(now) for key in wanted}
        due = [key for key, watch in self._watches.items() if _is_due(watch, now)]
        table = process_table() if due else {}
        for key in due:
            watch, place = self._watches[key], wanted[key]
            watch.looked = now
            if not watch.addresses:
                watch.addresses = _addresses(place.host)
            pids = [place.pid, *(process.pid for process in descendants([place.pid], table))]
            numbers, gathered = _look(watch, place, pids)
            if self._log_dir is not None:
                _listen(watch, self._log_dir(key))
            _note_processes(watch, numbers, gathered)
            if watch.complete:
                _close_log(watch)
            if watch.held is None and (watch.listens or watch.connected):
                watch.held = now
        return {key: _told(watch, wanted[key].place, now) for key, watch in self._watches.items()}


def _told(watch: _Watch, place: str, now: float) -> RendezvousNow:
    held_s = 0.0 if watch.held is None else now - watch.held
    return RendezvousNow(place, now - watch.began, watch.listens, watch.connected, held_s, watch.processes)


def _is_due(watch: _Watch, now: float) -> bool:
    return not watch.complete and now - watch.looked >= (now - watch.began) * _SLOWER_BY


def _look(watch: _Watch, place: Wanted, pids: Iterable[int]) -> tuple[dict[int, int], bool]:
    """The world of each number that a launcher gave, and whether it had gathered all nodes before."""
    listening: set[int] = set()
    connecting: set[int] = set()
    tables = [table for name in ("tcp", "tcp6") if (table := _read(f"/proc/{place.pid}/net/{name}")) is not None]
    for table in tables:
        for local, remote, state, inode in _sockets(table):
            if local[1] == place.port:
                # A connection that was accepted there shows that it was open: many a program closes it once all have
                # come, between two looks.
                listening.add(inode)
            elif state == _ESTABLISHED and remote[1] == place.port and remote[0] in watch.addresses:
                connecting.add(inode)
    numbers: dict[int, int] = {}
    gathered = False
    all_seen = bool(tables)
    for pid in pids:
        held = _held(pid)
        all_seen = all_seen and held is not None
        own = held or frozenset()
        watch.listens = watch.listens or bool(own & listening)
        inside = bool(own & connecting)
        watch.connected = watch.connected or inside
        if (said := _said(pid)) is None:
            continue
        number, world, after_all = said
        numbers[number] = world
        gathered = gathered or after_all
        if inside:
            watch.inside.add(number)
    if not all_seen:
        # What is not there may only be hidden.
        watch.listens, watch.connected = watch.listens or None, watch.connected or None
    return numbers, gathered


def _note_processes(watch: _Watch, numbers: Mapping[int, int], gathered: bool) -> None:
    """What a program says of itself counts more than what it was told: it is the world that it joins."""
    believed = watch.spoken or numbers
    if not believed:
        return
    outside = sorted(set(numbers) - watch.inside)
    watch.processes = Processes(
        lowest=min(believed),
        world=max(believed.values()),
        inside=len(watch.inside),
        outside=outside[0] if outside else None,
        gathered=gathered,
    )


def _listen(watch: _Watch, directory: str) -> None:
    """The beginning of its output, a piece at each look."""
    if watch.lines >= _LINES_MAX:
        return
    if watch.log is None:
        watch.log = LogReader(directory)
    with suppress(OSError):
        for item in watch.log.read(_LINES_A_LOOK):
            watch.lines += 1
            if isinstance(item, Line) and (said := world_said(item.text)) is not None:
                watch.spoken[said[0]] = said[1]
    if watch.lines >= _LINES_MAX:
        _close_log(watch)


def _close_log(watch: _Watch) -> None:
    if watch.log is not None:
        watch.log.close()
        watch.log = None


def _sockets(table: str) -> "Iterable[tuple[tuple[Ip, int], tuple[Ip, int], str, int]]":
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] in (_ESTABLISHED, _LISTEN):
            with suppress(ValueError):
                yield _endpoint(fields[1]), _endpoint(fields[2]), fields[3], int(fields[9])


def _endpoint(text: str) -> tuple[Ip, int]:
    """`0100007F:1F90`: an address in words of the host's byte order."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    raw = b"".join(word[::-1] if _LITTLE else word for word in words)
    return _plain(ip_address(raw)), int(port, 16)


def _plain(address: Ip) -> Ip:
    """An IPv4 address that an IPv6 socket wraps is that IPv4 address."""
    wrapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return wrapped or address


def _addresses(host: str) -> frozenset[Ip]:
    try:
        return frozenset({_plain(ip_address(host.strip("[]")))})
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(_plain(ip_address(str(entry[4][0]).partition("%")[0])) for entry in found)


def _held(pid: int) -> frozenset[int] | None:
    """Inodes of the sockets it has open; None where this user may not look. A process that has ended has none."""
    found: set[int] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return None
    except OSError:
        return frozenset()
    for name in names:
        with suppress(OSError, ValueError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return frozenset(found)


def _said(pid: int) -> tuple[int, int, bool] | None:
    """Number, world, and whether it was started after all nodes had come; None of a process that no launcher started.
    WORLD_SIZE alone is what the platform gives."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(_ENVIRONMENT_MAX)
    except OSError:
        return None
    names = {}
    for entry in raw.split(b"\0"):
        name, _, value = entry.partition(b"=")
        names[name] = value
    for number, world in _NUMBERS:
        with suppress(KeyError, ValueError):
            said = int(names[number.encode()]), int(names[world.encode()])
            if 0 <= said[0] < said[1] < 2**31:
                return *said, any(name.encode() in names for name in _GATHERED)
    return None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None

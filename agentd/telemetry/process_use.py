"""What the processes of tasks use, from /proc: processor time and bytes read and written, whole trees."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from agentd.shim.host import descendants, process_table

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_IO_FIELDS = (b"rchar", b"wchar", b"read_bytes", b"write_bytes")


@dataclass(frozen=True, slots=True)
class Use:
    """Since the look before. cpu_percent: of one core. io_bytes_s: None where this user may not see it."""

    cpu_percent: float
    io_bytes_s: float | None


@dataclass(slots=True)
class _Counters:
    ticks: int
    io_bytes: int | None


class _Tree:
    def __init__(self, root: int) -> None:
        self.root = root
        self.counters: dict[int, _Counters] = {}
        self.at: float | None = None


class ProcessUse:
    """Blocking, for one thread at a time. A task is its first process and everything below it.

    table_every_s: how late a process is known that began after its task. The table of a large host costs milliseconds;
    between two looks at it only the processes known are read."""

    def __init__(self, table_every_s: float = 10.0) -> None:
        self._trees: dict[object, _Tree] = {}
        self._table_every_s = table_every_s
        self._table_at = -table_every_s

    def look(self, roots: Mapping[object, int], now: float) -> dict[object, Use]:
        """roots: the first process of each task. Tasks seen for the first time, or not to be seen, are left out."""
        fresh = self._note(roots)
        if roots and (fresh or now - self._table_at >= self._table_every_s):
            self._table_at = now
            table = process_table()
            for tree in self._trees.values():
                pids = [tree.root, *(process.pid for process in descendants([tree.root], table))]
                self._hold(tree, [pid for pid in pids if pid in table])
        found = {}
        for key, tree in self._trees.items():
            if (use := _use(tree, now)) is not None:
                found[key] = use
        return found

    def _note(self, roots: Mapping[object, int]) -> bool:
        for key in [key for key, tree in self._trees.items() if roots.get(key) != tree.root]:
            del self._trees[key]
        fresh = [key for key in roots if key not in self._trees]
        for key in fresh:
            self._trees[key] = _Tree(roots[key])
        return bool(fresh)

    def _hold(self, tree: _Tree, pids: list[int]) -> None:
        # A process found now has begun since the look before, unless this is the first: all it used was used since.
        first = tree.at is None
        found: dict[int, _Counters] = {}
        for pid in pids:
            if (known := tree.counters.get(pid)) is not None:
                found[pid] = known
            elif first and (now := _read(pid)) is not None:
                found[pid] = now
            elif not first:
                found[pid] = _Counters(0, 0)
        tree.counters = found


def _use(tree: _Tree, now: float) -> Use | None:
    before_at, tree.at = tree.at, now
    if before_at is None or now <= before_at or not tree.counters:
        return None
    ticks, io_bytes = 0, 0
    io_seen = True
    for pid, before in list(tree.counters.items()):
        seen = _read(pid)
        if seen is None:
            del tree.counters[pid]
            continue
        ticks += max(seen.ticks - before.ticks, 0)
        if seen.io_bytes is None or before.io_bytes is None:
            io_seen = False
        else:
            io_bytes += max(seen.io_bytes - before.io_bytes, 0)
        tree.counters[pid] = seen
    if not tree.counters:
        return None
    elapsed_s = now - before_at
    return Use(100.0 * ticks / _TICKS_A_SECOND / elapsed_s, io_bytes / elapsed_s if io_seen else None)


def _read(pid: int) -> _Counters | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in b"ZX":
            return None
        return _Counters(int(fields[11]) + int(fields[12]), _io_bytes(pid))
    except (OSError, IndexError, ValueError):
        return None


def _io_bytes(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            pairs = (line.partition(b": ") for line in file.read().splitlines())
            return sum(int(value) for name, _, value in pairs if name in _IO_FIELDS)
    except (OSError, ValueError):
        return None

"""The log of one voter on a disk that forgets: what was not synced may be gone after a crash, a transaction is whole or
absent, and what survives of the unsynced ones is a prefix of them."""

from collections.abc import Sequence
from random import Random

from mesh.core.raft import NO_LIMIT, Entry, HardState, MemoryStorage

Transaction = tuple[list[Entry], HardState | None]


class SimDisk:
    """`view` is what the running process reads; `durable` what the medium holds."""

    def __init__(self, voters: Sequence[int]) -> None:
        self._voters = tuple(voters)
        self.durable = MemoryStorage(voters)
        self.view = MemoryStorage(voters)
        self._unsynced: list[Transaction] = []
        self._writing: Transaction | None = None

    def begin(self, entries: list[Entry], hard_state: HardState | None) -> None:
        """A transaction whose commit has been asked for and may be cut short by a crash."""
        self._writing = (entries, hard_state)

    def commit(self, sync: bool) -> None:
        assert self._writing is not None
        _apply(self.view, self._writing)
        self._unsynced.append(self._writing)
        self._writing = None
        if sync:
            for transaction in self._unsynced:
                _apply(self.durable, transaction)
            self._unsynced.clear()

    def crash(self, rng: Random) -> str:
        """What the next life finds. Says what happened to the transaction that was being written."""
        maybe = list(self._unsynced)
        if self._writing is not None:
            maybe.append(self._writing)
        kept = rng.choice((0, len(maybe), rng.randint(0, len(maybe)))) if maybe else 0
        torn = "" if self._writing is None else "write kept" if kept == len(maybe) else "write torn"
        for transaction in maybe[:kept]:
            _apply(self.durable, transaction)
        self._unsynced.clear()
        self._writing = None
        self.view = MemoryStorage(self._voters)
        self.view.set_hard_state(self.durable.hard_state)
        last = self.durable.last_index()
        if last:
            self.view.append(self.durable.entries(1, last + 1, NO_LIMIT))
        return torn


def _apply(storage: MemoryStorage, transaction: Transaction) -> None:
    entries, hard_state = transaction
    storage.append(entries)
    if hard_state is not None:
        storage.set_hard_state(hard_state)

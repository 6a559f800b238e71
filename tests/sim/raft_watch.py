"""The promises of Raft, checked at every event from outside: what is on disks, what was sent, what was applied."""

from mesh.core.raft import Entry, HardState, Message, MsgType, RawNode
from tests.sim.disk import SimDisk
from tests.sim.loop import Loop, Violation


class RaftWatch:
    def __init__(self, loop: Loop, disks: dict[int, SimDisk]) -> None:
        self._loop = loop
        self._disks = disks
        self._needed = len(disks) // 2 + 1
        self.chosen: list[Entry] = []  # by index - 1
        self._chosen_in: list[int] = []  # term of the leader that first committed it
        self.leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._saved: dict[int, HardState] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._commits: dict[int, tuple[int, int]] = {}  # voter -> life, commit
        self.acked = 0
        self.reads = 0
        self.overwritten = 0

    def fail(self, what: str) -> None:
        raise Violation(what)

    # -- elections

    def saved(self, voter: int) -> None:
        """Hard state of that voter's medium after a sync or a crash."""
        new, old = self._disks[voter].durable.hard_state, self._saved.get(voter, HardState())
        if new.term < old.term:
            self.fail(f"term goes back on disk: voter {voter} had {old.term}, now {new.term}")
        if new.term == old.term and old.vote and new.vote != old.vote:
            self.fail(f"vote changes on disk: voter {voter} voted for {old.vote} in term {old.term}, now {new.vote}")
        self._saved[voter] = new

    def sent(self, voter: int, message: Message) -> None:
        if message.type is MsgType.VOTE:
            self._voted(voter, message.term, voter)
        elif message.type is MsgType.VOTE_RESP and not message.reject:
            self._voted(voter, message.term, message.to)

    def _voted(self, voter: int, term: int, candidate: int) -> None:
        earlier = self._votes.setdefault((voter, term), candidate)
        if earlier != candidate:
            self.fail(f"one vote per term: voter {voter} voted for {earlier} and for {candidate} in term {term}")

    # -- after every feed

    def stepped(self, voter: int, life: int, node: RawNode) -> None:
        if node.is_leader and self.leaders.get(node.term) != voter:
            self._elected(voter, node)
        commit = node.raft.log.committed
        known = self._commits.get(voter)
        if known is None or known[0] != life:
            self._commits[voter] = (life, commit)
        elif commit != known[1]:
            if commit < known[1]:
                self.fail(f"commit goes back: voter {voter} from {known[1]} to {commit}")
            self._commits[voter] = (life, commit)
        if commit > len(self.chosen):
            self._commit_moved(voter, node, commit)

    def _elected(self, voter: int, node: RawNode) -> None:
        term = node.term
        if term in self.leaders:
            self.fail(f"one leader per term: {self.leaders[term]} and {voter} both lead term {term}")
        self.leaders[term] = voter
        self._loop.trace("leader", voter, "term", term)
        at = len(self.chosen)
        while at and self._chosen_in[at - 1] >= term:
            at -= 1  # committed after its votes were given: a late winner need not have it
        if at and node.raft.log.term(at) != self.chosen[at - 1].term:
            self.fail(f"leader completeness: leader {voter} of term {term} lacks committed entry {at}")

    def _commit_moved(self, voter: int, node: RawNode, commit: int) -> None:
        if not node.is_leader and self.leaders:
            self.fail(f"voter {voter} knows commit {commit} before any leader committed it")
        term = node.raft.log.term(commit)
        if term != node.term:
            self.fail(f"leader {voter} of term {node.term} commits entry {commit} of term {term} by count")
        have = [i for i, disk in self._disks.items() if _holds(disk, commit, term)]
        if len(have) < self._needed:
            self.fail(
                f"commit implies durable on a quorum: entry {commit} of term {term} is on the disks of {have} only"
            )
        for entry in node.raft.log.slice(len(self.chosen) + 1, commit + 1, 1 << 62):
            self.chosen.append(entry)
            self._chosen_in.append(node.term)

    # -- logs

    def appended(self, voter: int, node: RawNode, entries: list[Entry]) -> None:
        previous = node.raft.log.term(entries[0].index - 1)
        for entry in entries:
            mine = (entry.data, previous)
            if self._entries.setdefault((entry.index, entry.term), mine) != mine:
                self.fail(f"log matching: entry {entry.index} of term {entry.term} differs at voter {voter}")
            previous = entry.term
        if entries[0].index <= self._disks[voter].view.last_index():
            self.overwritten += 1

    def applied(self, voter: int, entry: Entry) -> None:
        if entry.index > len(self.chosen):
            self.fail(f"voter {voter} applies entry {entry.index}, which nobody committed")
        chosen = self.chosen[entry.index - 1]
        if chosen is not entry and (chosen.term, chosen.data) != (entry.term, entry.data):
            self.fail(f"state machine safety: voter {voter} applies another entry {entry.index} than was committed")

    # -- clients

    def answered(self, index: int, term: int) -> None:
        """A client was told that its command is committed there."""
        if index > len(self.chosen) or self.chosen[index - 1].term != term:
            self.fail(f"a client was answered for entry {index} of term {term}, which is not committed")
        self.acked = max(self.acked, index)

    def read(self, voter: int, index: int, acked_when_asked: int) -> None:
        self.reads += 1
        if index < acked_when_asked:
            self.fail(
                f"linearizable reads: voter {voter} serves a read at {index}, "
                f"but {acked_when_asked} was answered before it was asked"
            )


def _holds(disk: SimDisk, index: int, term: int) -> bool:
    return disk.durable.last_index() >= index and disk.durable.term(index) == term

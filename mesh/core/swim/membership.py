"""Who is in the mesh, as far as this member knows: taking in updates, refuting, suspecting, leaving, forgetting."""

from __future__ import annotations

from mesh.core.swim.awareness import Awareness
from mesh.core.swim.config import Config
from mesh.core.swim.effects import Changed, Conflict, Departed
from mesh.core.swim.errors import ConfigRefused
from mesh.core.swim.limits import INCARNATION_JUMP_MAX, INCARNATION_MAX, MEMBERS_MAX
from mesh.core.swim.outbox import MS, NEVER, Outbox, S
from mesh.core.swim.probe_order import Rng
from mesh.core.swim.rtt import RoundTrips
from mesh.core.swim.suspicion import Suspicion
from mesh.core.swim.update import Meta, State, Update, meta_refusal, supersedes

_IN = (State.ALIVE, State.SUSPECT)


class Membership(Outbox):
    def __init__(self, config: Config, rng: Rng, now_ns: int) -> None:
        super().__init__(config, rng, now_ns)
        self.awareness = Awareness(self.profile.awareness_max)
        self.trips = RoundTrips(self.profile)
        self.suspicions: dict[str, Suspicion] = {}
        self._gone_ns: dict[str, int] = {}  # since when the dead and left ones are
        self._suspect_ns = NEVER  # the first deadline among suspicions
        self.house_ns = now_ns + self._house_period_ns()
        self.settled = False  # whether this life has heard what is known of the ones before
        self.leaving_ns = 0  # when leaving at the latest ends; 0 while not leaving, NEVER once departed

    # -- taking in

    def learn(self, update: Update, spread: bool = True) -> None:
        """Take an update in, from gossip or from this member's own probes. spread: tell others what is news."""
        if update.node == self.name:
            self._about_me(update)
            return
        held = self.records.get(update.node)
        if held is None:
            self._learn_new(update, spread)
        elif supersedes(update, held):
            if update.incarnation - held.incarnation > INCARNATION_JUMP_MAX:
                self.counts["implausible"] += 1
                return
            self._replace(update, held, spread)
        elif update.state is State.SUSPECT and held.state is State.SUSPECT and update.incarnation == held.incarnation:
            self._confirm(update)

    def learn_from_sync(self, update: Update, sender: str, spread: bool = True) -> None:
        """A full state may be old: whom it calls dead is only suspected where he is taken for alive, so that two sides
        of a healed partition do not declare each other's members dead."""
        held = self.records.get(update.node)
        if update.state is State.DEAD and held is not None and held.state in _IN and update.node != self.name:
            update = Update(update.node, update.incarnation, State.SUSPECT, update.meta, sender)
        self.learn(update, spread)

    def _learn_new(self, update: Update, spread: bool) -> None:
        if update.state not in _IN and update.age_s * S >= self.profile.forget_ms * MS:
            return
        if len(self.records) >= MEMBERS_MAX and not self._evict(update):
            self.counts["table_full"] += 1
            return
        # A tombstone of someone never known here is kept, so that what came late changes nothing, but not spread.
        self._replace(update, None, spread and update.state in _IN)

    def _evict(self, update: Update) -> bool:
        """Room for a living member at the cost of whoever is dead for longest."""
        if update.state not in _IN or not self._gone_ns:
            return False
        self._forget(min(self._gone_ns, key=lambda node: (self._gone_ns[node], node)))
        return True

    def _replace(self, update: Update, held: Update | None, spread: bool) -> None:
        node, state = update.node, update.state
        previous = None if held is None else held.state
        self.records[node] = update
        suspected = self.suspicions.pop(node, None)
        if state in _IN:
            self._gone_ns.pop(node, None)
            if previous not in _IN:
                self.order.add(node)
        else:
            if previous in _IN:
                self.order.discard(node)
                self.trips.forget(node)
            self._gone_ns.setdefault(node, self.now - update.age_s * S)
        if state is State.SUSPECT:
            self.suspicions[node] = Suspicion(self.profile, self.size(), update.by, self.now)
        if suspected or state is State.SUSPECT:
            self._note_suspicions()
        if spread:
            self.queue.put(update)
        self.emit(Changed(update, previous))

    def _confirm(self, update: Update) -> None:
        suspicion = self.suspicions[update.node]
        if suspicion.confirm(update.by):
            # Others need the confirmation as much as this member did.
            self.queue.put(update)
            self._note_suspicions()

    # -- this member itself

    def _about_me(self, claim: Update) -> None:
        if claim == self.own or not supersedes(claim, self.own):
            return
        if not self.may_refute(claim):
            self.counts["implausible"] += 1
            return
        # Suspect too: probes of a namesake that has gone fail, and its record is what the accusation names.
        if self.settled and claim.state in _IN and claim.meta.addresses != self.own.meta.addresses:
            self.namesake(claim.meta.addresses)
        if claim.state in (State.SUSPECT, State.DEAD) and not self.leaving_ns:
            # Whoever is accused was perhaps slow to answer.
            self.awareness.add(1)
            self.counts["refutations"] += 1
        self.settled = True
        self._restate(self.next_incarnation(claim))

    def may_refute(self, claim: Update) -> bool:
        """A new life begins at 0 and takes over whatever number it hears first; later a jump is a lie."""
        plausible = not self.settled or claim.incarnation - self.own.incarnation <= INCARNATION_JUMP_MAX
        return plausible and claim.incarnation < INCARNATION_MAX

    def next_incarnation(self, claim: Update) -> int:
        return claim.incarnation + 1

    def _restate(self, incarnation: int, meta: Meta | None = None) -> None:
        state = State.LEFT if self.leaving_ns else State.ALIVE
        self.own = Update(self.name, incarnation, state, meta or self.own.meta, self.name)
        self.records[self.name] = self.own
        self.queue.put(self.own)

    def set_meta(self, meta: Meta) -> None:
        """Raises ConfigRefused."""
        if refusal := meta_refusal(meta):
            raise ConfigRefused(refusal)
        if meta != self.own.meta:
            self._restate(self.own.incarnation + 1, meta)

    def begin_leaving(self) -> None:
        if not self.leaving_ns:
            self.leaving_ns = self.now + self.profile.leave_ms * MS
            self._restate(self.own.incarnation)

    def tick_leaving(self) -> None:
        if self.leaving_ns in (0, NEVER):
            return
        if self.name not in self.queue or not self.order.names or self.now >= self.leaving_ns:
            self.leaving_ns = NEVER
            self.emit(Departed())

    def namesake(self, addresses: tuple[str, ...] = ()) -> None:
        self.counts["conflicts"] += 1
        self.emit(Conflict(addresses))

    # -- time

    def suspect(self, node: str) -> None:
        """This member's own probe of the node failed."""
        held = self.records[node]
        self.learn(Update(node, held.incarnation, State.SUSPECT, held.meta, self.name))

    def suspicion_ns(self) -> int:
        return self._suspect_ns

    def tick_suspicions(self) -> None:
        if self._suspect_ns > self.now:
            return
        for node in [node for node, held in self.suspicions.items() if held.deadline_ns() <= self.now]:
            held = self.records[node]
            self.learn(Update(node, held.incarnation, State.DEAD, held.meta, self.name))

    def _note_suspicions(self) -> None:
        self._suspect_ns = min((held.deadline_ns() for held in self.suspicions.values()), default=NEVER)

    def postpone_suspicions(self, by_ns: int) -> None:
        for suspicion in self.suspicions.values():
            suspicion.postpone(by_ns)
        self._note_suspicions()

    def lately_dead(self) -> list[str]:
        """Those still gossiped to."""
        after = self.now - self.profile.gossip_to_dead_ms * MS
        return [node for node in self.dead() if self._gone_ns[node] >= after]

    def is_dead(self, node: str) -> bool:
        held = self.records.get(node)
        return held is not None and held.state is State.DEAD

    def dead(self) -> list[str]:
        return [node for node in self._gone_ns if self.records[node].state is State.DEAD]

    def aged(self, update: Update) -> Update:
        """The update as it is said now: a tombstone with its age."""
        since = self._gone_ns.get(update.node)
        return update if since is None else update.aged(self.now - since)

    def tick_house(self) -> None:
        if self.now < self.house_ns:
            return
        self.house_ns = self.now + self._house_period_ns()
        before = self.now - self.profile.forget_ms * MS
        for node in [node for node, since in self._gone_ns.items() if since <= before]:
            self._forget(node)

    def _forget(self, node: str) -> None:
        del self._gone_ns[node]
        del self.records[node]

    def _house_period_ns(self) -> int:
        return max(self.profile.forget_ms // 100, 1000) * MS

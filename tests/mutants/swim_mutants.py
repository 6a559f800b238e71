"""Deliberate bugs in the SWIM core, as context managers that patch one named decision each, from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from mesh.core.swim import membership, suspicion
from mesh.core.swim.anti_entropy import AntiEntropy
from mesh.core.swim.membership import Membership
from mesh.core.swim.suspicion import Suspicion
from mesh.core.swim.update import State, Update, supersedes


@contextmanager
def incarnation_not_raised() -> Iterator[None]:
    """Who is suspected says that it lives, at the incarnation it is suspected of."""
    with mock.patch.object(Membership, "next_incarnation", lambda self, claim: claim.incarnation):
        yield


@contextmanager
def refutation_ignored() -> Iterator[None]:
    """Once suspect, no word of the suspected counts any more."""

    def deaf(new: Update, held: Update) -> bool:
        return supersedes(new, held) and not (held.state is State.SUSPECT and new.state is State.ALIVE)

    with mock.patch.object(membership, "supersedes", deaf):
        yield


@contextmanager
def suspicion_without_confirmation() -> Iterator[None]:
    """One accuser is enough: a suspicion is at its shortest from the start."""
    with mock.patch.object(suspicion, "timeout_ns", lambda shortest, longest, confirmed, needed: shortest):
        yield


@contextmanager
def accuser_confirms_itself() -> Iterator[None]:
    """Hearing the same accuser again counts as a confirmation."""

    def confirm(self: Suspicion, accuser: str) -> bool:
        self._accusers.append(accuser)
        return True

    def deadline_ns(self: Suspicion) -> int:
        confirmed = min(len(self._accusers) - 1, self._needed)
        return self.began_ns + suspicion.timeout_ns(self._shortest, self._longest, confirmed, self._needed)

    with mock.patch.object(Suspicion, "confirm", confirm), mock.patch.object(Suspicion, "deadline_ns", deadline_ns):
        yield


@contextmanager
def no_push_pull() -> Iterator[None]:
    """A member asks its seeds until it knows somebody; afterwards nobody ever exchanges states."""
    honest = AntiEntropy._sync_round

    def sync_round(self: AntiEntropy) -> None:
        if not self.order.names:
            honest(self)

    with mock.patch.object(AntiEntropy, "_sync_round", sync_round):
        yield


@contextmanager
def resurrection_after_leave() -> Iterator[None]:
    """Having left is no more than being dead of old: whoever still says alive at the same incarnation is believed."""

    def forgetful(new: Update, held: Update) -> bool:
        if held.state is State.LEFT and new.state is not State.LEFT and new.incarnation == held.incarnation:
            return True
        return supersedes(new, held)

    with mock.patch.object(membership, "supersedes", forgetful):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "incarnation-not-raised": incarnation_not_raised,
    "refutation-ignored": refutation_ignored,
    "suspicion-without-confirmation": suspicion_without_confirmation,
    "accuser-confirms-itself": accuser_confirms_itself,
    "no-push-pull": no_push_pull,
    "resurrection-after-leave": resurrection_after_leave,
}

"""Deliberate bugs in the life of groups: pauses, limits of time, restarts. Each is killed by
test_lifecycle_mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from mesh.core.state import restarts, settle, submit
from mesh.core.state.group import Group
from schemas.states import PAUSED, PENDING, RUNNING


@contextmanager
def pause_gives_the_path_away() -> Iterator[None]:
    """A paused group has no ranks, so its checkpoints count as nobody's."""
    honest = Group.move

    def move(self: Group, target: str, text: str, **about: Any) -> None:
        honest(self, target, text, **about)
        if target == PAUSED:
            self._free_checkpoint()

    with mock.patch.object(Group, "move", move):
        yield


@contextmanager
def pause_wins_over_a_stop() -> Iterator[None]:
    """A stop of a group that saves for a pause is taken for the same thing."""
    honest = settle.stop

    def stop(group: Group, by: str) -> None:
        if group.row["ending"] is None or group.row["ending"] != "paused":
            honest(group, by)

    with mock.patch.object(submit, "stop", stop):
        yield


@contextmanager
def deadline_begins_anew() -> Iterator[None]:
    """Each attempt has the whole deadline, so that a pause or a lost node extends it."""
    honest = Group._count_time

    def count(self: Group, target: str) -> None:
        honest(self, target)
        self.row["ran_ms"] = 0

    with mock.patch.object(Group, "_count_time", count):
        yield


@contextmanager
def wait_begins_anew() -> Iterator[None]:
    """A wait is over when the group is placed, so one that is rolled back for ever waits for ever."""
    honest = Group._count_time

    def count(self: Group, target: str) -> None:
        honest(self, target)
        if target == PENDING:
            self.row["waits_since_ms"] = self.at_ms

    with mock.patch.object(Group, "_count_time", count):
        yield


@contextmanager
def restarts_what_the_program_did() -> Iterator[None]:
    """Whatever class a document names restarts it."""
    with mock.patch.object(restarts, "INFRASTRUCTURE", ("nccl_init", "user_code")):
        yield


@contextmanager
def restarts_before_the_cause_is_known() -> Iterator[None]:
    """The first failure that is told decides, though another one may have been its cause."""
    honest = settle.blame_earlier

    def blame_earlier(group: Group, failure: dict[str, Any]) -> None:
        if group.status != RUNNING:
            honest(group, failure)

    with mock.patch("mesh.core.state.reports.blame_earlier", blame_earlier):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "pause-gives-the-path-away": pause_gives_the_path_away,
    "pause-wins-over-a-stop": pause_wins_over_a_stop,
    "deadline-begins-anew": deadline_begins_anew,
    "wait-begins-anew": wait_begins_anew,
    "restarts-what-the-program-did": restarts_what_the_program_did,
    "restarts-before-the-cause-is-known": restarts_before_the_cause_is_known,
}

"""Deliberate bugs in what is resumed from and in what is removed. Each is killed by test_checkpoint_mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from mesh.core.control import decide
from mesh.core.state import phases, reports
from schemas.rules.checkpoints import retention
from schemas.rules.checkpoints.probe import Verdict, verdicts


@contextmanager
def rank_0_decides_alone() -> Iterator[None]:
    """What the other nodes see is not looked at."""

    def agreed(views: Sequence[Any]) -> None:
        return None

    with mock.patch.object(decide, "disagreement", agreed), mock.patch.object(phases, "disagreement", agreed):
        yield


@contextmanager
def broken_ones_count_as_kept() -> Iterator[None]:
    """A checkpoint that is incomplete takes the place of one that is to be kept."""
    honest = verdicts

    def blind(*given: Any, **more: Any) -> Iterator[Verdict]:
        for item in honest(*given, **more):
            yield Verdict(item.path, item.candidate, item.tracker, None)

    with mock.patch.object(retention, "verdicts", blind):
        yield


@contextmanager
def a_known_checkpoint_is_news() -> Iterator[None]:
    """An agent that was started again tells what is known, and a stop that waits takes it for the next one."""
    with mock.patch.object(reports, "note_save", lambda group, task, report: True):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "rank-0-decides-alone": rank_0_decides_alone,
    "broken-ones-count-as-kept": broken_ones_count_as_kept,
    "a-known-checkpoint-is-news": a_known_checkpoint_is_news,
}

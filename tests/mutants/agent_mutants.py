"""Deliberate bugs of the host's side, as context managers that patch one named decision each.

`agentd.core.deadline.judge` is the one function by which guard and shim fence; the simulated ones call it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from agentd.core import deadline
from agentd.core.deadline import NEVER_NS, Lease, Verdict


@contextmanager
def fence_never_fires() -> Iterator[None]:
    """A passed deadline is nobody's concern: the host keeps its tasks for as long as it likes."""

    def judge(record: Lease | None, boot_id: str, now_ns: int, policy: str, task_started_ns: int) -> Verdict:
        return Verdict(False, NEVER_NS, NEVER_NS, "")

    with mock.patch.object(deadline, "judge", judge):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {"fence-never-fires": fence_never_fires}

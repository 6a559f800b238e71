import threading

import pytest

from agentd.telemetry.blocking_look import BlockingLook, StillLooking
from tests.waiting import eventually


async def test_while_one_look_hangs_no_second_is_begun() -> None:
    look, back = BlockingLook(), threading.Event()
    with pytest.raises(TimeoutError):
        await look.take(0.01, back.wait)
    with pytest.raises(StillLooking):
        await look.take(1.0, lambda: 1)
    back.set()
    await eventually("the look that hung", lambda: not look.hangs)
    assert await look.take(10.0, lambda: 1) == 1


async def test_a_look_that_fails_or_cannot_begin_leaves_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host out of threads for a moment must not go unseen from then on."""
    look = BlockingLook()
    with pytest.raises(ZeroDivisionError):
        await look.take(10.0, lambda: 1 // 0)

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="new thread"):
        patched.setattr(threading.Thread, "start", refused)
        await look.take(10.0, lambda: 1)
    assert await look.take(10.0, lambda: 1) == 1

"""Work in a thread: its answer, its error, its deadline, and being told when it is over after all."""

import asyncio
import threading
import time

import pytest

from agentd.deadline_thread import for_thread, within

AGES_S = 30.0


async def test_the_answer_and_the_error_of_the_work_are_those_of_the_call():
    assert await within(AGES_S, lambda: threading.current_thread().name, "work") == "work"
    with pytest.raises(OSError, match="gone"):
        await within(AGES_S, lambda: (_ for _ in ()).throw(OSError("gone")), "work")


async def test_hung_work_is_left_behind_and_told_of_when_it_is_over():
    release, over = threading.Event(), asyncio.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await within(0.1, release.wait, "work", over.set)
    assert time.monotonic() - began < 10
    assert not over.is_set(), "the thread still hangs"
    release.set()
    async with asyncio.timeout(AGES_S):
        await over.wait()


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped():
    run, answer = for_thread(lambda: 7)
    answer.cancel()
    run()
    await asyncio.sleep(0)
    assert answer.cancelled()


def test_work_that_outlives_its_loop_ends_in_silence():
    release = threading.Event()

    async def hangs():
        run, _ = for_thread(release.wait)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    thread = asyncio.run(hangs())
    release.set()
    thread.join(AGES_S)
    assert not thread.is_alive()

from agentd.core.telemetry_blob import CardNow
from agentd.telemetry.history import PRUNE_EVERY, History, TaskSample


def sample(at_ms: int, task: str = "tg-1.1.0", loss: float | None = 0.5) -> TaskSample:
    return TaskSample(at_ms, task, 80.0, 7, loss, (CardNow("GPU-1", 93.0, 70_000, 61, 300.5), CardNow("GPU-2")))


async def test_there_and_back_and_over_a_restart(tmp_path):
    history = History(tmp_path / "telemetry.db")
    await history.add([sample(1000), sample(1000, "tg-2.1.0")])
    await history.add([sample(2000, loss=None)])
    await history.close()
    again = History(tmp_path / "telemetry.db")
    assert await again.read("tg-1.1.0", 0, 10) == [sample(1000), sample(2000, loss=None)]
    assert await again.read("tg-1.1.0", 1000, 10) == [sample(2000, loss=None)]
    assert await again.read("tg-1.1.0", 0, 1) == [sample(2000, loss=None)]
    await again.close()


async def test_rows_and_age_are_bounded(tmp_path):
    history = History(tmp_path / "telemetry.db", most_rows=50, most_age_ms=30_000)
    for at in range(PRUNE_EVERY + 1):
        await history.add([sample(1000 * at)])
    kept = await history.read("tg-1.1.0", 0, 1000)
    assert [kept[0].at_ms, kept[-1].at_ms] == [1000 * (PRUNE_EVERY - 30), 1000 * PRUNE_EVERY]
    await history.close()
    few = History(tmp_path / "few.db", most_rows=10)
    for at in range(PRUNE_EVERY + 1):
        await few.add([sample(1000 * at)])
    assert len(await few.read("tg-1.1.0", 0, 1000)) == 10
    await few.close()


async def test_a_damaged_file_is_put_aside(tmp_path):
    path = tmp_path / "telemetry.db"
    path.write_bytes(b"no database at all, but a long enough text" * 50)
    history = History(path)
    await history.add([sample(1000)])
    assert history.dropped == 1
    await history.add([sample(2000)])
    assert await history.read("tg-1.1.0", 0, 10) == [sample(2000)]
    assert (tmp_path / "telemetry.db.damaged").exists()
    await history.close()


async def test_a_disk_that_takes_nothing_costs_samples_only(tmp_path):
    history = History(tmp_path / "no" / "such" / "directory.db")
    await history.add([sample(1000)])
    assert history.dropped == 1
    assert await history.read("tg-1.1.0", 0, 10) == []
    await history.close()

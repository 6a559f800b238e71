import asyncio
import os
import time
from pathlib import Path
from typing import ClassVar

import pytest

from agentd.telemetry import curve_files
from agentd.telemetry.curve_files import CurveFiles, CurvesUnreachable, Logs
from agentd.telemetry.event_files import EventFiles
from tests.unit.tfevents.event_bytes import scalar, version
from tests.waiting import eventually


def write(checkpoint: Path, *points: tuple[int, float, float], tag: str = "loss") -> Path:
    (checkpoint / "tb_logs").mkdir(parents=True, exist_ok=True)
    path = checkpoint / "tb_logs" / "events.out.tfevents.1700000000.h.1.0"
    fresh = not path.exists()
    with path.open("ab") as file:
        file.write((version() if fresh else b"") + b"".join(scalar(tag, s, v, wall=w) for s, w, v in points))
    return path


async def followed(files: CurveFiles, logs: Logs):
    return (await files.follow([logs])).get(logs.root or "")


async def test_a_log_appears_and_grows(tmp_path):
    files, logs = CurveFiles(180.0), Logs(str(tmp_path))
    assert (await followed(files, logs)).state == "no_log"
    write(tmp_path)
    assert (await followed(files, logs)).state == "no_points"
    now = time.time()
    write(tmp_path, (1, now, 2.0), (2, now, 1.5))
    seen = await followed(files, logs)
    assert (seen.state, seen.loss, seen.last.step, seen.last.value) == ("live", "loss", 2, 1.5)
    assert 0 <= seen.age_s < 60


async def test_age_grows_without_anything_being_written(tmp_path):
    files, logs = CurveFiles(2.0), Logs(str(tmp_path))
    write(tmp_path, (1, time.time() - 100, 2.0))
    seen = await followed(files, logs)
    assert seen.state == "stale" and seen.age_s >= 100
    again = await followed(files, logs)
    assert again.age_s >= seen.age_s
    ended = await files.read(logs, False, lambda _, state: state.state)
    assert ended == "live", "a group that has ended is not late"


async def test_no_checkpoint_path_is_no_directory():
    assert await CurveFiles(180.0).follow([Logs(None)]) == {}


async def test_the_tag_that_the_user_named(tmp_path):
    write(tmp_path, (1, time.time(), 2.0), tag="ppl")
    write(tmp_path, (5, time.time(), 2.0), tag="loss")
    assert (await followed(CurveFiles(180.0), Logs(str(tmp_path), "ppl"))).last.step == 1


async def test_a_link_that_leads_out_of_the_volume_is_not_followed(tmp_path):
    write(tmp_path / "secret", (1, time.time(), 2.0))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tb_logs").symlink_to(tmp_path / "secret" / "tb_logs")
    seen = await followed(CurveFiles(180.0), Logs(str(tmp_path / "mine")))
    assert seen.state == "probe_failed" and "leads out" in seen.text
    (tmp_path / "mine" / "tb_logs").unlink()
    write(tmp_path / "mine", (3, time.time(), 2.0))
    files = CurveFiles(180.0)
    assert (await followed(files, Logs(str(tmp_path / "mine")))).last.step == 3


class Hanging(EventFiles):
    """A share that stops to answer."""

    hang: ClassVar[dict] = {}

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.where = root

    def turn(self) -> bool:
        if (gate := self.hang.get(self.where)) is not None:
            gate.wait(30.0)
        return super().turn()


async def test_a_share_that_hangs_keeps_only_its_own_curves(tmp_path, monkeypatch):
    import threading

    gate = threading.Event()
    hung, well = Logs(str(tmp_path / "hung")), Logs(str(tmp_path / "well"))
    monkeypatch.setattr(curve_files, "EventFiles", Hanging)
    monkeypatch.setattr(curve_files, "_HANGS_S", 0.3)
    monkeypatch.setattr(Hanging, "hang", {hung.root: gate})
    write(tmp_path / "well", (4, time.time(), 2.0))
    write(tmp_path / "hung", (9, time.time(), 2.0))
    files = CurveFiles(180.0)
    await files.follow([hung, well])
    seen = await files.follow([hung, well])
    assert seen[hung.root].state == "probe_failed" and "share" in seen[hung.root].text
    assert seen[well.root].last.step == 4
    with pytest.raises(CurvesUnreachable, match="has not answered"):
        await files.read(hung, True, lambda *_: None)
    gate.set()

    async def answers() -> bool:
        return (await files.follow([hung]))[hung.root].state != "probe_failed"

    await eventually("the share to answer again", answers)
    assert (await files.follow([hung]))[hung.root].last.step == 9


async def test_whoever_leaves_does_not_stop_the_reading(tmp_path):
    write(tmp_path, (1, time.time(), 2.0))
    files, logs = CurveFiles(180.0), Logs(str(tmp_path))
    asked = asyncio.create_task(files.read(logs, True, lambda *_: None))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert await files.read(logs, True, lambda _, state: state.last.step) == 1


async def test_a_directory_that_may_not_be_read(tmp_path, monkeypatch):
    (tmp_path / "tb_logs").mkdir()

    def refuse(path: str):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    seen = await followed(CurveFiles(180.0), Logs(str(tmp_path)))
    assert seen.state == "probe_failed" and "Permission denied" in seen.text


async def test_a_long_file_read_half_tells_no_newest_point(tmp_path, monkeypatch):
    monkeypatch.setattr(curve_files, "_FOLLOWED_READ_S", 0.0)
    write(tmp_path, *((step, time.time(), 1.0) for step in range(60_000)))
    files, logs = CurveFiles(180.0), Logs(str(tmp_path))
    seen = await followed(files, logs)
    assert (seen.state, seen.last) == ("live", None) and "being read" in seen.text
    monkeypatch.setattr(curve_files, "_FOLLOWED_READ_S", 30.0)
    assert (await followed(files, logs)).last.step == 59_999

"""Reading event files beside tbparse and TensorBoard's EventAccumulator, on the same files in the same run.

CPU seconds, each reader in a process of its own. Ten new events are appended to a file of a million that was read;
5,000 runs of one file each are looked at while nothing happens, by the reader and by the agent's follower of groups.
"""

import asyncio
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from google_crc32c import value as crc32c

EVENTS = int(os.environ.get("HF_BENCH_EVENTS", "1000000"))
RUNS = int(os.environ.get("HF_BENCH_RUNS", "5000"))
TAGS = ("loss/train", "lr", "grad_norm")
TB_DIR = "tb_logs"
REPEATS = 3
TAIL_REPEATS = 200
TAIL_EVENTS = 10
READER_S = 600


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + _masked(length) + payload + _masked(payload)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _scalar(tag: str, step: int, wall: float, value: float) -> bytes:
    name = tag.encode()
    item = b"\x0a" + _varint(len(name)) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + _varint(len(item)) + item
    at = b"\x10" + _varint(step) if step else b""
    return _frame(b"\x09" + struct.pack("<d", wall) + at + b"\x2a" + _varint(len(summary)) + summary)


def _version(wall: float) -> bytes:
    return _frame(b"\x09" + struct.pack("<d", wall) + b"\x1a\x0dbrain.Event:2")


def _events(first: int, count: int) -> bytes:
    """One event a scalar, the tags in turn, as SummaryWriter writes them."""
    chance = random.Random(first)
    return b"".join(
        _scalar(TAGS[at % len(TAGS)], at // len(TAGS), 1.7e9 + at * 0.03, chance.random())
        for at in range(first, first + count)
    )


def write_events(path: Path, count: int) -> None:
    with path.open("wb") as file:
        file.write(_version(1.7e9))
        for first in range(0, count, 50_000):
            file.write(_events(first, min(50_000, count - first)))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _points_and_cpu(read: Callable[[], dict[str, int]]) -> dict[str, Any]:
    begun = time.process_time()
    points = read()
    return {"cpu_s": time.process_time() - begun, "rss_mb": _peak_mb(), "points": sorted(points.items())}


def _ours(directory: str) -> dict[str, Any]:
    from agentd.telemetry.event_files import EventFiles

    files = EventFiles(directory)

    def read() -> dict[str, int]:
        while files.turn():
            pass
        return {item.name: len(item.curve) for item in files.tree.curves()}

    result = _points_and_cpu(read)
    (path,) = Path(directory).iterdir()
    taken = []
    for at in range(TAIL_REPEATS):
        with path.open("ab") as file:
            file.write(_events(EVENTS + at * TAIL_EVENTS, TAIL_EVENTS))
        begun = time.process_time_ns()
        files.turn()
        taken.append((time.process_time_ns() - begun) / 1e6)
    tags = files.tree.curves()
    assert sum(len(item.curve) for item in tags) == EVENTS + TAIL_REPEATS * TAIL_EVENTS
    columns_begun = time.process_time()
    ends = tags[0].curve.step_range()
    assert ends is not None and len(tags[0].curve.columns(*ends, 200)) == 200
    first_columns_ms = (time.process_time() - columns_begun) * 1e3
    columns_begun = time.process_time()
    tags[0].curve.columns(*ends, 200)
    columns_ms = (time.process_time() - columns_begun) * 1e3
    assert "numpy" not in sys.modules
    return result | {"tail_ms": median(taken), "first_columns_ms": first_columns_ms, "columns_ms": columns_ms}


def _tbparse(directory: str) -> dict[str, Any]:
    from tbparse import SummaryReader

    def read() -> dict[str, int]:
        scalars = SummaryReader(directory).scalars
        return {str(tag): int(count) for tag, count in scalars["tag"].value_counts().items()}

    return _points_and_cpu(read)


def _accumulator(directory: str) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read() -> dict[str, int]:
        reader = EventAccumulator(directory, size_guidance={"scalars": 0})
        reader.Reload()
        return {tag: len(reader.Scalars(tag)) for tag in reader.Tags()["scalars"]}

    return _points_and_cpu(read)


def _idle(directory: str) -> dict[str, Any]:
    from agentd.telemetry.event_files import EventFiles

    runs = [EventFiles(str(path / TB_DIR)) for path in sorted(Path(directory).iterdir())]
    for _ in range(2):
        for run in runs:
            run.turn()
        # A directory counts as quiet when its last change is two seconds old.
        time.sleep(2.1)
    for run in runs:
        run.turn()
    taken = []
    for _ in range(9):
        begun = time.process_time()
        for run in runs:
            run.turn()
        taken.append((time.process_time() - begun) * 1e3)
    assert all(run.tree.has_files for run in runs)
    return {"idle_ms": median(taken)}


def _followed(directory: str) -> dict[str, Any]:
    return asyncio.run(_follow(directory))


async def _follow(directory: str) -> dict[str, Any]:
    from agentd.telemetry.curve_files import CurveFiles, Logs

    curves = CurveFiles(stale_after_s=180.0)
    logs = [Logs(str(path)) for path in sorted(Path(directory).iterdir())]
    for _ in range(3):
        assert len(await curves.follow(logs)) == RUNS
        await asyncio.sleep(2.1)
    taken = []
    for _ in range(9):
        begun = time.process_time()
        states = await curves.follow(logs)
        taken.append((time.process_time() - begun) * 1e3)
    assert all(state.last is not None for state in states.values())
    return {"followed_ms": median(taken)}


READERS = {"ours": _ours, "tbparse": _tbparse, "accumulator": _accumulator, "idle": _idle, "followed": _followed}


def _measured(reader: str, directory: Path) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "scripts.benches.tfevents", reader, str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=READER_S, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="heteroflow-bench-") as place:
        big, fleet = Path(place, "big"), Path(place, "fleet")
        big.mkdir()
        log = big / "events.out.tfevents.1700000000.host.1.0"
        write_events(log, EVENTS)
        whole = log.stat().st_size
        theirs = {reader: _measured(reader, big) for reader in ("tbparse", "accumulator")}
        rounds = []
        for _ in range(REPEATS):
            rounds.append(_measured("ours", big))
            os.truncate(log, whole)
        assert all(reading["points"] == rounds[0]["points"] for reading in [*theirs.values(), *rounds])
        fleet.mkdir()
        small = log.read_bytes()[:13_500]
        for run in range(RUNS):
            logs = fleet / f"run-{run:05}" / TB_DIR
            logs.mkdir(parents=True)
            (logs / log.name).write_bytes(small)
        idle_ms = _measured("idle", fleet)["idle_ms"]
        followed_ms = _measured("followed", fleet)["followed_ms"]
    ours_s = median(reading["cpu_s"] for reading in rounds)
    tail_ms = median(reading["tail_ms"] for reading in rounds)
    rss_mb = max(reading["rss_mb"] for reading in rounds)
    figures = {
        "events": float(EVENTS),
        "file_mb": whole / 1e6,
        "first_read_cpu_s": ours_s,
        "tbparse_cpu_s": theirs["tbparse"]["cpu_s"],
        "event_accumulator_cpu_s": theirs["accumulator"]["cpu_s"],
        "events_per_cpu_s": EVENTS / ours_s,
        "ten_new_events_cpu_ms": tail_ms,
        "rss_mb": rss_mb,
        "tbparse_rss_mb": theirs["tbparse"]["rss_mb"],
        "event_accumulator_rss_mb": theirs["accumulator"]["rss_mb"],
        "first_200_columns_cpu_ms": median(reading["first_columns_ms"] for reading in rounds),
        "next_200_columns_cpu_ms": median(reading["columns_ms"] for reading in rounds),
        "idle_runs": float(RUNS),
        "idle_poll_cpu_ms": idle_ms,
        "idle_follow_cpu_ms": followed_ms,
    }
    ratios = {
        "tbparse_of_first_read": figures["tbparse_cpu_s"] / ours_s,
        "event_accumulator_of_first_read": figures["event_accumulator_cpu_s"] / ours_s,
        "ten_new_events_of_0.1_ms": tail_ms / 0.1,
        "rss_of_60_mb": rss_mb / 60,
        "idle_poll_of_50_ms": idle_ms / 50,
        "idle_follow_of_50_ms": followed_ms / 50,
    }
    return {"figures": figures, "ratios": ratios}


if __name__ == "__main__":
    print(json.dumps(READERS[sys.argv[1]](sys.argv[2])))

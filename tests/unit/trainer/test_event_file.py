import math
import struct
from pathlib import Path

import pytest

from numpy_ddp.event_file import EventFile, frame, masked_crc32c, read_scalars

# tbparse brings pandas and TensorBoard, whose imports warn; their warnings are not about this project.
pytestmark = pytest.mark.filterwarnings("ignore")


def tbparse_points(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tbparse import SummaryReader

    frame_ = SummaryReader(str(directory)).scalars
    points: dict[str, list[tuple[int, float]]] = {}
    for step, tag, value in zip(frame_["step"], frame_["tag"], frame_["value"], strict=True):
        points.setdefault(tag, []).append((int(step), float(value)))
    return points


def tensorboard_points(directory: Path, tag: str) -> list[tuple[int, float]]:
    """TensorBoard reads the files of a directory as one run; tbparse reads each alone."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_masked_checksum_is_that_of_the_standard():
    crc = 0xE3069283  # crc32c of "123456789", from the standard's own test vectors
    assert masked_crc32c(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_tbparse_reads_what_was_written(tmp_path: Path):
    file = EventFile(tmp_path / "tb_logs")
    for step in range(1, 301):
        file.scalars(step, {"train/loss": 1 / step, "train/learning_rate": 1e-4})
    file.close()
    points = tbparse_points(tmp_path / "tb_logs")
    assert [step for step, _ in points["train/loss"]] == list(range(1, 301))
    assert points["train/loss"][-1][1] == pytest.approx(1 / 300, rel=1e-6)
    assert len(points["train/learning_rate"]) == 300


def test_large_steps_and_values_that_are_not_numbers_survive(tmp_path: Path):
    file = EventFile(tmp_path)
    file.scalars(2**40, {"train/loss": math.nan})
    file.scalars(2**40 + 1, {"train/loss": math.inf})
    file.close()
    points = tbparse_points(tmp_path)["train/loss"]
    assert [step for step, _ in points] == [2**40, 2**40 + 1]
    assert math.isnan(points[0][1]) and math.isinf(points[1][1])


def test_a_resumed_run_replaces_the_steps_after_its_checkpoint(tmp_path: Path):
    first = EventFile(tmp_path)
    for step in range(1, 31):
        first.scalars(step, {"train/loss": 1.0})
    first.close()
    # The second file must sort after the first, as that of a later second or process does.
    (only,) = tmp_path.iterdir()
    only.rename(tmp_path / "events.out.tfevents.1000000000.host.1.0")
    second = EventFile(tmp_path, resumed_after_step=20)
    for step in range(21, 41):
        second.scalars(step, {"train/loss": 2.0})
    second.close()
    expected = [(step, 1.0 if step <= 20 else 2.0) for step in range(1, 41)]
    assert tensorboard_points(tmp_path, "train/loss") == expected
    assert list(read_scalars(tmp_path)["train/loss"].items()) == expected


def test_own_reader_agrees_with_tbparse(tmp_path: Path):
    file = EventFile(tmp_path)
    for step in range(1, 51):
        file.scalars(step, {"train/loss": math.sin(step), "b": float(step)})
    file.close()
    own = {tag: list(points.items()) for tag, points in read_scalars(tmp_path).items()}
    assert own == tbparse_points(tmp_path)


@pytest.mark.parametrize("cut", [1, 5, 13, 20])
def test_a_torn_tail_costs_the_last_record_only(tmp_path: Path, cut: int):
    file = EventFile(tmp_path)
    for step in range(1, 11):
        file.scalars(step, {"train/loss": 1.0})
    file.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    assert sorted(read_scalars(tmp_path)["train/loss"]) == list(range(1, 10))


def test_a_huge_length_is_damage_and_not_an_allocation(tmp_path: Path):
    file = EventFile(tmp_path)
    file.scalars(1, {"train/loss": 1.0})
    file.close()
    (path,) = tmp_path.iterdir()
    length = struct.pack("<Q", 2**40)
    with path.open("ab") as tail:
        tail.write(length + struct.pack("<I", masked_crc32c(length)) + frame(b"")[12:])
    assert read_scalars(tmp_path) == {"train/loss": {1: 1.0}}

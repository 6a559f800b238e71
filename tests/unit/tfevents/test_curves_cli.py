import io
import json
import os
from pathlib import Path

import pytest

from console.cli.main import run
from console.cli.terminal import Terminal
from console.core.sparkline import sparkline
from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.series import Series
from tests.unit.tfevents.event_bytes import scalar, version
from tests.unit.tfevents.samples import REAL, expected, samples


def curves(*words: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = run(["curves", *map(str, words)], Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


def as_json(*words: str | Path) -> dict:
    code, out, _ = curves(*words, "--json")
    assert code == 0

    def no_constant(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(out, parse_constant=no_constant)


@pytest.mark.parametrize("name", REAL)
def test_json_of_the_samples(name: str):
    answer = as_json(samples() / name)
    assert answer == {
        "state": "stale",
        "tags": {
            tag: {
                "n": want["n"],
                "first": [want["first_step"], want["first_value"]],
                "last": [want["last_step"], want["last_value"]],
                "nan": want["nonfinite"],
                "superseded": 0,
            }
            for tag, want in expected()[name]["scalars"].items()
        },
    }


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("events.out.tfevents.cut_midrecord", "stale"),
        ("events.out.tfevents.flip_payload", "stale"),
        ("events.out.tfevents.flip_len", "unreadable"),
        ("events.out.tfevents.hostile_2e40", "unreadable"),
        ("events.out.tfevents.nan_inf", "nan"),
        ("events.out.tfevents.empty", "no_points"),
        ("events.out.tfevents.version_only", "no_points"),
        ("restart_dir", "restarted"),
    ],
)
def test_states_of_the_damaged(name: str, state: str):
    assert as_json(samples() / "damaged" / name)["state"] == state


def test_json_of_a_restart():
    answer = as_json(samples() / "damaged" / "restart_dir")
    assert answer["tags"]["lr"] == {
        "n": 1600,
        "first": [0, 0.0003000000142492354],
        "last": [1599, 0.000299760140478611],
        "nan": 0,
        "superseded": 400,
    }


def test_output_json_is_the_same():
    path = samples() / "damaged" / "events.out.tfevents.nan_inf"
    assert curves(path, "-o", "json") == curves(path, "--json")
    out = io.StringIO()
    assert run(["-o", "json", "curves", str(path)], Terminal(out, io.StringIO(), {})) == 0
    assert json.loads(out.getvalue()) == as_json(path)


def test_a_directory_without_a_log(tmp_path: Path):
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    assert as_json(tmp_path) == {"state": "no_log", "tags": {}}
    assert "no TensorBoard log" in curves(tmp_path)[1]


def test_sub_runs_carry_their_directory():
    assert {tag.partition("/")[0] for tag in as_json(samples() / "allennlp")["tags"]} == {"train", "validation"}


def test_damage_is_said_beside_the_answer():
    code, out, err = curves(samples() / "damaged" / "events.out.tfevents.flip_payload")
    assert code == 0
    assert "1 records with a wrong checksum" in err and "checksum" not in out
    assert "after byte 6737" in curves(samples() / "damaged" / "events.out.tfevents.flip_len")[2]


def test_a_path_that_is_not_there(tmp_path: Path):
    assert curves(tmp_path / "gone")[0] == 3


def test_a_word_that_is_no_path_is_a_group_of_the_mesh():
    out, err = io.StringIO(), io.StringIO()
    words = ["curves", "llama3-8b-sft", "--node", "127.0.0.1:1"]
    assert run(words, Terminal(out, err, {"HETEROFLOW_TOKEN": "x" * 43})) == 4
    assert "127.0.0.1:1" in err.getvalue()


def test_a_file_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine").write_bytes(version() + scalar("loss", 1, 0.5))
    monkeypatch.chdir(tmp_path)
    assert as_json("mine")["tags"]["loss"]["n"] == 1


@pytest.mark.attack(6)
def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "events.out.tfevents.1.h.1.0")
    code, _, err = curves(tmp_path)
    assert code == 0 and "no regular file" in err
    assert "no regular file" in curves(tmp_path / "events.out.tfevents.1.h.1.0")[2]


@pytest.mark.attack(48)
def test_names_do_not_drive_the_terminal(tmp_path: Path):
    hostile = "\x1b]0;owned\x07\x1b[2Jloss\r\n\x9b31m\u202e"
    path = tmp_path / "events.out.tfevents.1.h.1.0"
    path.write_bytes(b"".join(scalar(hostile, step, float("nan")) for step in range(3)))
    for words in ((path,), (path, "--json")):
        _, out, err = curves(*words)
        assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(out + err)
    assert list(as_json(path)["tags"]) == [hostile]


def test_the_table(tmp_path: Path):
    path = tmp_path / "events.out.tfevents.1.h.1.0"
    path.write_bytes(
        b"".join(scalar("train/loss", step, 1.0 / (step + 1)) for step in range(1200)) + scalar("", 1, 0.1)
    )
    _, out, _ = curves(path)
    lines = out.splitlines()
    assert lines[0].startswith("stale:")
    assert "train/loss is 0.0008333334 at step 1,199" in lines[1]
    assert lines[3].split()[:2] == ["TAG", "POINTS"]
    assert lines[4].split()[:3] == ['""', "1", "1"]
    assert lines[5].split()[:6] == ["train/loss", "1,200", "0", "1", "1,199", "0.0008333334"]


def test_the_loss_can_be_named():
    path = samples() / "lightning"
    assert "val_loss is" in curves(path, "--loss", "val_loss")[1]
    assert "train_loss is" in curves(path)[1]


def drawn(values: list[float], cells: int = 8) -> str:
    series = Series()
    for step, value in enumerate(values):
        series.add(step, 1.0, value)
    return sparkline(Curve([series]), cells)


def test_sparkline():
    assert drawn([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert drawn([1.0] * 8) == "▁▁▁▁▁▁▁▁"
    assert drawn([0.0, float("nan"), 1.0, float("inf")], 4) == "▁×█×"
    assert drawn([float("nan")] * 3, 3) == "×××"
    assert drawn([3e38, -3e38], 2) == "█▁"
    assert drawn([]) == ""

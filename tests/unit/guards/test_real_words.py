"""The words a launcher gets, as the guards read them, beside those that bash gives to a program of that name."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from schemas.rules.guards.calls import walk
from schemas.rules.guards.words import Unreadable, is_known
from tests.unit.guards.rows import every_row

SPEAKING = ("torchrun", "accelerate", "deepspeed", "fleetrun", "mpirun")
# They would reach out of the test, or are of no concern to it.
SILENT = ("python", "python3", "pip", "uv", "conda", "sudo", "ssh", "nsys", "numactl", "ionice", "tensorboard", "which")
KNOWN = {"NNODES": "2", "LOCAL_WORLD_SIZE": "4", "NPROC_PER_NODE": "4", "WORLD_SIZE": "8", "PET_NNODES": "2"}
# Of a node: the guards do not know them, so words with them are not compared.
OF_A_NODE = {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001", "PET_NODE_RANK": "0"}
ENDLESS_OR_OUTSIDE = (
    "tail -",
    "sleep infinity",
    "nvidia-smi",
    "kill ",
    "until ",
    "while ",
    "/tmp/",
    "/data/",
    "/dev/",
    "cd /",
    ". /",
    "source /",
    "/opt/",
    "yes ",
    "sleep 600",
)
COMMANDS = [
    str(row["command"])
    for _, row in every_row()
    if isinstance(row.get("command"), str)
    and "env" not in row
    and "unseen_launcher" not in row.get("warnings", ())
    and any(name in str(row["command"]) for name in SPEAKING)
    and not any(part in str(row["command"]) for part in ENDLESS_OR_OUTSIDE)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("words")
    (directory / "bin").mkdir()
    for name in (*SPEAKING, *SILENT):
        path = directory / "bin" / name
        # A file for each call: two that run side by side (`a & b`) would write into one line.
        say = f'printf "%s\\0" {name} "$@" > "$SAID/$$"' if name in SPEAKING else ":"
        path.write_text(f"#!/bin/bash\n{say}\n")
        path.chmod(0o755)
    return directory


def heard(command: str, place: Path) -> list[list[str]]:
    said = Path(tempfile.mkdtemp(dir=place))
    environment = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "SAID": str(said), **KNOWN, **OF_A_NODE}
    quiet = subprocess.DEVNULL
    subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60
    )
    # What was left in the background (`a &`) may be in the middle of it: whole calls only.
    calls = [call.read_bytes().decode() for call in said.iterdir()]
    return [call[:-1].split("\0") for call in calls if call.endswith("\0")]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_words_are_those_of_bash(command, place):
    try:
        read = [[call.program, *call.words[1:]] for call in walk(command, KNOWN).calls if call.program in SPEAKING]
    except Unreadable:
        assert heard(command, place) == []
        return
    if not all(is_known(word) for words in read for word in words):
        return
    for words in heard(command, place):
        assert words in read


def test_enough_of_them_are_heard(place):
    assert sum(bool(heard(command, place)) for command in COMMANDS[:40]) >= 30

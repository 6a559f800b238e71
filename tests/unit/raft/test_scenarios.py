"""Every file of tests/data/raft does what it says."""

from pathlib import Path

import pytest

from tests.unit.raft.scenario import FOLDER, difference

FILES = sorted(FOLDER.glob("*.txt"))


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_scenario(path: Path) -> None:
    found = difference(path)
    hint = f"python -m tests.unit.raft.scenario --rewrite {path}"
    assert not found, f"\n{found}\nIf this is meant: {hint}"

"""What DESIGN.md lists of the commands, the reports and the scheduler's filters is what there is."""

import re
from pathlib import Path

import pytest

from mesh.core.sched.reasons import FILTERS
from schemas.command_fields import REPORT_KINDS
from schemas.commands import COMMANDS

DESIGN = (Path(__file__).resolve().parents[3] / "mesh" / "DESIGN.md").read_text()


def row_of(command: str) -> str:
    rows = [line for line in DESIGN.splitlines() if line.startswith("| `") and f"`{command}`" in line.split(" | ")[0]]
    assert len(rows) == 1, f"{command} has {len(rows)} rows"
    return rows[0]


def named(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_stands_there_with_its_fields(command: str):
    row = row_of(command)
    required, optional = COMMANDS[command]
    assert [field for field in (*required, *optional) if not named(field, row)] == []


@pytest.mark.parametrize("kind", REPORT_KINDS)
def test_a_report_stands_there(kind: str):
    assert named(kind, row_of("TaskReports"))


def test_filters_stand_there_in_their_order():
    told = re.search(r"\*\*Reasons\*\* name the filter [^,]*, in the order ([^.]*)\.", DESIGN)
    assert told is not None
    assert re.split(r", | or ", told[1]) == list(FILTERS)

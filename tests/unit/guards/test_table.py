"""Every row of tests/data/guards gives exactly its codes at its paths, and every finding says what to do."""

import pytest

from schemas.task_group import check_task_group
from tests.unit.guards.rows import ELSEWHERE, document_of, every_row, expected

ROWS = list(every_row())


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[f"{name}-{at}" for at, (name, _) in enumerate(ROWS)])
def test_row(row):
    checked = check_task_group(document_of(row))
    for kind, findings in (("errors", checked.errors), ("warnings", checked.warnings)):
        found = [finding for finding in findings if finding.code not in ELSEWHERE]
        assert sorted((finding.code, finding.path) for finding in found) == expected(row, kind), (row, found)
        for finding in found:
            assert finding.message.startswith(finding.path)
            assert finding.hint
            assert finding.message.isprintable()


def test_the_table_is_of_some_size():
    assert len(ROWS) >= 120
    assert sum(1 for _, row in ROWS if not row.get("errors")) >= 100
    assert len({str(row) for _, row in ROWS}) == len(ROWS)


BOMBS = {
    "doubling": "A=aaaaaaaa;" + "A=$A$A;" * 5000,
    "splitting": "A='" + "a " * 20_000 + "';" + "torchrun $A;" * 900,
    "parentheses": "(" * 60_000,
    "defaults": "${a:-" * 400 + "}" * 400,
    "launches": "torchrun t|x;" * 4000,
    "wrappers": "env A=1 " * 8000 + "torchrun t",
    "functions": "a() { X=1; };"
    + "".join(f"{b}() {{ {f'{a};' * 60} }};" for a, b in zip("abcd", "bcde", strict=True))
    + "e",
    "arrays": "A=(a b);" + 'A+=("${A[@]}" "${A[@]}");' * 200,
    "shells": "eval " * 1_000 + "torchrun t",
}


@pytest.mark.parametrize("command", BOMBS.values(), ids=BOMBS)
def test_a_command_made_to_keep_the_guards_busy_is_given_up(command):
    row = {"command": command}
    assert [
        finding.code for finding in check_task_group(document_of(row)).warnings if finding.code not in ELSEWHERE
    ] == ["unreadable_command"]


@pytest.mark.parametrize("levels", (40, 150, 400, 600, 650))
@pytest.mark.parametrize(("opening", "closing"), (('{"a":', "}"), ("[", "]")))
def test_a_deepspeed_config_of_any_depth_is_a_finding(levels, opening, closing):
    """4096 bytes hold more levels than a function that calls itself may go down."""
    text = '{"b":' + opening * levels + "1" + closing * levels + "}"
    row = {"framework": "deepspeed", "hyper_params": {"deepspeed_config": text}}
    (finding,) = check_task_group(document_of(row)).errors
    assert finding.path == "training.hyper_params.deepspeed_config" and "nested" in finding.message

"""Every attack of the catalogue is tried by a test, or is on a part that is not built; and the table says so."""

import ast
from collections import Counter
from pathlib import Path

from scripts.attack_table import Row, result, table
from tests.security.catalogue import ATTACKS, NOT_BUILT

TESTS = Path(__file__).resolve().parents[1]


def marked() -> dict[int, list[str]]:
    """Of each number, the tests that say that they try it."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.attack" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.attack":
                for number in node.args:
                    found.setdefault(ast.literal_eval(number), []).append(path.name)
    return found


def test_every_attack_is_tried_or_its_part_is_not_built():
    tried = marked()
    assert list(ATTACKS) == list(range(1, 50))
    assert set(tried) <= set(ATTACKS), "a mark of a number that is not in the catalogue"
    assert set(ATTACKS) - set(tried) - set(NOT_BUILT) == set()


def test_the_table_says_what_came_of_each():
    rows = {number: Row(Counter({"test_x": 2}), 1200, Counter({"passed": 2})) for number in ATTACKS}
    rows[3] = Row(Counter({"test_y": 2}), 1, Counter({"passed": 1, "failed": 1}))
    rows[13] = Row(Counter({"test_z": 1}), 0, Counter({"skipped": 1}))
    said = table(rows)
    assert "1,200  blocked" in said and "FAILED: 1" in said and "skipped" in said
    assert result(1, Row()) == ("NOT TRIED" if 1 not in NOT_BUILT else f"part not built yet: {NOT_BUILT[1]}")


def test_a_part_that_is_not_built_is_said(monkeypatch):
    monkeypatch.setitem(NOT_BUILT, 1, "files")
    assert result(1, Row()) == "part not built yet: files"

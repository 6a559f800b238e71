"""Whoever silences a checker says why, beside it or in the comment above."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SILENCED = re.compile(r"#\s*(?:type:\s*ignore|noqa)\b(?:\[[^\]]*\]|:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?(.*)")


def bare(source: str) -> list[int]:
    """The numbers of the lines that silence a checker and give no reason."""
    lines = source.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        silenced = SILENCED.search(line)
        above = lines[number - 2].lstrip() if number > 1 else ""
        if silenced and not re.search(r"\w{2}", silenced[1]) and not above.startswith("#"):
            found.append(number)
    return found


def test_each_silenced_line_has_its_reason():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / path for path in listed.stdout.splitlines() if path != str(Path(__file__).relative_to(ROOT))]
    assert [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in bare(path.read_text())] == []


def test_a_reason_stands_beside_or_above():
    assert bare("x = f()  # type: ignore[misc]\n") == bare("x = f()  # noqa: E731\n") == bare("x  # noqa\n") == [1]
    assert bare("x = f()  # type: ignore[misc,index]  # the library has no types\n") == []
    assert bare("import a  # noqa: F401, E402 - loaded once\n") == []
    assert bare("# The library has no types.\nx = f()  # type: ignore[misc]\n") == []

"""The pages for people name files that exist, and the words of the house are kept."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
PAGES += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
IN_BACKTICKS = re.compile(r"`((?:\./)?(?:agentd|console|docs|mesh|schemas|scripts|tests)/[A-Za-z0-9_./*-]*)")
LINKED = re.compile(r"\]\(([^)#:]+)\)")


def named(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    links = [str(Path(page).parent / link) for link in LINKED.findall(text)]
    return sorted({*IN_BACKTICKS.findall(text), *links})


@pytest.mark.parametrize("page", PAGES)
def test_files_named_on_a_page_exist(page: str):
    # NAME stands for any; a star for some.
    paths = [path.removeprefix("./") for path in named(page) if "NAME" not in path]
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []


def test_names_are_found_in_prose():
    assert IN_BACKTICKS.findall("see `mesh/nothing.py` and `./scripts/none --x`") == [
        "mesh/nothing.py",
        "./scripts/none",
    ]


def test_every_just_recipe_calls_what_exists():
    called = re.findall(r"^    (\./\S+|python -m pytest)", (ROOT / "justfile").read_text(), re.M)
    assert len(called) >= 7
    assert [command for command in called if command.startswith("./") and not (ROOT / command).is_file()] == []


def test_a_wheel_has_the_four_packages_and_the_two_commands():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["console", "mesh", "agentd", "schemas"]
    for target in project["project"]["scripts"].values():
        module, function = target.split(":")
        source = (ROOT / (module.replace(".", "/") + ".py")).read_text()
        assert f"def {function}(" in source

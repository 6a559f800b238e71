"""The pages for people name files that exist, and the words of the house are kept."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from agentd import cli as agent_cli
from console.cli import main as people_cli

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
PAGES += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
IN_BACKTICKS = re.compile(r"`((?:\./)?(?:agentd|console|docs|mesh|schemas|scripts|tests)/[A-Za-z0-9_./*-]*)")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
BEFORE_COMMAND = re.compile(r"^\$ |\$\(|&& ")
# A comment, a column of words for people, what another program gets.
AFTER_COMMAND = re.compile(r"\s#|\s\s|\)$|\s[|<>&]|<")
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


def commands(page: str) -> list[list[str]]:
    """The words of each command that the page shows to be typed."""
    blocks = "\n".join(FENCED.findall((ROOT / page).read_text())).replace("\\\n", " ").replace("...", "")
    parts = [part for line in blocks.splitlines() for part in BEFORE_COMMAND.split(line)]
    return [shlex.split(AFTER_COMMAND.split(part)[0]) for part in parts if re.match(r"heteroflow(-agentd)?( |$)", part)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_on_a_page_are_taken_as_they_stand(page: str, capsys: pytest.CaptureFixture[str]):
    for program, *words in commands(page):
        try:
            if program == "heteroflow":
                people_cli._parsed(*people_cli._parser(words), words)
            else:
                agent_cli._parsed(words)
        except SystemExit as end:
            assert not end.code, f"{program} {shlex.join(words)}: {capsys.readouterr().err}"


def test_commands_are_found_in_blocks():
    assert sum(len(commands(page)) for page in PAGES) > 70
    assert ["heteroflow", "stop", "GROUP", "--wait"] in commands("docs/lifecycle.md")
    assert ["heteroflow", "uncordon", "gpu-01"] in commands("docs/operating.md")


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

"""The pages for users name every verb, option, exit code and field there is, and no other."""

import argparse
import re
from pathlib import Path

from console.cli.verb import VERBS, verb_named
from console.core import exit_codes
from schemas.rules.allowed_paths import DEFAULT_ALLOWED_PATHS
from schemas.task_group.fields import SECTIONS, Later
from schemas.task_types import TASK_TYPES

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text()
DOCUMENT = (DOCS / "task-group.md").read_text()


def first_cells(page: str) -> list[str]:
    return re.findall(r"^\| (.+?) \|", page, re.MULTILINE)


def test_verbs_and_their_options():
    rows = dict(re.findall(r"^\| `([a-z-]+)[^`]*` \| (.*) \|$", CLI, re.MULTILINE))
    assert set(rows) == set(VERBS)
    for name in VERBS:
        parser = argparse.ArgumentParser()
        verb_named(name).add_arguments(parser)
        for action in parser._actions:
            if action.option_strings and action.dest != "help":
                assert any(f"`{option}" in rows[name] for option in action.option_strings), (
                    name,
                    action.option_strings,
                )


def test_exit_codes():
    documented = {int(cell) for cell in first_cells(CLI) if cell.isdigit()}
    assert documented == {
        value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)
    }


def test_fields_of_the_document():
    parts = re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)
    pages = {part.partition("\n")[0].lower(): part for part in parts}
    for name, section in SECTIONS.items():
        page = pages[name or "top level"]
        documented = set(re.findall(r"`(\w+)`", " ".join(first_cells(page)))) - {*TASK_TYPES, "task"}
        # Taken at every level, and described once, at the top.
        assert documented == set(section.fields) - ({"max_retries", "preemptible"} if name else set())
        later = {
            field
            for row in re.findall(r"^\| (.+?) \| later \|$", page, re.MULTILINE)
            for field in re.findall(r"`(\w+)`", row)
        }
        assert later == {field for field, reader in section.fields.items() if isinstance(reader, Later)}


def test_allowed_paths():
    for path in DEFAULT_ALLOWED_PATHS:
        assert f"`{path}`" in DOCUMENT

"""Names and values of the detail view stay apart, however long a name is."""

import pytest

from console.core.detail_lines import _fact
from schemas.task_group.fields import SECTIONS

NAMES = [name for section in SECTIONS.values() for name in section.fields] + ["checkpoint_every", "x" * 64]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_name_is_apart_from_its_value(depth):
    for name in NAMES:
        shown = "".join(text for text, _ in _fact(name, "7", depth))
        assert shown.split() == [name, "7"]

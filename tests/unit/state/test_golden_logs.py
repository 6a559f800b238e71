"""Every release's log makes the state that it made then, step by step."""

import json
from collections import Counter

import pytest

from tests.unit.state.golden_log import LOGS, entries_of, replay, version

VERSIONS = sorted(path.stem for path in LOGS.glob("*.json"))


@pytest.mark.parametrize("release", VERSIONS)
def test_an_old_log_means_what_it_meant(release: str) -> None:
    told = json.loads((LOGS / f"{release}.json").read_text())
    entries = entries_of(release)
    assert len(entries) == told["entries"]
    differ = [index for (index, now), (_, then) in zip(replay(entries), told["hashes"], strict=True) if now != then]
    assert not differ, (
        f"the log of {release} makes another state by entry {differ[0]}. Where {release} is released, voters of it and "
        f"of this version would differ: the change needs a cluster version (schemas/versions.py). Where it is not, "
        f"rewrite it: python -m tests.unit.state.golden_log --rewrite"
    )


def test_this_version_has_one_and_it_is_of_many_commands() -> None:
    assert version() in VERSIONS
    assert len(Counter(entry["t"] for entry in entries_of(version()))) >= 30

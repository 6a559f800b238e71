"""Logs of releases, kept with the state that they made: what an older release wrote must mean the same for ever.

`python -m tests.unit.state.golden_log --rewrite` makes that of the version in pyproject.toml anew: right as long as it
is not released, wrong from then on."""

import json
import random
import sys
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from mesh.core.state.dict_store import DictStore
from mesh.core.state.reducer import apply
from mesh.store.row_codec import StateHash, encode_row
from tests.property.test_state import NODES, History

ROOT = Path(__file__).resolve().parents[3]
LOGS = ROOT / "tests" / "data" / "logs"
STEPS, SEED = 2_000, 1
SAMPLE_EVERY = 256


def replay(entries: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """(index, state hash) every SAMPLE_EVERY entries, and at the end."""
    store, state = DictStore(), StateHash()
    before: dict[tuple[str, str], bytes] = {}
    for index, entry in enumerate(entries, start=1):
        apply(store, index, entry)
        for entity, key, row in store.take_changes():
            old, new = before.pop((entity, key), None), None if row is None else encode_row(row)
            if new is not None:
                before[entity, key] = new
            state.replace(entity, key, old, new)
        if index % SAMPLE_EVERY == 0 or index == len(entries):
            yield index, state.hex()


def entries_of(version: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = msgpack.unpackb(zlib.decompress((LOGS / f"{version}.log").read_bytes()))
    return entries


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def make() -> list[dict[str, Any]]:
    rng, history = random.Random(SEED), History()
    voters = [{"raft_id": n, "node": f"n{n}", "voter_addr": f"10.0.0.{n}:7461"} for n in (1, 2, 3)]
    history.world.do("InitCluster", cluster_id="golden", epoch=1, profile="fast", voters=voters)
    for node in NODES:
        history.world.join(node, 2)
    for _ in range(STEPS):
        history.step(rng.randrange(57), rng.randrange(8), rng.randrange(8), rng.randrange(8))
    history.world.do("RaiseVersion", to=2, by="op")
    return history.world.log


def main() -> None:
    if sys.argv[1:] != ["--rewrite"]:
        raise SystemExit(__doc__)
    entries = make()
    (LOGS / f"{version()}.log").write_bytes(zlib.compress(msgpack.packb(entries), 9))
    hashes = [list(sample) for sample in replay(entries)]
    (LOGS / f"{version()}.json").write_text(json.dumps({"entries": len(entries), "hashes": hashes}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What agents leave out of brief rows is nothing that a list shows."""

from collections.abc import AsyncIterator
from typing import Any

from agentd.http.watch import _brief
from console.store.mesh_store import MeshStore
from console.store.rows import group_of_row
from tests.snapshots.example_mesh import example_mesh

ROWS = [list(row) for row in example_mesh().rows]


async def brief(*frames: dict[str, Any]) -> list[dict[str, Any]]:
    async def feed() -> AsyncIterator[dict[str, Any]]:
        for frame in frames:
            yield frame

    return [frame async for frame in _brief(feed())]


async def test_lists_show_the_same_of_brief_rows_as_of_whole_ones():
    whole = {"snapshot": ROWS, "token": "c.1.7", "more": False}
    (short,) = await brief(whole)
    seen, told = MeshStore(), MeshStore()
    seen.apply(whole)
    told.apply(short)
    assert len(told.groups) > 3
    assert told.groups == {key: group._replace(reason_details={}) for key, group in seen.groups.items()}
    assert (told.nodes, told.holds, told.cluster) == (seen.nodes, seen.holds, seen.cluster)
    assert not any("document" in (row or {}) for _, _, row in short["snapshot"])
    assert {"token": "c.1.7", "more": False}.items() <= short.items()


async def test_frames_without_anything_of_a_list_are_not_sent_but_those_that_move_the_token_are():
    group = next(row for row in ROWS if row[0] == "group")
    task = ["task", f"{group[1]}/0001/00000", {"rank": 0}]
    empty = {"idx": 9, "changes": [], "token": "c.1.9"}
    sent = await brief(
        {"idx": 7, "changes": [task], "token": "c.1.7"},
        {"idx": 8, "changes": [task, group, ["group", "tg-gone", None]], "token": "c.1.8"},
        empty,
    )
    assert [frame["idx"] for frame in sent] == [8, 9]
    (_, key, row), gone = sent[0]["changes"]
    assert key == group[1] and group_of_row(row).name == group[2]["name"]
    assert gone == ["group", "tg-gone", None]
    assert sent[1] == empty


async def test_a_row_is_read_the_same_whatever_was_known_of_its_group():
    (short,) = await brief({"snapshot": ROWS, "token": "c.1.7", "more": False})
    entity, key, row = next(row for row in short["snapshot"] if row[0] == "group" and row[2]["status"] == "pending")
    new_reason = {"code": "no\x1b[2Jfit", "text": "0 of 24 \x9b fit"}
    changes = [{"pending_reason": new_reason}, {"pending_reason": None}, {"status": "running", "attempt": 2}]
    changes += [{"name": "other"}, {"restarts": 3, "pending_reason": new_reason}, {"nodes": ["gpu-01"], "user": None}]
    told = MeshStore()
    told.apply(short)
    for at, change in enumerate(changes):
        row = row | change
        told.apply({"idx": at, "token": f"c.1.{8 + at}", "changes": [[entity, key, row]]})
        assert told.groups[key] == group_of_row(row)
    told.add_ended([row | {"status": "failed", "attempt": 9, "created_at": None}])
    told.apply({"idx": 20, "token": "c.1.20", "changes": [[entity, key, None]]})
    assert key not in told.groups
    told.apply({"idx": 21, "token": "c.1.21", "changes": [[entity, key, row]]})
    assert told.groups[key] == group_of_row(row)

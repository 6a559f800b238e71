"""Keys that change the mesh: each asks first, names what happens, and sends it once; who may not is told why."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.snapshots.canned_mesh import NOW_MS, gid
from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import LLAMA, example_mesh


async def test_stop_asks_with_cancel_in_front_and_names_what_happens():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "s")
        text = await console.until("Stop this group")
        assert gid(LLAMA) in text and "16 cards come free" in text and "[ Cancel ]" in text
        await console.press("enter")
        await console.settled()
        assert console.mesh.writes == []


async def test_what_runs_is_paused_and_what_is_paused_resumed_after_a_question():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("R")
        await console.until("only paused groups go on")
        await console.press("j", "j", "j", "P")
        await console.until("Pause this group")
        assert "keep their place in line" in console.text() and "SIGTERM" in console.text()
        await console.press("y")
        await console.until("is pausing")
        assert [what for what, _, _, _ in console.mesh.writes] == ["pause"]


async def test_marked_groups_are_stopped_once_each():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "space", "space")
        await console.until("2 marked")
        await console.press("s")
        await console.until("Stop 2 groups")
        await console.press("tab", "enter")
        await console.until("2 ordered to stop")
        stopped = [(what, group) for what, group, _, _ in console.mesh.writes]
        assert len(stopped) == 2 and {what for what, _ in stopped} == {"stop"}
        assert len({key for _, _, key, _ in console.mesh.writes}) == 2
        assert "marked" not in console.text()


async def test_a_mark_counts_on_every_list_of_groups_and_is_told_there():
    async with driven(example_mesh(), (160, 48)) as console:
        await console.until("llama3-8b")
        while console.screen.target().id != gid(LLAMA):
            await console.press("j")
        await console.press("space", "2")
        await console.until("2 waiting")
        foot = (await console.until("1 marked")).split("\n")[-1]
        assert "s stop" in foot and "P pause" in foot and "R resume" not in foot
        await console.press("s")
        assert "llama3-8b-sft-math" in await console.until("Stop this group")
        await console.press("n", "space")
        await console.until("2 marked")
        await console.press("s")
        assert "llama3-8b-sft-math" in await console.until("Stop 2 groups")
        await console.press("n", "escape")
        await console.until(lambda: "marked" not in console.text())
        assert "P pause" not in console.text().split("\n")[-1] and "▸ queue" in console.text()


async def test_a_mark_of_a_group_that_is_gone_marks_nothing():
    async with driven(example_mesh(), (160, 48)) as console:
        await console.until("llama3-8b")
        while console.screen.target().id != gid(LLAMA):
            await console.press("j")
        await console.press("space")
        await console.until("1 marked")
        await console.mesh.change(("group", gid(LLAMA), None))
        await console.until(lambda: "marked" not in console.text())
        await console.press("s")
        assert "llama3-8b-sft-math" not in (await console.until("Stop this group")).split("Stop this group")[1]


async def test_read_only_has_no_key_that_changes_anything():
    async with driven(example_mesh(), read_only=True) as console:
        await console.until("read-only")
        await console.press("s", "c", "r")
        await console.settled()
        assert len(console.app.screen_stack) == 2
        assert " stop" not in console.text().split("\n")[-1]
        await console.press("colon", *"stop", "enter")
        await console.until("no command 'stop'")


async def test_a_node_is_cordoned_and_drained_after_a_question():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("3")
        await console.until("dead for 6")
        await console.press("slash", *"gpu-03", "enter")
        await console.until(lambda: len(console.lines()) == 1)
        await console.press("x")
        text = await console.until("Cordon this node")
        assert "gpu-03" in text and "What runs there goes on: llama3-8b" in text and "[ Cancel ]" in text
        await console.press("enter")
        await console.settled()
        assert console.mesh.writes == []
        await console.press("D")
        await console.until("Drain this node")
        await console.press("y")
        await console.until("gpu-03 is being drained")
        ((what, node, _, body),) = console.mesh.writes
        assert (what, node, json.loads(body)) == ("drain", "gpu-03", {"mode": "move"})

        row = next(row for entity, key, row in console.mesh.rows if (entity, key) == ("node", "gpu-03"))
        asked = {"by": "ada", "reason": "fans", "at_ms": NOW_MS}
        drain = asked | {"mode": "move", "deadline_ms": NOW_MS, "groups": 2, "moved": 1, "done_ms": None}
        changed = row | {"cordon": asked | {"window": False}, "drain": drain}
        await console.mesh.change(("node", "gpu-03", changed))
        text = await console.until("draining, 1 of 2 groups left")
        assert "D drains" in text and "1 out of service" in text
        await console.press("D")
        await console.until("drained already")
        await console.press("x")
        await console.until("Uncordon this node")
        await console.press("y")
        await console.until("gpu-03 takes groups again")
        assert [write[0] for write in console.mesh.writes] == ["drain", "uncordon"]


def who(role: str, **changed: object) -> dict[str, object]:
    """Of `/whoami` for an API key."""
    person = {"kind": "person", "name": "ada", "role": role, "tenant": "red", "key_id": "k1", "scopes": None}
    return {**person, "permissions": [], "sees_all_tenants": False, "expires_at": None, **changed}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (who("viewer"), "the role viewer does not allow it, member does. Ask an admin"),
        (who("admin", scopes=["tasks:read"]), "narrowed to tasks:read"),
    ],
)
async def test_who_may_only_look_is_told_why_and_nothing_is_sent(answer, said):
    mesh = example_mesh()
    mesh.who = answer
    async with driven(mesh, (200, 50)) as console:
        await console.until("read-only")
        for key in ("s", "r", "c"):
            await console.press(key)
            await console.until(said)
            assert len(console.app.screen_stack) == 2
        await console.press("colon", *"stop", "enter")
        await console.until(said)
        await console.press("question_mark")
        await console.until("(your key may not)")
        assert mesh.writes == []


async def test_nodes_are_an_operators_to_take_out_of_service():
    mesh = example_mesh()
    mesh.who = who("member")
    async with driven(mesh, (200, 50)) as console:
        await console.until("llama3-8b")
        await console.press("3")
        await console.until("gpu-03")
        for key in ("x", "D"):
            await console.press(key)
            await console.until("the role member does not allow it, operator does")
        assert mesh.writes == [] and "read-only" not in console.text()


@pytest.mark.parametrize("answer", [who("member"), {"kind": "mesh", "name": "mesh"}, {"kind": 3}, None])
async def test_who_may_change_groups_sees_no_difference(answer):
    mesh = example_mesh()
    mesh.who = answer
    async with driven(mesh) as console:
        await console.until("llama3-8b")
        await console.settled()
        assert "read-only" not in console.text() and " resubmit" in console.text().split("\n")[-1]
        await console.press("r")
        await console.until("Cancel")


async def test_clone_submits_what_was_edited():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "c")
        await console.until("the same as the original")
        editor = console.screen.query_one("#text")
        editor.text = editor.text.replace("lr: 3e-4", "lr: 1e-4")
        text = await console.until("1 field differs")
        assert "training.hyper_params.lr" in text and "3e-4 → 1e-4" in text
        await console.press("ctrl+s")
        await console.until("submitted as")
        ((what, _, _, body),) = console.mesh.writes
        assert what == "submit" and json.loads(body)["training"]["hyper_params"]["lr"] == "1e-4"


@pytest.mark.parametrize(("keys", "shown"), [("ctrl+s", "groups"), ("escape", "groups"), ("escape j d", "detail")])
async def test_an_answer_to_a_clone_that_was_left_closes_nothing_else(keys, shown):
    mesh, may_answer = example_mesh(), asyncio.Event()
    write = mesh._write

    async def late(request):
        await may_answer.wait()
        return await write(request)

    setattr(mesh, "_write", late)  # noqa: B010 - mypy takes no assignment to a method
    async with driven(mesh) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "c")
        await console.until("the same as the original")
        await console.press("ctrl+s")
        await console.until("submitting …")
        await console.press(*keys.split())
        may_answer.set()
        await console.until(f"{gid(999)}")
        await console.settled()
        assert f"▸ {shown}" in console.text() and len(console.app.screen_stack) == (3 if shown == "detail" else 2)


async def test_what_the_mesh_says_to_a_clone_is_shown_to_its_end():
    mesh = example_mesh()

    async def no(request):
        body = {"code": "no", "message": "the quota of nlp is used up " * 4, "hint": "Stop something first."}
        return web.json_response(body | {"status": 409}, status=409)

    setattr(mesh, "_write", no)  # noqa: B010 - mypy takes no assignment to a method
    async with driven(mesh, (80, 24)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "c")
        await console.until("the same as the original")
        await console.press("ctrl+s")
        await console.until("Stop something first.")


async def test_clone_shows_what_is_wrong_and_does_not_submit_it():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "c")
        await console.until("the same as the original")
        editor = console.screen.query_one("#text")
        editor.text = editor.text.replace("n_nodes: 2", "n_nodes: none")
        await console.until("✗ training.n_nodes")
        await console.press("ctrl+s", "escape")
        await console.until("lost if you leave")
        await console.press("escape")
        await console.until("▸ groups")
        assert console.mesh.writes == []


async def test_dialog_survives_every_size_and_confirms_nothing_unreadable():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "s")
        await console.until("Stop this group")
        for size in ((40, 10), (20, 5), (1, 1), (200, 60), (80, 24), (10, 3)):
            await console.pilot.resize_terminal(*size)
            await console.settled()
        await console.press("y", "enter")
        await console.settled()
        assert console.mesh.writes == []
        await console.pilot.resize_terminal(120, 40)
        await console.until("Stop this group")
        assert "[ Cancel ]" in console.text()
        await console.press("escape")
        await console.until("▸ groups")
        assert console.screen.here == gid(LLAMA)

"""The list of groups on a mesh that stands still: what stands where, what a filter leaves, where the cursor stays."""

import pytest
from textual.events import Key

from tests.snapshots.canned_mesh import NOW_MS, S, gid, group_now
from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import LLAMA, QWEN, SWEEP, WHISPER, example_mesh


async def test_problems_stand_first_and_carry_their_reason():
    async with driven(example_mesh()) as console:
        await console.until("rm-sweep")
        rows = console.lines()
        assert "rm-sweep" in rows[0] and "Rank 0 on gpu-24 exited 1." in rows[0]
        assert "recovering" in rows[1] and "gpu-05 was lost" in rows[1]
        assert "bert-distill" in rows[-3]


async def test_header_says_whether_the_mesh_is_well():
    async with driven(example_mesh()) as console:
        text = await console.until("quorum")
        head = text.split("\n")[0]
        assert "leader gpu-03" in head and "quorum 4/5 (spare 1)" in head and "nodes 23/24" in head
        # 16 + 64 held and 2 being cleaned, of 23 ready hosts.
        assert "GPU 82/184" in head


async def test_unknown_is_a_dash_and_never_a_zero():
    async with driven(example_mesh()) as console:
        await console.until("whisper")
        row = next(row for row in console.lines() if "whisper" in row)
        assert row.split()[4:6] == ["–", "–"]


async def test_keys_typed_into_the_filter_are_text():
    async with driven(example_mesh()) as console:
        await console.until("rm-sweep")
        await console.press("slash", "q", "question_mark", "d", "s", "x", "colon")
        await console.until("/q?dsx:")
        assert len(console.app.screen_stack) == 2 and not console.mesh.writes
        await console.press("escape")
        await console.settled()
        assert "no row holds 'q?dsx:'" in console.text()
        await console.press("escape")
        await console.until("llama3-8b")


async def test_keys_struck_faster_than_the_filter_opens_are_text():
    async with driven(example_mesh()) as console:
        await console.until("rm-sweep")
        for key, character in (
            ("slash", "/"),
            ("s", "s"),
            ("w", "w"),
            ("x", "x"),
            ("backspace", None),
            ("e", "e"),
            ("enter", "\r"),
        ):
            console.app.post_message(Key(key, character))
        await console.until(lambda: len(console.lines()) == 1 and "rm-sweep" in console.lines()[0])
        assert len(console.app.screen_stack) == 2 and "/swe" in console.text()


async def test_filters_by_field_word_and_absence():
    async with driven(example_mesh()) as console:
        await console.until("rm-sweep")
        for words, found in (
            ("status=pending", 2),
            ("user=wu !whisper", 1),
            ("gpu>16", 3),
            ("node=gpu-03", 1),
            ("LLAMA3-8B", 1),
        ):
            console.screen.set_filter(words)
            await console.until(lambda n=found: len(console.lines()) == n)
            await console.press("escape")


@pytest.mark.attack(47)
async def test_a_wrong_clock_of_this_host_does_not_decide_the_order():
    """Until the mesh has told its time, ages are counted by this host's clock; then rows are ordered anew."""
    async with driven(example_mesh()) as console:
        console.app.session._clock_ms = lambda: NOW_MS + 90 * 24 * 3600 * S
        console.app.session._offset_ms = 0
        console.screen.do_sort_left()
        console.screen.do_sort_right()
        await console.until(lambda: bool(console.lines()) and "rm-sweep" in console.lines()[0])


async def test_the_cursor_stays_with_its_row():
    mesh = example_mesh()
    async with driven(mesh) as console:
        await console.until("qwen2")
        await console.press("j", "j", "j", "j")
        assert console.screen.here == gid(QWEN)
        await mesh.change(("group", gid(SWEEP), None))
        await console.until(lambda: "rm-sweep" not in console.text())
        assert console.screen.here == gid(QWEN)
        assert "▌" in next(row for row in console.lines() if "qwen2" in row)


async def test_a_change_is_on_the_screen_at_once():
    mesh = example_mesh()
    async with driven(mesh) as console:
        await console.until("llama3-70b-dpo")
        row = next(row for entity, key, row in mesh.rows if key == gid(WHISPER) and entity == "group")
        await mesh.change(
            ("group", gid(WHISPER), row | {"status": "running", "nodes": ["gpu-21"], "started_ms": NOW_MS})
        )
        await console.until(
            lambda: any("whisper" in row and "R running" in row and "gpu-21" in row for row in console.lines())
        )


async def test_a_stall_is_said_in_the_list_and_in_the_alerts_and_clears():
    mesh = example_mesh()
    why = "no step for 6 min, cards 0 % busy"
    mesh.telemetry = {"groups": [group_now(LLAMA, 2, 400, 1.5, 380.0, stall="stalled", stall_text=why)], "nodes": []}
    mesh.alerts = [
        {
            "id": "a",
            "rule": "stalled",
            "group_id": gid(LLAMA),
            "level": "critical",
            "text": why,
            "advice": "Look at its ranks.",
            "since_ms": NOW_MS - 6 * 60 * S,
        }
    ]
    async with driven(mesh) as console:
        await console.until(why)
        row = next(row for row in console.lines() if "llama3-8b" in row)
        assert "! stalled" in row and "400" in row and "1.5000" in row and "6m" in row
        assert "! 1 stalled" in console.text()
        await console.press("5")
        await console.until("Look at its ranks.")
        await console.press("1")
        mesh.telemetry = {"groups": [group_now(LLAMA, 2, 401, "NaN", 1.0)], "nodes": []}
        mesh.alerts = []
        await console.until(lambda: "stalled" not in console.text() and "NaN" in console.text())

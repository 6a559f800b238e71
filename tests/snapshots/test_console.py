"""The console, driven by keys on a mesh that stands still: what an operator sees, and what their keys do."""

import asyncio
import json

import pytest
from textual.events import Key

from tests.snapshots.canned_mesh import NOW_MS, S, event_row, gid, group_now, group_row, node_row
from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import HOSTILE, LLAMA, QWEN, SWEEP, WHISPER, example_mesh

HOSTILE_NAMES = (
    "exp[lr=1e-4]",
    "train[/]",
    "[/red]x",
    "[/",
    "[0] hi",
    "a[1,2]b",
    "\\[x",
    "[red",
    "[@click=app.quit]ok[/]",
    "[link=http://evil]details[/link]",
)


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


@pytest.mark.attack(49)
@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_name_is_shown_letter_by_letter_everywhere(name):
    mesh = example_mesh()
    mesh.rows = [row for row in mesh.rows if row[0] != "group"]
    mesh.rows.append(
        ("group", gid(HOSTILE), group_row(HOSTILE, name, "running", 1, 8, started_ms=NOW_MS - S, user=name))
    )
    async with driven(mesh) as console:
        await console.until(name)
        for key in ("d", "t", "l", "m", "d"):
            await console.press(key)
            await console.until(f"▸ {name}")
        await console.press("s")
        await console.until("Stop this group")
        assert name in console.text()
        await console.press("n", "escape")
        await console.until(name)
        assert console.app.is_running


@pytest.mark.attack(49)
async def test_a_click_on_foreign_markup_does_nothing():
    mesh = example_mesh()
    mesh.rows.append(("group", gid(HOSTILE), group_row(HOSTILE, "[@click=app.quit]ok[/]", "recovering", 1, 8)))
    async with driven(mesh) as console:
        text = await console.until("[@click=app.quit]ok")
        y = next(at for at, row in enumerate(text.split("\n")) if "[@click" in row)
        await console.pilot.click(offset=(4, y))
        await console.settled()
        assert console.app.is_running and "[@click=app.quit]ok" in console.text()


@pytest.mark.attack(48)
async def test_no_control_character_of_a_foreign_text_reaches_a_line():
    nasty = "a\x1b]52;c;aGk=\x07b\x9b2Jc\x1b[2Jd\x1bPq\x1b\\e\x1b_x\x1b\\f‮g​h\ti\nj"
    mesh = example_mesh()
    row = group_row(
        HOSTILE, nasty, "failed", 1, 8, user=nasty, nodes=["gpu-24"], ended_ms=NOW_MS - S, started_ms=NOW_MS - 9 * S
    )
    row["failure"] = {"class": nasty, "rank": 0, "exit_code": 1, "signal": None, "text": nasty, "at_ms": NOW_MS}
    mesh.rows += [("group", gid(HOSTILE), row), event_row(HOSTILE, 1, NOW_MS, nasty, nasty, rank=0)]
    mesh.logs[gid(HOSTILE)] = [{"rank": 0, "attempt": 1, "offset": 1, "at": nasty, "stream": "out", "text": nasty}]
    async with driven(mesh) as console:
        await console.until("abcde")
        for key in ("d", "t", "l", "m"):
            await console.press(key)
            await console.settled()
            text = console.text()
            assert "abcde" in text
            assert all(item.isprintable() for item in text if item != "\n"), key


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


async def test_log_search_leaves_the_end_and_goes_to_the_line():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "l")
        await console.until("12,400/18,600")
        await console.press("slash", *"watchdog", "enter")
        text = await console.until("/watchdog")
        # Nothing more can come of this one, so it is not called paused.
        assert "NCCL watchdog" in text and "12,400/18,600" not in text and "this is all" in text
        await console.press("f")
        await console.until("12,400/18,600")
        await console.press("vertical_line")
        await console.until(lambda: len(console.lines()) == 1)


async def test_log_of_one_rank():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "l")
        await console.until("12,400/18,600")
        await console.press("right_square_bracket")
        await console.until("rank 0")
        await console.until("61 lines")
        await console.press("a")
        await console.until("122 lines")


async def test_timeline_folds_equal_ranks_and_shows_the_loss():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "t")
        text = await console.until("ranks 0-1")
        assert "attempt 1" in text and "✖ lost" in text and "gpu-03,07" in text


async def test_empty_curves_say_which_emptiness_it_is():
    mesh = example_mesh()
    async with driven(mesh) as console:
        await console.until("qwen2")
        await console.press("j", "j", "j", "j", "m")
        await console.until("no TensorBoard log")
        mesh.curves[gid(QWEN)] = {"state": "no_points", "tags": {}}
        await console.until("no scalar was written")
        mesh.curves[gid(QWEN)] = {"state": "probe_failed", "tags": {}}
        await console.until("does not answer")
        del mesh.curves[gid(QWEN)]
        await console.until("has no curves yet")


async def test_curve_marks_what_is_no_number():
    mesh = example_mesh()
    points = [[step, 0, "NaN" if step == 50 else 1 / (step + 1)] for step in range(100)]
    mesh.curves[gid(LLAMA)] = {"state": "live", "tags": {"loss": points}}
    async with driven(mesh) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "m")
        await console.until("NaN or infinite at step 50")
        await console.press("y")
        await console.until("log axis")


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


async def test_progress_of_ranks_and_cards():
    async with driven(example_mesh()) as console:
        await console.until("12,400")
        await console.press("j", "j", "j", "d")
        text = await console.until("UTIL")
        assert "96 %" in text and "70G" in text
        await console.press("3")
        await console.until("▇▇▇▇▇▇▇▇")


async def test_queue_nodes_mesh_and_alerts():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("2")
        text = await console.until("needs 1 node x 8 GPUs")
        assert text.index("llama3-405b") < text.index("whisper")
        await console.press("3")
        await console.until("silent for 50 s")
        assert "gpu-05" in console.lines()[0]
        await console.press("tab")
        await console.until(lambda: "gpu-24" in console.text() and "RANKS OF" not in console.text())
        await console.press("4")
        await console.until("no answer")
        assert "48,211" in console.text()
        await console.press("5")
        await console.until("voter gpu-05 does not answer")


async def test_command_line_goes_to_a_view_with_a_filter():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("colon", *"nodes /lost", "enter")
        await console.until(lambda: len(console.lines()) == 1 and "gpu-05" in console.lines()[0])


async def test_help_lists_every_action_of_the_screen():
    async with driven(example_mesh()) as console:
        await console.until("llama3-8b")
        await console.press("question_mark")
        await console.until("keys that work here")
        shown = "\n".join(console.lines())
        for action in console.app.keymap.actions("groups"):
            assert action.help[:60] in shown, action.name


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


async def test_a_small_terminal_says_so_and_comes_back():
    async with driven(example_mesh(), size=(10, 3)) as console:
        await console.until("too small")
        await console.pilot.resize_terminal(80, 24)
        await console.until("rm-sweep")
        for _ in range(20):
            await console.pilot.resize_terminal(1, 1)
            await console.pilot.resize_terminal(100, 30)
        await console.until("rm-sweep")


async def test_every_line_is_as_wide_as_the_screen():
    mesh = example_mesh()
    for at, name in enumerate(("训练任务一", "abc", "🚀run", "e\u0301xp", "👩‍👩‍👧", "ﷺ", "a\u200bb", "a\tb"), 50):
        mesh.rows.append(("group", gid(at), group_row(at, name * 4, "running", 1, 1, started_ms=NOW_MS)))
    async with driven(mesh, size=(60, 30)) as console:
        await console.until("abcabc")
        await console.settled()
        widths = {strip.cell_length for strip in console.screen._compositor.render_strips()}
        assert widths == {60}


async def test_a_node_that_is_lost_while_shown(tmp_path):
    mesh = example_mesh()
    async with driven(mesh) as console:
        await console.until("llama3-8b")
        await console.press("3")
        await console.until("gpu-06")
        await mesh.change(
            ("node", "gpu-06", node_row("gpu-06", state="lost", lost_ms=NOW_MS, reason="silent for 50 s"))
        )
        await console.until("nodes 22/24")
        await asyncio.sleep(0)

"""The views beside the list of groups: logs, timeline, curves, ranks, queue, nodes, mesh, alerts, help."""

import asyncio

from tests.snapshots.canned_mesh import NOW_MS, gid, node_row
from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import LLAMA, QWEN, example_mesh


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


async def test_a_small_terminal_says_so_and_comes_back():
    async with driven(example_mesh(), size=(10, 3)) as console:
        await console.until("too small")
        await console.pilot.resize_terminal(80, 24)
        await console.until("rm-sweep")
        for _ in range(20):
            await console.pilot.resize_terminal(1, 1)
            await console.pilot.resize_terminal(100, 30)
        await console.until("rm-sweep")


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

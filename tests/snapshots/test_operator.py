"""What somebody sees who is called at night: why it waits or stopped, which rank is stuck, what a stop would cost;
nothing cut without a sign, and no key in the footer that does nothing."""

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from console.app import Console
from console.core.line import line_width, plain
from console.endpoints import Target
from console.keymap import Keymap
from console.store.session import Session
from console.widgets.line_view import FixedLines, LineView
from tests.snapshots.canned_mesh import NOW_MS, TOKEN, CannedMesh, H, gid, group_now, group_row, node_row
from tests.snapshots.driven import Driven, driven
from tests.snapshots.example_mesh import LLAMA, QWEN, WHISPER, example_mesh, names

SIZES = [(80, 24), (220, 60)]
SPINS = "a card of rank 0 is busy"


def changed(mesh: CannedMesh, number: int, **over: object) -> None:
    mesh.rows = [
        (entity, key, row | over) if (entity, key) == ("group", gid(number)) else (entity, key, row)
        for entity, key, row in mesh.rows
    ]


def stuck_mesh() -> CannedMesh:
    """64 cards of which 8 idle, no step for 23 minutes, an hour since the last checkpoint."""
    mesh = example_mesh()
    ranks = [(node, 8, 0.0 if node == "gpu-13" else 100.0) for node in names(8, 15)]
    told = group_now(QWEN, 1, 3120, 2.0113, 1380.0, ranks=ranks, stall="moving", stall_text=SPINS)
    mesh.telemetry = {"groups": [told], "nodes": []}
    saved = {"pick": "step-3000", "step": 3000, "mark": "1", "bytes": 9, "saved_ms": NOW_MS - H, "attempt": 1}
    changed(mesh, QWEN, runs_since_ms=NOW_MS - 51 * H, saved=saved)
    return mesh


async def on_the_stuck_one(console) -> None:
    await console.until("no step for 23m")
    while console.screen.target() is None or console.screen.target().id != gid(QWEN):
        await console.press("j")


@pytest.mark.parametrize("size", SIZES)
async def test_the_first_screen_says_which_group_does_not_move(size):
    async with driven(stuck_mesh(), size) as console:
        await console.until("no step for 23m")
        at = next(at for at, row in enumerate(console.lines()) if "qwen2" in row)
        assert at <= 2, "only what failed and what recovers stand before it"


async def test_the_pane_names_the_rank_and_what_is_at_stake():
    async with driven(stuck_mesh(), (120, 40)) as console:
        await on_the_stuck_one(console)
        text = await console.until("rank 5 on gpu-13 is idle while 7 others are busy")
        assert "no step for 23m; a card of rank 0 is busy" in text
        assert "64.0 GPU-hours lost if killed now" in text and "step 3,120" in text and "2.0113" in text
        rows = text.split("\n")
        head = next(at for at, row in enumerate(rows) if "RANK  NODE" in row)
        assert "gpu-13" in rows[head + 1] and "0 %" in rows[head + 1]


@pytest.mark.parametrize("size", SIZES)
async def test_the_detail_and_the_timeline_say_so_too(size):
    async with driven(stuck_mesh(), size) as console:
        await on_the_stuck_one(console)
        await console.press("d")
        text = await console.until("rank 5 on gpu-13 is idle while 7 others are busy")
        assert "step 3,120" in text and "64.0 GPU-hours lost if killed now" in text
        await console.press("t")
        text = await console.until("R idle")
        assert "▂ no step" in text and "rank 5 " in text


async def test_a_stop_can_wait_for_the_next_checkpoint():
    async with driven(stuck_mesh(), (80, 24)) as console:
        await on_the_stuck_one(console)
        await console.press("s")
        text = await console.until("Stop this group")
        assert "[ Cancel ]" in text and "64.0 GPU-hours now" in text and "stop after next checkpoint" in text
        await console.press("enter")
        await console.settled()
        assert console.mesh.writes == []
        await console.press("s", "tab", "tab")
        await console.until("[ stop after next checkpoint ]")
        await console.press("enter")
        await console.until("stops after its next checkpoint")
        await console.press("s", "a")
        await console.until(lambda: len(console.mesh.writes) == 2)
        assert [(what, json.loads(body)) for what, _, _, body in console.mesh.writes] == [
            ("stop-after-checkpoint", {})
        ] * 2


async def test_where_nothing_is_computed_a_stop_has_two_answers():
    async with driven(stuck_mesh(), (80, 24)) as console:
        await console.until("no step for 23m")
        while console.screen.target().id != gid(WHISPER):
            await console.press("j")
        await console.press("s")
        text = await console.until("Stop this group")
        assert "[ Cancel ]" in text and "after next checkpoint" not in text
        await console.press("a")
        await console.settled()
        assert console.mesh.writes == [] and "[ Cancel ]" in console.text()
        await console.press("y")
        await console.until("is stopping")
        assert [what for what, _, _, _ in console.mesh.writes] == ["stop"]


@pytest.mark.parametrize("rows", [24, 17, 14])
async def test_what_a_stop_of_many_costs_is_never_cut_away(rows):
    mesh = example_mesh()
    for at in range(100, 115):
        mesh.rows.append(
            ("group", gid(at), group_row(at, f"sweep-{at}", "running", 1, 8, started_ms=NOW_MS - H, nodes=["gpu-01"]))
        )
    async with driven(mesh, (80, rows)) as console:
        await console.until("sweep-")
        await console.press("slash", *"sweep", "enter")
        await console.press("asterisk", "s")
        text = await console.until("Stop 15 groups")
        body = [row for row in text.split("\n") if "│" in row]
        if "a terminal of" in text:
            await console.press("y")
            await console.settled()
            assert console.mesh.writes == [], "what cannot be read is not agreed to"
            return
        assert any("120 cards come free" in row for row in body) and any("is lost" in row for row in body)
        assert "more" in text and "[ Cancel ]" in text


async def test_a_sentence_of_a_question_is_broken_and_not_cut():
    async with driven(example_mesh(), (80, 24)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "P")
        text = await console.until("Pause this group")
        assert "until they are" in text and "resumed." in text


@pytest.mark.parametrize(("key", "shown"), [("2", "llama3-405b"), ("3", "silent for 50 s")])
async def test_the_row_under_the_cursor_is_there_in_full(key, shown):
    async with driven(example_mesh(), (80, 24)) as console:
        await console.until("llama3-8b")
        await console.press(key)
        await console.until(shown)
        await console.settled()
        text = " ".join("\n".join(console.lines("#in-full")).split())
        if key == "2":
            assert "the whole mesh has 24 such nodes; it waits until nodes join" in text
        if key == "3":
            assert "gpu-05" in text and "10.0.0.5:7460" in text and "silent for 50 s" in text


async def test_a_node_says_how_busy_each_of_its_cards_is():
    async with driven(example_mesh(), (120, 40)) as console:
        await console.until("llama3-8b")
        await console.press("3")
        await console.until("▇▇▇▇▇▇▇▇")
        await console.press("slash", *"gpu-03", "enter")
        await console.until("busy by card: 0 96 %   1 96 %")


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_in_a_bar_is_cut_without_a_sign(size):
    mesh = example_mesh()
    async with driven(mesh, size) as console:
        await console.until("llama3-8b")
        for key in ("2", "3", "4", "5"):
            await console.press(key)
            await console.settled()
            for name in ("#status", "#columns", "#in-full", "#foot"):
                for view in console.app.screen.query(name).results(LineView):
                    assert isinstance(view._source, FixedLines)
                    cells = view.size.width
                    for at in range(view._source.count()):
                        shown, full = view._source.line(at, cells), view._source._paint(cells)[at]
                        assert line_width(shown) <= cells
                        assert shown == full or plain(shown).endswith("…")


@pytest.mark.parametrize("size", [(40, 8), (60, 12), (60, 20), (80, 24)])
async def test_every_view_has_its_first_and_its_last_line_on_every_terminal(size):
    async with driven(example_mesh(), size) as console:
        await console.until("rm-sweep")
        for keys in (("1",), ("2",), ("3",), ("4",), ("5",), ("1", "d"), ("t",), ("m",), ("l",)):
            await console.press(*keys)
            await console.settled()
            lines = console.text().split("\n")
            assert "quorum" in lines[0] and "? help" in lines[-1]
            assert console.view().size.height >= 1 and console.screen.max_scroll_y == 0


async def test_the_footer_shows_what_a_key_would_do_now():
    mesh = example_mesh()
    changed(mesh, LLAMA, status="paused", nodes=[])
    cordon = {"by": "ada", "reason": "fans", "at_ms": NOW_MS, "window": False}
    mesh.rows.append(("node", "gpu-09", node_row("gpu-09", cordon=cordon)))
    async with driven(mesh, (160, 48)) as console:
        await console.until("llama3-8b")

        def foot() -> str:
            return console.text().split("\n")[-1]

        assert "esc" not in foot()
        while console.screen.target().id != gid(LLAMA):
            await console.press("j")
        assert "R resume" in foot() and "P pause" not in foot()
        await console.press("z")
        await console.until("problems only")
        assert "esc back" in foot()
        await console.press("escape")
        await console.until(lambda: "problems only" not in console.text())
        await console.press("g")
        while console.screen.target().id != gid(LLAMA):
            await console.press("j")
        await console.press("m")
        await console.until("▸ curves")
        await console.until(lambda: "log axis" in foot())
        assert "] tag" in foot() and "whole" not in foot() and "esc back" in foot()
        await console.press("l")
        await console.until("▸ log")
        await console.settled()
        assert "next" not in foot() and "only" not in foot() and "attempt" in foot() and "all ranks" not in foot()
        await console.press("slash", *"loss", "enter")
        await console.until(lambda: "n next" in foot() and "| only" in foot())
        await console.press("escape", "escape", "3")
        await console.until("fans")
        await console.press("slash", *"gpu-09", "enter")
        await console.until(lambda: "x uncordon" in foot())


async def test_a_group_that_is_paused_meanwhile_changes_the_footer():
    mesh = example_mesh()
    async with driven(mesh, (160, 48)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "d")
        await console.until("P pause")
        row = next(row for entity, key, row in mesh.rows if (entity, key) == ("group", gid(LLAMA)))
        await mesh.change(("group", gid(LLAMA), row | {"status": "paused", "nodes": []}))
        await console.until("R resume")
        assert "P pause " not in console.text().split("\n")[-1]


@pytest.mark.parametrize("view", ["1", "3"])
async def test_help_is_whole_on_a_narrow_terminal_and_says_how_one_leaves(view):
    async with driven(example_mesh(), (80, 24)) as console:
        await console.until("llama3-8b")
        await console.press(view, "question_mark")
        await console.until("▸ help")
        assert "esc back" in console.text().split("\n")[-1]
        assert not any("…" in row for row in console.lines())
        shown = " ".join("\n".join(console.lines()).split())
        for title in ("Here", "Everywhere", "Moving", "Signs", "P paused", "! stalled"):
            assert title in shown
        await console.press("G")
        await console.until("--no-mouse")


async def test_a_log_that_began_earlier_says_so():
    mesh = example_mesh()
    lines = mesh.logs[gid(LLAMA)]
    async with driven(mesh, (160, 48)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "l")
        await console.until("122 lines")
        assert "older ones" not in console.text()
    many = [
        {**lines[0], "offset": 100_000 + at * 40, "at": f"2026-11-29T19:00:00.{at:06d}Z", "text": f"step {at}"}
        for at in range(2000)
    ]
    mesh.logs[gid(LLAMA)] = many
    async with driven(mesh, (160, 48)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "l")
        await console.until("older ones are in `heteroflow logs`")
    mesh.logs[gid(LLAMA)] = [{**item, "offset": item["offset"] - 100_000} for item in many]
    async with driven(mesh, (160, 48)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", "l")
        await console.until("2,000 lines")
        assert "older ones" not in console.text(), "this is all of it"


@asynccontextmanager
async def refused(status: int, body: dict[str, str]):
    """The console at something that refuses whatever it is asked."""

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response(body | {"status": status}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app) as server:
        session = Session(Target((f"{server.host}:{server.port}",), TOKEN), lambda: NOW_MS, timeout_s=2.0)
        console = Console(session, Keymap())
        async with console.run_test(size=(80, 24)) as pilot:
            yield Driven(console, pilot)


def refuse_at(mesh: CannedMesh, route: str, message: str, hint: str, status: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"code": "no", "message": message, "hint": hint, "status": status}, status=status)

    setattr(mesh, route, refuse)


async def test_what_one_key_may_not_see_hides_nothing_else():
    mesh = example_mesh()
    refuse_at(mesh, "_mesh", "the key may not look at voters", "Ask for the scope mesh:read.", 403)
    async with driven(mesh, (120, 40)) as console:
        await console.until("the key may not look at voters. Ask for the scope mesh:read.")
        head = (await console.until("llama3-8b")).split("\n")[0]
        assert "nodes 23/24" in head and "queue 2" in head and "may not" not in head
        await console.press("4")
        await console.until("the key may not look at voters. Ask for the scope mesh:read.")


async def test_that_the_groups_are_refused_is_said_until_they_are_not(monkeypatch):
    monkeypatch.setattr("console.store.session.STATUS_S", 0.02)
    mesh, read = example_mesh(), []
    refuse_at(mesh, "_watch", "the key may not look at groups", "Ask for the scope tasks:read.", 403)

    async with driven(mesh, (120, 40)) as console:
        await console.until("the key may not look at groups. Ask for the scope tasks:read.")
        session = console.app.session
        for _ in range(20):
            at, before = session.status_at, session.trouble
            await console.until(lambda at=at: session.status_at != at)
            read.append((before, session.trouble))
        assert set(read) == {("the key may not look at groups",) * 2}, "the voters are read meanwhile"


@pytest.mark.parametrize(("key", "route"), [("l", "_logs"), ("m", "_curves")])
async def test_what_is_refused_of_a_group_says_what_to_do(key, route):
    mesh = example_mesh()
    refuse_at(mesh, route, "gpu-03 has it and does not answer " * 3, "Look at that host.", 409)
    async with driven(mesh, (80, 24)) as console:
        await console.until("llama3-8b")
        await console.press("j", "j", "j", key)
        await console.until(lambda: "Look at that host." in " ".join("\n".join(console.lines()).split()))


async def test_what_was_never_read_is_not_called_well_or_none():
    body = {"code": "unauthenticated", "message": "the token is not known here", "hint": "Give --token-file."}
    async with refused(401, body) as console:
        await console.until("the token is not known here. Give --token-file.")
        for key, lie in (("2", "0 waiting"), ("3", "0 ready"), ("4", "R answers"), ("5", "all is well")):
            await console.press(key)
            text = await console.until("Give --token-file.")
            assert lie not in text and "nothing" not in text


async def test_where_nobody_answers_it_is_said_what_to_do():
    session = Session(Target(("127.0.0.1:1",), TOKEN), lambda: NOW_MS, timeout_s=2.0)
    app = Console(session, Keymap())
    async with app.run_test(size=(80, 24)) as pilot:
        text = await Driven(app, pilot).until("no node answers")
        assert "Is an agent running there?" in " ".join(text.split())
        assert "--data-dir name others." in " ".join(text.split())


async def test_the_keys_that_an_alert_names_work_on_it():
    async with driven(example_mesh(), (120, 40)) as console:
        await console.until("rm-sweep")
        await console.press("5")
        text = await console.until("d explains, l shows its log, r submits it again.")
        foot = text.split("\n")[-1]
        assert "l logs" in foot and "r resubmit" in foot and "s stop" not in foot
        for key, shown in (("d", "▸ detail"), ("l", "▸ log"), ("r", "Submit once more")):
            await console.press(key)
            await console.until(shown)
            await console.press("escape")
            await console.until("▸ alerts")
        await console.press("G")
        await console.until("s stop")
        await console.press("s")
        assert "vlm-align-r3" in await console.until("Stop this group")
        await console.press("n", "slash", *"voter", "enter")
        await console.until(lambda: len(console.lines()) == 1)
        assert "l logs" not in console.text()
        await console.press("l", "s", "d")
        await console.settled()
        assert len(console.app.screen_stack) == 2


async def test_the_log_of_a_failed_group_begins_with_the_rank_that_failed_first():
    mesh = example_mesh()
    failure = {
        "class": "exit_code",
        "rank": 1,
        "exit_code": 1,
        "signal": None,
        "text": "Rank 1 exited 1.",
        "at_ms": NOW_MS,
    }
    changed(mesh, LLAMA, status="failed", failure=failure, ended_ms=NOW_MS)
    async with driven(mesh, (120, 40)) as console:
        await console.until("Rank 1 exited 1.")
        while console.screen.target().id != gid(LLAMA):
            await console.press("j")
        for keys in (("l",), ("d", "l")):
            await console.press(*keys)
            await console.until("rank 1, which failed first")
            await console.until("61 lines")
            await console.press("a")
            await console.until("all ranks")
            await console.until("122 lines")
            await console.press("escape")
            await console.until("▸ groups")


async def test_a_rank_s_reason_has_the_room_that_its_node_s_name_leaves():
    async with driven(example_mesh(), (80, 24)) as console:
        await console.until("rm-sweep")
        await console.press("d")
        text = await console.until("cards not yet proved clean")
        assert "F failed · ran 9m" in text

"""Texts that others wrote: shown letter by letter, never obeyed, and never wider than their place."""

import pytest

from tests.snapshots.canned_mesh import NOW_MS, S, event_row, gid, group_row
from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import HOSTILE, example_mesh

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


async def test_every_line_is_as_wide_as_the_screen():
    mesh = example_mesh()
    for at, name in enumerate(("训练任务一", "abc", "🚀run", "e\u0301xp", "👩‍👩‍👧", "ﷺ", "a\u200bb", "a\tb"), 50):
        mesh.rows.append(("group", gid(at), group_row(at, name * 4, "running", 1, 1, started_ms=NOW_MS)))
    async with driven(mesh, size=(60, 30)) as console:
        await console.until("abcabc")
        await console.settled()
        widths = {strip.cell_length for strip in console.screen._compositor.render_strips()}
        assert widths == {60}

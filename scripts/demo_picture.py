"""scripts/picture: the console as it stands on a running demonstration, as PNG."""

import argparse
import asyncio
import html
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from console.app import Console, now_ms
from console.endpoints import Target
from console.keymap import Keymap
from console.store.session import Session
from scripts.loopback_mesh import Api, MeshTrouble
from scripts.trial import Trial

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "console.png"
SIZE = (124, 30)
WIDTH_PX = 1600
READY_S = 300.0
PAINT_S = 20.0
STEP = 600  # of the job that trains: its curve has a shape by then
CHOSEN = "groups"
# view -> keys that lead there from the list, and what must stand on the screen
VIEWS: dict[str, tuple[tuple[str, ...], str]] = {
    "groups": ((), "train/loss"),
    "detail": (("d",), "Configuration"),
    "timeline": (("t",), "rank"),
    "curves": (("m",), "train/loss"),
    "log": (("l",), "following"),
    "queue": (("2",), "three-node"),
    "nodes": (("3",), "node-3"),
    "mesh": (("4",), "node-3"),
    "alerts": (("5",), "fails-at-80"),
}


def await_stage(api: Api) -> str:
    """Until the demonstration shows what it is meant to; the name of the job that trains."""
    wanted = {"completed", "failed", "pending", "running"}
    end = time.monotonic() + READY_S
    while True:
        groups = api.call("GET", "/task-groups")["groups"]
        training = next((group for group in groups if group["status"] == "running" and "two" in group["name"]), None)
        if training and {group["status"] for group in groups} == wanted and _step(api, training["group_id"]) >= STEP:
            return str(training["name"])
        if time.monotonic() > end:
            raise MeshTrouble(f"the demonstration is not ready after {READY_S:g} s: {groups}")
        time.sleep(0.5)


def _step(api: Api, group: str) -> int:
    told = api.call("GET", f"/telemetry?group={group}")["groups"]
    return max((int(entry["step"] or 0) for entry in told), default=0)


async def draw(api: Api, training: str, views: dict[str, Path]) -> None:
    session = Session(Target((api.address,), api.token), now_ms, 20.0)
    app = Console(session, Keymap({}, False))
    async with app.run_test(size=SIZE) as pilot:

        def text() -> str:
            return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

        async def until(what: str, true: Callable[[], bool]) -> None:
            end = time.monotonic() + PAINT_S
            while not true():
                if time.monotonic() > end:
                    raise MeshTrouble(f"{what} did not come on the screen:\n{text()}")
                await pilot.pause(0.1)

        def on_training() -> bool:
            return any(row.startswith("─") and training in row for row in text().splitlines())

        def is_shown(words: str) -> bool:
            return words in text()

        await until("the list", lambda: "three-node" in text() and "quorum" in text())
        while not on_training():
            await pilot.press("j")
            await pilot.pause(0.3)
        for view, path in views.items():
            keys, shown = VIEWS[view]
            await pilot.press(*keys)
            await until(view, partial(is_shown, shown))
            await pilot.pause(3.0)  # what comes later: curves, cards
            convert(app.export_screenshot(title="heteroflow"), path)
            await pilot.press("1")
            await until("the list", on_training)


def convert(svg: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["rsvg-convert", "--width", str(WIDTH_PX), "--output", str(path)]
    subprocess.run(command, input=drawable(svg).encode(), check=True)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


TEXT = re.compile(r'<text ([^>]*)x="([\d.]+)"([^>]*)textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def drawable(svg: str) -> str:
    """Textual's picture for a renderer that fetches no font and knows no textLength: each glyph that is not of the
    first font gets its own place. Spaces that begin a word are drawn only where that is asked for."""

    def placed(found: re.Match[str]) -> str:
        before, x, between, length, after, words = found.groups()
        glyphs = html.unescape(words)
        whole = [(float(x), glyphs)]
        cell = float(length) / max(len(glyphs), 1)
        each = [(float(x) + at * cell, glyph) for at, glyph in enumerate(glyphs)]
        return "".join(
            f'<text xml:space="preserve" {before}x="{left:.1f}"{between}{after}>{html.escape(text)}</text>'
            for left, text in (whole if glyphs.replace("\xa0", " ").isascii() else each)
        )

    return TEXT.sub(placed, svg.replace("Fira Code", "DejaVu Sans Mono"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/picture")
    parser.add_argument("--views", type=Path, metavar="DIR", help="a picture of every view, to choose from")
    options = parser.parse_args(arguments)
    if shutil.which("rsvg-convert") is None:
        print("rsvg-convert is missing; Debian: apt-get install librsvg2-bin fonts-dejavu-core")
        return 1
    views = {view: options.views / f"{view}.png" for view in VIEWS} if options.views else {CHOSEN: PICTURE}
    directory = Path(tempfile.mkdtemp(prefix="heteroflow-picture-"))
    trial = Trial(directory)
    try:
        trial.submit_demonstration(trial.start())
        asyncio.run(draw(trial.mesh.api(), await_stage(trial.mesh.api()), views))
    finally:
        trial.mesh.stop()
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A picture of each view, wide and narrow, as SVG: compared with the one that somebody looked at and found good.

`REWRITE_PICTURES=1 pytest tests/snapshots/test_pictures.py` draws them anew; then look at each (`rsvg-convert`).
"""

import gzip
import os
import re
from pathlib import Path

import pytest

from tests.snapshots.driven import driven
from tests.snapshots.example_mesh import example_mesh

DATA = Path(__file__).parent / "data"
SIZES = {"wide": (160, 50), "narrow": (80, 24)}
LLAMA_ROW = ("j", "j", "j")
# view -> (keys, what must stand on the screen before the picture is taken)
VIEWS: dict[str, tuple[tuple[str, ...], str]] = {
    "groups": ((*LLAMA_ROW,), "qwen2"),
    "failed": (("d",), "As recorded"),
    "detail": ((*LLAMA_ROW, "d"), "Configuration"),
    "log": ((*LLAMA_ROW, "l"), "12,400/18,600"),
    "timeline": ((*LLAMA_ROW, "t"), "ranks 0-1"),
    "curves": ((*LLAMA_ROW, "m"), "train/loss"),
    "queue": (("2",), "llama3-405b"),
    "nodes": (("3",), "dead for 6"),
    "map": (("3", "tab"), "gpu-06"),
    "mesh": (("4",), "no answer"),
    "alerts": (("5",), "gpu-05"),
    "help": (("question_mark",), "mark the row"),
    "stop": ((*LLAMA_ROW, "s"), "Stop this group"),
    "clone": ((*LLAMA_ROW, "c"), "same as the original"),
}
DRAWN = [(view, size, "dark") for view in VIEWS for size in SIZES] + [
    ("groups", "wide", "light"),
    ("groups", "wide", "ansi"),
]


@pytest.mark.parametrize(("view", "size", "theme"), DRAWN)
async def test_picture(view, size, theme):
    keys, shown = VIEWS[view]
    async with driven(example_mesh(), SIZES[size], theme=theme) as console:
        await console.until("llama3-8b")
        await console.until("quorum")
        for key in keys:
            await console.press(key)
        await console.until(shown)
        await console.settled()
        picture = _steady(console.app.export_screenshot(title="heteroflow"))
    path = DATA / f"{view}-{size}-{theme}.svg.gz"
    if os.environ.get("REWRITE_PICTURES"):
        DATA.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(picture.encode(), mtime=0))
    drawn = gzip.decompress(path.read_bytes()).decode()
    assert _words(picture) == _words(drawn)
    assert picture == drawn, f"colours or places of {path.name} changed: look at it, then REWRITE_PICTURES=1"


def _steady(svg: str) -> str:
    """Without what differs from run to run: the canned server's port, and how many seconds ago something was read."""
    svg = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7460", svg)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(r"textLength=\"[\d.]+\"", "", re.sub(r"\d+&#160;s&#160;ago", "0&#160;s&#160;ago", svg))


def _words(svg: str) -> list[str]:
    return re.findall(r">([^<>]*)</text>", svg)

"""What tones look like: two themes of our own, and one of the terminal's sixteen colours.

Hues are chosen so that good, warning and bad stay apart for red-green blindness and in 16 colours; named ANSI red and
magenta are the same colour to Textual, so the two true-colour themes name no ANSI colour.
"""

from rich.style import Style
from textual.theme import Theme

from console.core import line

DARK = Theme(
    name="heteroflow-dark",
    primary="#7aa2c8",
    foreground="#c8ccd4",
    background="#14171c",
    surface="#14171c",
    panel="#1d222a",
    error="#f07178",
    warning="#e5b567",
    success="#8fbf7f",
    accent="#7aa2c8",
    dark=True,
)
LIGHT = Theme(
    name="heteroflow-light",
    primary="#2a5d8f",
    foreground="#23272e",
    background="#fbfaf7",
    surface="#fbfaf7",
    panel="#efece4",
    error="#b3261e",
    warning="#8a5a00",
    success="#2e6b2e",
    accent="#2a5d8f",
    dark=False,
)
THEMES = {"dark": DARK.name, "light": LIGHT.name, "ansi": "ansi-dark"}

_DARK = {
    line.TEXT: "#c8ccd4",
    line.DIM: "#747c8a",
    line.STRONG: "bold #eef0f4",
    line.TITLE: "bold #eef0f4",
    line.ACCENT: "#7aa2c8",
    line.KEY: "bold #9fc0de",
    line.GOOD: "#8fbf7f",
    line.BUSY: "#6fb8c4",
    line.WAIT: "#a9a1cf",
    line.WARN: "#e5b567",
    line.BAD: "bold #f07178",
    line.RULE: "#3a414d",
    line.MATCH: "#14171c on #e5b567",
    "series1": "#7aa2c8",
    "series2": "#e5b567",
    "series3": "#8fbf7f",
    "series4": "#c792c0",
    "cursor": "on #2a323d",
    "cursor_idle": "on #20262e",
    "bar": "on #1d222a",
}
_LIGHT = {
    line.TEXT: "#23272e",
    line.DIM: "#75777c",
    line.STRONG: "bold #000000",
    line.TITLE: "bold #000000",
    line.ACCENT: "#2a5d8f",
    line.KEY: "bold #2a5d8f",
    line.GOOD: "#2e6b2e",
    line.BUSY: "#1a6a78",
    line.WAIT: "#5d4f9c",
    line.WARN: "#8a5a00",
    line.BAD: "bold #b3261e",
    line.RULE: "#cfcabd",
    line.MATCH: "#000000 on #f2d27a",
    "series1": "#2a5d8f",
    "series2": "#8a5a00",
    "series3": "#2e6b2e",
    "series4": "#8a3d80",
    "cursor": "on #e3dfd2",
    "cursor_idle": "on #efece4",
    "bar": "on #efece4",
}
_ANSI = {
    line.TEXT: "default",
    line.DIM: "bright_black",
    line.STRONG: "bold default",
    line.TITLE: "bold default",
    line.ACCENT: "cyan",
    line.KEY: "bold cyan",
    line.GOOD: "green",
    line.BUSY: "cyan",
    line.WAIT: "blue",
    line.WARN: "yellow",
    line.BAD: "bold red",
    line.RULE: "bright_black",
    line.MATCH: "reverse",
    "series1": "cyan",
    "series2": "yellow",
    "series3": "green",
    "series4": "magenta",
    "cursor": "bold underline",
    "cursor_idle": "bold",
    "bar": "default",
}


def palette(theme_name: str) -> dict[str, Style]:
    table = {LIGHT.name: _LIGHT, DARK.name: _DARK}.get(theme_name, _ANSI)
    return {tone: Style.parse(words) for tone, words in table.items()}

"""Values as people read them: right-aligned, coarse, and a dash for what nobody knows."""

import re
from collections.abc import Mapping, Sequence
from unicodedata import combining, east_asian_width

from schemas.instants import iso_utc, parse_iso_utc

UNKNOWN = "–"

STATUS_MARKS = {
    "pending": "Q",
    "scheduling": "S",
    "starting": "S",
    "running": "R",
    "completed": "C",
    "failed": "F",
    "stopping": "X",
    "stopped": "X",
    "recovering": "!",
    "pausing": "P",
    "paused": "P",
}


def status_text(status: str | None) -> str:
    return f"{STATUS_MARKS.get(status, '?')} {status}" if status else UNKNOWN


def moment_ms(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return parse_iso_utc(text)
    except ValueError:
        return None


def utc_text(iso: str | None) -> str:
    """`2026-11-30 15:04:55 UTC`, of a moment as the API tells it; for people, who read it in a line."""
    at_ms = moment_ms(iso)
    return UNKNOWN if at_ms is None else f"{iso_utc(at_ms)[:19].replace('T', ' ')} UTC"


def reason_of(error: Exception) -> str:
    """What the system says of a file, without its number and the path that stands before it already."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def with_hint(message: str, hint: str) -> str:
    """What happened, and what to do about it."""
    return f"{message}. {hint}".strip() if hint and not message.endswith(".") else f"{message} {hint}".strip()


def age(since_ms: int | None, now_ms: int) -> str:
    """How long ago, in one unit; a moment in the future (clocks differ) counts as now."""
    return UNKNOWN if since_ms is None else coarse(now_ms - since_ms)


def coarse(duration_ms: int) -> str:
    seconds = max(duration_ms, 0) // 1000
    if seconds < 100:
        return f"{seconds}s"
    if seconds < 6000:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else UNKNOWN


def byte_text(size: int | None) -> str:
    """`3.2 GiB`."""
    if size is None:
        return UNKNOWN
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"


def text_or_dash(value: object) -> str:
    return str(value) if value not in (None, "", []) else UNKNOWN


def plain_value(value: object) -> str:
    """A value of a document in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(plain_value(item) for item in value)
    return text_or_dash(value)


_NUMBERED = re.compile(r"(.*?)([0-9]+)\Z")


def folded_nodes(nodes: Sequence[str], most: int = 4) -> str:
    """`gpu-03,07`, `gpu-08…15`: a common prefix is written once, a run as its ends."""
    if not nodes:
        return UNKNOWN
    groups: dict[str, list[str]] = {}
    for node in nodes:
        found = _NUMBERED.match(node)
        prefix, digits = found.groups() if found else (node, "")
        groups.setdefault(prefix, []).append(digits)
    shown = [prefix + ",".join(_runs(digits)) for prefix, digits in groups.items()]
    return ",".join(shown[:most]) + (f",+{len(shown) - most}" if len(shown) > most else "")


def _runs(digits: Sequence[str]) -> list[str]:
    ordered = sorted(digits, key=lambda text: int(text or 0))
    runs: list[list[str]] = []
    for text in ordered:
        if runs and text and int(text) == int(runs[-1][-1] or 0) + 1:
            runs[-1].append(text)
        else:
            runs.append([text])
    return [run[0] if len(run) == 1 else ",".join(run) if len(run) == 2 else f"{run[0]}…{run[-1]}" for run in runs]


# Latin, dashes and ellipsis, lines and blocks, braille: one cell each, and nearly everything that is not ASCII here.
_ONE_CELL_EACH = re.compile("[ -~\u00a1-\u02ff\u2010-\u2027\u2500-\u259f\u2800-\u28ff]*")


def width(text: str) -> int:
    """Terminal cells, not characters."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    return sum(0 if combining(item) else 2 if east_asian_width(item) in "WF" else 1 for item in text)


def clipped(text: str, cells: int) -> str:
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return text if len(text) <= cells else text[: max(cells - 1, 0)] + "…"
    if width(text) <= cells:
        return text
    kept, used = [], 0
    for item in text:
        used += width(item)
        if used > cells - 1:
            break
        kept.append(item)
    return "".join(kept) + "…"


def padded(text: str, cells: int, right: bool = False) -> str:
    space = " " * max(cells - width(text), 0)
    return space + text if right else text + space


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), last_cells: int = 0
) -> list[str]:
    """Aligned lines. right: columns of numbers. last_cells: a line's width, the last column is cut to it; 0 = never."""
    widths = [max([width(head[at]), *(width(row[at]) for row in rows)]) for at in range(len(head))]
    if last_cells:
        widths[-1] = min(widths[-1], max(last_cells - sum(widths[:-1]) - 2 * (len(head) - 1), 12))
    lines = []
    for row in [head, *rows]:
        cells = [
            padded(clipped(cell, cells) if at == len(head) - 1 else cell, cells, head[at] in right)
            for at, (cell, cells) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines

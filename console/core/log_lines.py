"""One log line as it is painted: rank, time, text, matches."""

from console.core import line
from console.core.format import width
from console.core.line import Line, Span
from console.core.log_ring import LogLine, looks_bad, parts_of

RANK_TONES = (line.SERIES[0], line.SERIES[2], line.SERIES[1], line.SERIES[3])


def prefix_cells(with_rank: bool, with_time: bool) -> int:
    return 2 + (6 if with_rank else 0) + (10 if with_time else 0)


def log_line(
    item: LogLine, part: int, cells: int, wrap: bool, with_rank: bool, with_time: bool, words: str, here: bool
) -> Line:
    if item.stream == "note":
        text = f"── {item.text} "
        return line.cut(((text, line.ACCENT), ("─" * max(cells - width(text), 0), line.RULE)), cells)
    spans: list[Span] = [("▌ " if here else "  ", line.KEY)]
    if with_time:
        spans.append((f"{item.at[11:19]:8}  " if not part else " " * 10, line.DIM))
    if with_rank:
        rank = f"{item.rank:>4}│ " if not part else "    │ "
        spans.append((rank, RANK_TONES[item.rank % len(RANK_TONES)]))
    room = cells - prefix_cells(with_rank, with_time)
    parts = parts_of(item.shown, room) if wrap else [item.shown]
    text = parts[part] if part < len(parts) else ""
    tone = line.ACCENT if item.stream == "platform" else line.BAD if looks_bad(item) else line.TEXT
    return line.cut((*spans, *_marked(text, words, tone)), cells)


def _marked(text: str, words: str, tone: str) -> list[Span]:
    if not words:
        return [(text, tone)]
    spans: list[Span] = []
    low, wanted, at = text.lower(), words.lower(), 0
    # Lower-casing may change a text's length; then places in it mean nothing and the whole line is marked.
    if len(low) != len(text):
        return [(text, line.MATCH if wanted in low else tone)]
    while (found := low.find(wanted, at)) >= 0:
        spans += [(text[at:found], tone), (text[found : found + len(wanted)], line.MATCH)]
        at = found + len(wanted)
    return [*spans, (text[at:], tone)]

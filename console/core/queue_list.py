"""The queue as lines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from console.core import line
from console.core.columns import Column, Layout, fitted, laid_out
from console.core.format import UNKNOWN, age, number, plain_value, width
from console.core.line import Line, joined, wrapped

if TYPE_CHECKING:
    from console.store.rows import Group

_COLUMNS = (
    Column("place", "#", 4, 6, 9, right=True, grows=8),
    Column("name", "NAME", 14, 34, 9, grows=2),
    Column("wants", "WANTS", 10, 18, 7, grows=3),
    Column("priority", "PRI", 7, 7, 3),
    Column("waited", "WAITED", 6, 6, 6, right=True),
    Column("user", "WHO", 6, 12, 2, grows=1),
    Column("why", "WHY", 16, 400, 8, grows=9),
)
_PRIORITIES = ("normal", "high", "highest")


def layout(cells: int, widths: Mapping[str, int]) -> Layout:
    """widths: of what stands in some columns, as `text_widths` counts them."""
    columns = [
        replace(column, least=max(column.least, cells // 3)) if column.name == "why" else column for column in _COLUMNS
    ]
    return laid_out(fitted(columns, widths), cells - 2)


def text_widths(group: "Group") -> dict[str, int]:
    """Nothing of a group that does not wait."""
    if group.status != "pending":
        return {}
    return {"name": width(group.name), "wants": width(wants(group)), "user": width(group.user)}


def wants(group: "Group") -> str:
    if group.n_nodes is None:
        return UNKNOWN
    return f"{group.n_nodes}x{group.per_node_gpu} {'|'.join(group.gpu_type) or 'any'}"


def queue_line(shape: Layout, group: "Group", place: int, now_ms: int, here: bool, marked: bool) -> Line:
    priority = _PRIORITIES[group.priority] if 0 <= group.priority < len(_PRIORITIES) else str(group.priority)
    row = shape.row(
        {
            "place": (number(place), line.DIM),
            "name": (group.name, line.STRONG if here else line.TEXT),
            "wants": (wants(group), line.TEXT),
            "priority": (priority, line.DIM if priority == "normal" else line.ACCENT),
            "waited": (age(group.created_ms, now_ms), line.TEXT),
            "user": (group.user, line.DIM),
            "why": (group.why, line.WAIT),
        }
    )
    return (("▌" if here else " ", line.ACCENT), ("●" if marked else " ", line.KEY), *row)


def waiting_lines(group: "Group", cells: int) -> list[Line]:
    """Why it waits, in full."""
    lines: list[Line] = [((f" {text}", line.WAIT),) for text in wrapped(group.why, cells - 2)]
    for name, value in group.reason_details.items():
        if said := plain_value(value):
            lines.append(((f"   {name.replace('_', ' ')}: ", line.DIM), (said, line.TEXT)))
    return [line.cut(item, cells) for item in lines]


def queue_summary(waiting: "Sequence[Group]", free: int, total: int) -> Line:
    wanted = sum(group.gpus or 0 for group in waiting)
    parts: list[Line] = [
        (
            (f"{len(waiting):,} ", line.TEXT),
            ("waiting for ", line.DIM),
            (f"{wanted:,} ", line.TEXT),
            ("cards", line.DIM),
        ),
        ((f"{free:,} ", line.TEXT), (f"of {total:,} cards free", line.DIM)),
    ]
    reasons: dict[str, int] = {}
    for group in waiting:
        if group.reason_code:
            reasons[group.reason_code] = reasons.get(group.reason_code, 0) + 1
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:4]
    parts += [((f"{count} ", line.TEXT), (code.replace("_", " "), line.DIM)) for code, count in ranked]
    return ((" ", line.TEXT), *joined(parts, ("   ", line.TEXT)))

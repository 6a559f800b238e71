"""What a confirmation says: which groups by id, what will happen to each, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.core import line
from console.core.format import UNKNOWN, number, width
from console.core.group_list import run_time
from console.core.line import Line, Span, cell, joined
from console.core.marks import group_mark
from schemas.rules.checkpoints.at_risk import hours_text
from schemas.states import PAUSED, PLACED
from schemas.task_types import TRAINING

if TYPE_CHECKING:
    from console.store.rows import Group

SHOWN = 10
_NAME, _CARDS = 1, 3  # columns
_GAP = 2
LATER = "stop after next checkpoint"
_WITHIN = "an hour"  # where the request names no time


@dataclass(frozen=True, slots=True)
class Question:
    """lines: whom it is about, an empty one, and what happens. later: the answer "after the next checkpoint", "" where
    that is none."""

    title: str
    lines: tuple[Line, ...]
    yes: str
    later: str = ""


def stop_question(groups: "Sequence[Group]", ended: int, now_ms: int, cells: int) -> Question:
    """cells: how wide it may be. A name is cut where it must, an id never."""
    lines = _chosen(groups, now_ms, cells)
    placed = [group for group in groups if group.status in PLACED]
    paused = sum(group.status == PAUSED for group in groups)
    if placed:
        lines += _ranks_end(placed)
        lines.append(((f"What was computed since the last checkpoint is lost{_hours(groups, now_ms)}.", line.TEXT),))
    if len(groups) > len(placed) + paused:
        lines.append((("What waits in the queue leaves it at once.", line.TEXT),))
    if paused:
        lines.append((("What is paused gives its place up and cannot be resumed.", line.TEXT),))
    later = LATER if any(group.at_risk is not None for group in groups) else ""
    if later:
        who = "each runs" if len(groups) > 1 else "it runs"
        lines.append(
            ((f"Or {who} on until its next checkpoint is there, {_WITHIN} at most, and stops then.", line.TEXT),)
        )
    if ended:
        verbs = ("has", "is") if ended == 1 else ("have", "are")
        lines.append(((f"{ended} marked {verbs[0]} ended already and {verbs[1]} left alone.", line.DIM),))
    name = f"Stop {len(groups)} groups" if len(groups) > 1 else "Stop this group"
    return Question(name, tuple(lines), "stop", later)


def pause_question(groups: "Sequence[Group]", others: int, now_ms: int, cells: int) -> Question:
    """others: chosen ones that do not run."""
    lines = _chosen(groups, now_ms, cells)
    lines += _ranks_end(groups)
    lines.append((("They keep their place in line, and their checkpoint path, until they are resumed.", line.TEXT),))
    lines.append(((f"A script that saves on SIGTERM loses nothing{_hours(groups, now_ms, ', else')}.", line.TEXT),))
    if others:
        lines.append(((f"{_left_alone(others)}: only what runs can be paused.", line.DIM),))
    name = f"Pause {len(groups)} groups" if len(groups) > 1 else "Pause this group"
    return Question(name, tuple(lines), "pause")


def resume_question(groups: "Sequence[Group]", others: int, now_ms: int, cells: int) -> Question:
    """others: chosen ones that are not paused."""
    lines = _chosen(groups, now_ms, cells)
    lines.append((("Each waits again at its old place, before what was submitted later.", line.TEXT),))
    lines += _begins(groups)
    if others:
        lines.append(((f"{_left_alone(others)}: not paused.", line.DIM),))
    name = f"Resume {len(groups)} groups" if len(groups) > 1 else "Resume this group"
    return Question(name, tuple(lines), "resume")


def _chosen(groups: "Sequence[Group]", now_ms: int, cells: int) -> list[Line]:
    lines = _group_lines(groups[:SHOWN], now_ms, cells)
    if len(groups) > SHOWN:
        lines.append((((f"and {len(groups) - SHOWN} more"), line.DIM),))
    return [*lines, line.EMPTY]


def _ranks_end(groups: "Sequence[Group]") -> list[Line]:
    cards = sum(group.gpus or 0 for group in groups)
    return [
        (("Ranks get SIGTERM and their grace to save, then are killed.", line.TEXT),),
        ((f"{number(cards)} cards come free.", line.TEXT),),
    ]


def _begins(groups: "Sequence[Group]") -> list[Line]:
    """A list does not know who has a checkpoint_path, and who saved there."""
    if any(group.task_type == TRAINING for group in groups):
        return [(("Training goes on from its newest complete checkpoint; without one it begins at zero.", line.TEXT),)]
    return [(("What is no training begins anew.", line.TEXT),)]


def _left_alone(count: int) -> str:
    return f"{count} marked {'is' if count == 1 else 'are'} left alone"


def _hours(groups: "Sequence[Group]", now_ms: int, before: str = ":") -> str:
    risks = [group.at_risk for group in groups if group.at_risk is not None]
    hours = sum(risk.gpu_hours(now_ms) for risk in risks)
    return f"{before} {hours_text(hours)} GPU-hours now" if risks else ""


def resubmit_question(group: "Group") -> Question:
    lines: list[Line] = [
        ((group.name, line.STRONG), (f"  {group.id}", line.DIM)),
        line.EMPTY,
        (("The same document is submitted as a new group, behind all that waits.", line.TEXT),),
        *_begins([group]),
    ]
    return Question("Submit once more", tuple(lines), "submit")


def node_question(what: str, node_id: str, groups: "Sequence[str]", simple: bool) -> Question:
    """what: cordon, uncordon or drain. groups: names of those on the node. simple: no drain is called off by it."""
    lines: list[Line] = [((node_id, line.STRONG),), line.EMPTY]
    many = f"{len(groups)} group{'' if len(groups) == 1 else 's'}"
    named = ", ".join(groups[:3]) + (f" and {len(groups) - 3} more" if len(groups) > 3 else "")
    if what == "cordon":
        lines.append((("Nothing new starts there until it is uncordoned.", line.TEXT),))
        lines.append(((f"What runs there goes on: {named}." if groups else "Nothing runs there.", line.TEXT),))
    elif what == "uncordon":
        lines.append((("Groups are placed there again.", line.TEXT),))
        lines += [] if simple else [(("Its drain or maintenance window ends.", line.TEXT),)]
    else:
        lines.append((("Nothing new starts there until it is uncordoned.", line.TEXT),))
        lines.append(((f"Moved now: {many}{f' ({named})' if groups else ''}.", line.TEXT),))
        lines += [
            (("Ranks get SIGTERM and their grace to save, also on other nodes; then each group", line.TEXT),),
            (("waits at its old place and goes on from its newest checkpoint elsewhere.", line.TEXT),),
        ] * bool(groups)
    return Question(f"{what[:1].upper()}{what[1:]} this node", tuple(lines), what)


def _ran(said: str) -> Span:
    return (f"ran {said}" if said != UNKNOWN else "", line.DIM)


def _at_stake(group: "Group", now_ms: int) -> Span:
    """Of each where there are several; of one the sum below says it."""
    assert group.at_risk is not None
    return (f"{hours_text(group.at_risk.gpu_hours(now_ms))} GPU-h", line.TEXT)


def _group_lines(groups: "Sequence[Group]", now_ms: int, cells: int) -> list[Line]:
    """Columns as wide as what they hold; the name has what is left."""
    rows = []
    for group in groups:
        mark, ran = group_mark(group.status), run_time(group, now_ms)
        rows.append(
            (
                (mark.text, mark.tone),
                (group.name, line.STRONG),
                (group.id, line.DIM),
                (f"{number(group.gpus)} GPU", line.TEXT),
                _at_stake(group, now_ms) if len(groups) > 1 and group.at_risk is not None else _ran(ran),
            )
        )
    widths = [max(width(row[at][0]) for row in rows) for at in range(len(rows[0]))]
    widths[_NAME] = max(min(widths[_NAME], cells - sum(widths) + widths[_NAME] - _GAP * (len(widths) - 1)), 8)
    return [
        joined(
            (cell(text, wide, tone, right=at == _CARDS),)
            for at, ((text, tone), wide) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]

"""One group in full: where it is, the failure explained above and as recorded below, ranks, configuration, events."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.core import line
from console.core.event_lines import event_log
from console.core.failure_advice import advice
from console.core.format import UNKNOWN, age, folded_nodes, number, plain_value, text_or_dash
from console.core.group_list import Progress, mark_and_why, run_time
from console.core.line import Line, hung, joined, wrapped
from console.core.marks import QUIET, STALLED
from console.core.newest_line import newest_line
from console.core.queue_list import waiting_lines
from console.core.rank_table import RankNow, odd_line, rank_head, rank_lines
from console.core.risk_line import risk_line
from schemas.instants import iso_utc
from schemas.rules.redaction import REDACTED, is_secret_name
from schemas.states import GROUP_STATUSES
from schemas.task_types import TRAINING

if TYPE_CHECKING:
    from console.store.curve_store import CurveStore
    from console.store.group_store import GroupStore
    from console.store.rows import Group

RANKS_SHOWN = 64
_NAME_CELLS = 20


def detail_lines(
    group: "Group",
    known: "GroupStore | None",
    curves: "CurveStore",
    ranks: Mapping[int, RankNow],
    progress: Progress | None,
    now_ms: int,
    cells: int,
) -> list[Line]:
    row = known.row if known is not None else {}
    tasks = known.ranks(group.attempt) if known is not None else []
    lines = [line.EMPTY, *_banner(group, curves, progress, odd_line(tasks, ranks), now_ms, cells)]
    if risk := risk_line(group, row, now_ms):
        lines.append(line.cut(((" ", line.TEXT), *risk), cells))
    lines.append(line.EMPTY)
    lines += _failure(group, row, cells)
    lines += _waiting(group, cells)
    if known is None or not known.loaded:
        return [*lines, ((" loading ranks, configuration and events …", line.DIM),)]
    lines += _warnings(row, cells)
    lines += _ranks(group, known, ranks, now_ms, cells)
    lines += _basics(group, row, now_ms, cells)
    lines += _configuration(row.get("document") or {}, cells)
    lines += _events(known, now_ms, cells)
    return lines


def _title(text: str, cells: int, aside: str = "") -> Line:
    head: Line = ((" ", line.TEXT), (text, line.TITLE), (f"  {aside}" if aside else "", line.DIM), (" ", line.TEXT))
    return (*head, ("─" * max(cells - line.line_width(head) - 1, 0), line.RULE))


def _banner(
    group: "Group", curves: "CurveStore", progress: Progress | None, odd: str, now_ms: int, cells: int
) -> list[Line]:
    """odd: which ranks do what the others do not; said where no step comes."""
    mark, why = mark_and_why(group, progress)
    meaning = GROUP_STATUSES.get(group.status, "a status this version does not know")
    parts: list[Line] = [((f" {mark.text}", mark.tone),)]
    if group.started_ms is not None:
        parts.append((("ran " if group.terminal else "running ", line.DIM), (run_time(group, now_ms), line.TEXT)))
    if mark is not STALLED:
        parts.append(((meaning, line.DIM),))
    lines = [joined(parts, (" · ", line.RULE))]
    if mark in (STALLED, QUIET):
        lines += [((f" {text}", mark.tone),) for said in (why, odd) if said for text in wrapped(said, cells - 2)]
    said = newest_line(curves if curves.group_id == group.id else None, progress, now_ms)
    if said:
        lines.append(((" ", line.TEXT), *said))
    elif curves.group_id == group.id and group.started_ms is not None:
        lines.append(((f" step {UNKNOWN}   loss {UNKNOWN}   {curves.empty_text}", line.DIM),))
    return [line.cut(item, cells) for item in lines]


def _failure(group: "Group", row: Mapping[str, Any], cells: int) -> list[Line]:
    if not group.failure:
        return []
    raw = row.get("failure") or {}
    lines = [_title("What went wrong", cells)]
    meaning, next_step = advice(str(raw.get("class") or ""), raw.get("exit_code"), raw.get("signal"))
    tone = line.BAD if group.status == "failed" else line.WARN
    lines += [((f" {text}", tone),) for text in wrapped(meaning if raw else group.failure, cells - 2)]
    lines += [((f" {text}", line.TEXT),) for text in wrapped(f"Next: {next_step}", cells - 2)] if raw else []
    lines += [((f" {text}", line.DIM),) for text in wrapped(f"As recorded: {group.failure}", cells - 2)]
    known = [f"{name} {raw[name]}" for name in ("class", "rank", "exit_code", "signal") if raw.get(name) is not None]
    if known:
        lines.append(((" " + " · ".join(known).replace("_", " "), line.DIM),))
    return [*lines, line.EMPTY]


def _waiting(group: "Group", cells: int) -> list[Line]:
    if group.status != "pending":
        return []
    return [_title("Why it waits", cells), *waiting_lines(group, cells), line.EMPTY]


def _warnings(row: Mapping[str, Any], cells: int) -> list[Line]:
    warnings = [item for item in row.get("warnings") or [] if isinstance(item, Mapping)]
    if not warnings:
        return []
    lines = [_title("Warnings", cells)]
    for item in warnings:
        lines += [((f" {text}", line.WARN),) for text in wrapped(str(item.get("message") or ""), cells - 2)]
        lines += [((f"   {text}", line.DIM),) for text in wrapped(str(item.get("hint") or ""), cells - 4)]
    return [*lines, line.EMPTY]


def _ranks(group: "Group", known: "GroupStore", ranks: Mapping[int, RankNow], now_ms: int, cells: int) -> list[Line]:
    if not group.attempt:
        return []
    tasks = known.ranks(group.attempt)
    lines = [_title("Ranks", cells, f"attempt {group.attempt}: {len(tasks)} on {folded_nodes(group.nodes)}")]
    lines.append(((" ", line.TEXT), *rank_head(tasks, ranks, cells - 2)))
    lines += [((" ", line.TEXT), *item) for item in rank_lines(tasks, ranks, now_ms, cells - 2, RANKS_SHOWN)]
    return [*lines, line.EMPTY]


def _basics(group: "Group", row: Mapping[str, Any], now_ms: int, cells: int) -> list[Line]:
    master = row.get("master") or {}
    resume, parent = row.get("resume") or {}, row.get("parent") or {}
    rebuilt = f", built again {row['rebuild'].get('total')} times" if row.get("rebuild") else ""
    said = (
        f"{iso_utc(group.created_ms)[:19].replace('T', ' ')} UTC, {age(group.created_ms, now_ms)} ago"
        if group.created_ms
        else UNKNOWN
    )
    resumed = (
        f"step {number(resume.get('step'))} in {resume.get('path')}"
        if resume
        else "no: it began at zero"
        if group.started_ms
        else UNKNOWN
    )
    service = group.task_type != TRAINING
    listens = _listens(row) if group.status in ("starting", "running") else ""
    facts = [
        ("id", group.id),
        *([("type", group.task_type)] if service else []),
        *([("listens on", listens)] if listens else []),
        ("submitted", said),
        ("by", f"{text_or_dash(group.user)}, tenant {text_or_dash(group.tenant)}"),
        (
            "attempts",
            f"{group.attempt}, {_restarts(group.restarts)}, {text_or_dash(row.get('rollbacks'))} rollbacks{rebuilt}",
        ),
        ("resumed", resumed),
        ("master", f"{master.get('addr') or UNKNOWN}:{master.get('port') or UNKNOWN}" if master else UNKNOWN),
        ("checkpoints", text_or_dash(row.get("checkpoint_path"))),
        ("resubmit of", text_or_dash(row.get("resubmit_of"))),
        *([("parent", f"{parent.get('group_id')}: {parent.get('path')}")] if parent else []),
    ]
    return [_title("Group", cells), *(part for fact in facts for part in _fact(*fact, cells)), line.EMPTY]


def _listens(row: Mapping[str, Any]) -> str:
    """Of every rank the ports that its document names."""
    ports = ((row.get("document") or {}).get("task") or {}).get("ports") or {}
    hosts = [f"[{host}]" if ":" in str(host) else str(host) for host in row.get("addresses") or []]
    return ", ".join(f"{name} {host}:{port}" for host in hosts for name, port in ports.items())


def _fact(name: str, value: str, cells: int, depth: int = 0) -> list[Line]:
    # A long name takes the room that it needs, and is still apart from its value.
    name_cells = max(_NAME_CELLS - 2 * depth, len(name) + 1)
    return hung(((f" {'  ' * depth}{name:<{name_cells}}", line.DIM),), value, line.TEXT, cells)


def _configuration(document: Mapping[str, Any], cells: int) -> list[Line]:
    lines = [_title("Configuration as accepted", cells)]
    lines += _mapping(document, 0, cells)
    return [*(line.cut(item, cells) for item in lines), line.EMPTY]


def _mapping(document: Mapping[str, Any], depth: int, cells: int) -> list[Line]:
    lines: list[Line] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            lines += [((f" {'  ' * depth}{name}", line.DIM),), *_mapping(value, depth + 1, cells)]
        else:
            # Screens are shared; `heteroflow clone` has the value for who needs it.
            shown = REDACTED if is_secret_name(str(name)) else plain_value(value)
            lines += _fact(str(name), shown, cells, depth)
    return lines


def _events(known: "GroupStore", now_ms: int, cells: int) -> list[Line]:
    return [_title("Events", cells, "UTC, newest first"), *event_log(known.events, now_ms, cells)]


def _restarts(count: int) -> str:
    return "1 restart" if count == 1 else f"{count} restarts"

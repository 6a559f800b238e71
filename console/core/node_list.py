"""Nodes as lines of a list, and as a map of their cards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from console.core import line
from console.core.columns import Column, Layout, fitted, laid_out
from console.core.format import UNKNOWN, age, number, width
from console.core.line import Line, Span, cell, flowed, headed, joined, wrapped
from console.core.marks import node_mark
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.store.gossip import GossipSeen
    from console.store.rows import Hold, Node, OutOfService

LOW_UTIL = 5.0
FILTER_FIELDS = ("state", "node", "type", "group", "runtime", "version", "free", "gossip")
FREE, HELD, RELEASING = "free", "held", "releasing"
# A glyph for each state, because colour alone is not enough.
CARD_GLYPHS = {FREE: ("·", line.DIM), HELD: ("▇", line.GOOD), RELEASING: ("▚", line.WARN)}

_COLUMNS = (
    Column("node", "NODE", 10, 24, 9, grows=1),
    Column("state", "STATE", 8, 8, 9),
    Column("cards", "CARDS", 5, 16, 8, grows=2),
    Column("free", "FREE", 7, 7, 7, right=True),
    Column("type", "TYPE", 6, 14, 5, grows=3),
    Column("roles", "ROLE", 6, 6, 4),
    Column("host", "HOST", 12, 16, 2),
    Column("since", "UP", 6, 6, 3, right=True),
    # On narrow terminals there is no room for it: where it matters, RANKS OF says it too.
    Column("gossip", "GOSSIP", 7, 7, 1),
    Column("what", "RANKS OF", 12, 400, 8, grows=9),
)


def layout(cells: int, cards: int, troubled: bool, widths: Mapping[str, int]) -> Layout:
    """cards: the most that a node has. troubled: whether gossip sees anyone in another state than alive. widths: of
    what stands in some columns, as `text_widths` counts them."""
    wide = min(max(cards, 5), 16)
    columns = [
        replace(column, least=wide, most=wide) if column.name == "cards" else column
        for column in _COLUMNS
        if troubled or column.name != "gossip"
    ]
    return laid_out(fitted(columns, widths), cells - 2)


def text_widths(nodes: "Iterable[Node]") -> dict[str, int]:
    widths = {"node": 0, "type": 0, "host": 0, "roles": 0}
    for node in nodes:
        texts = {"node": node.id, "type": _kinds(node), "host": _host(node), "roles": _role(node, True)}
        for name, text in texts.items():
            widths[name] = max(widths[name], width(text))
    return widths


def node_in_full(
    node: "Node",
    holds: "Sequence[Hold]",
    names: Mapping[str, str],
    utils: Mapping[str, float | None],
    leader: bool,
    now_ms: int,
    gossip: "GossipSeen",
    cells: int,
) -> list[Line]:
    """Each card by itself, and what the last column had no room for."""
    mark = node_mark(node.state, node.service)
    since = "lost" if node.state == "lost" else "joined"
    at_ms = node.lost_ms if node.state == "lost" else node.joined_ms
    facts: list[Line] = [
        ((mark.text, mark.tone),),
        ((f"{since} {age(at_ms, now_ms)} ago", line.TEXT),),
        ((_role(node, leader) if node.voter else "no voter", line.TEXT),),
        ((f"{len(node.cards)} x {_kinds(node)}", line.TEXT),) if node.cards else (("no cards", line.TEXT),),
        ((_host(node), line.TEXT),),
        ((f"{node.runtime} runtime, version {node.version or UNKNOWN}", line.DIM),),
        ((f"lost {node.losses} times so far", line.WARN),) if node.losses else (),
    ]
    told = flowed([fact for fact in facts if fact], cells - 1, 3)
    lines = [headed(node.id, node.api_addr, cells), *(((" ", line.TEXT), *item) for item in told)]
    said = [f"{at} {utils[uuid]:.0f} %" for at, (uuid, _) in enumerate(node.cards) if utils.get(uuid) is not None]
    if said:
        lines.append(((" busy by card: ", line.DIM), ("   ".join(said), line.TEXT)))
    what, tone = _what(node, holds, names, gossip)
    lines += [((f" {text}", line.TEXT if tone == line.DIM else tone),) for text in wrapped(what, cells - 2) if text]
    return lines


def _kinds(node: "Node") -> str:
    return "|".join(sorted({kind for _, kind in node.cards})) or UNKNOWN


def _host(node: "Node") -> str:
    memory = f"{node.memory_mb // 1024} GB" if node.memory_mb is not None else ""
    return f"{number(node.cpus)} cpu {memory}".strip()


def _role(node: "Node", leader: bool) -> str:
    """leader: whether it is the one, or may become it."""
    return "leader" if leader and node.voter else "voter" if node.voter else UNKNOWN


_LEVELS = "▁▂▃▄▅▆▇▇"


def card_glyph(state: str, util: float | None) -> Span:
    """A card in use is as high as it is busy, where that is known."""
    glyph, tone = CARD_GLYPHS[state]
    if state != HELD or util is None:
        return (glyph, tone)
    return (_LEVELS[min(max(int(util / 12.5), 0), 7)], line.WARN if util < LOW_UTIL else tone)


def card_states(node: "Node", holds: "Sequence[Hold]") -> list[str]:
    held: dict[str, str] = {}
    for hold in holds:
        held |= dict.fromkeys(hold.cards, RELEASING if hold.releasing else HELD)
    return [held.get(uuid, FREE) for uuid, _ in node.cards]


def card_spans(
    node: "Node", states: Sequence[str], utils: Mapping[str, float | None], lost: bool = False
) -> list[Span]:
    """Cards of one tone next to each other in one piece."""
    spans: list[Span] = []
    for (uuid, _), state in zip(node.cards, states, strict=True):
        glyph, tone = card_glyph(state, utils.get(uuid))
        tone = line.RULE if lost else tone
        if spans and spans[-1][1] == tone:
            spans[-1] = (spans[-1][0] + glyph, tone)
        else:
            spans.append((glyph, tone))
    return spans


def node_line(
    shape: Layout,
    node: "Node",
    holds: "Sequence[Hold]",
    names: Mapping[str, str],
    utils: Mapping[str, float | None],
    leader: bool,
    now_ms: int,
    here: bool,
    gossip: "GossipSeen",
) -> Line:
    states = card_states(node, holds)
    mark = node_mark(node.state, node.service)
    lost = node.state == "lost"
    spans: list[Span] = [("▌ " if here else "  ", line.ACCENT)]
    for at, (column, wide) in enumerate(shape.columns):
        if at:
            spans.append(("  ", line.TEXT))
        if column.name == "cards":
            spans += line.exactly(tuple(card_spans(node, states, utils, lost)), wide)
            continue
        text, tone = _cell(column.name, node, states, holds, names, leader, now_ms, here, gossip)
        if column.name == "state":
            text, tone = mark.text, mark.tone
        spans.append(cell(text, wide, tone, column.right))
    return tuple(spans)


def _cell(
    name: str,
    node: "Node",
    states: Sequence[str],
    holds: "Sequence[Hold]",
    names: Mapping[str, str],
    leader: bool,
    now_ms: int,
    here: bool,
    gossip: "GossipSeen",
) -> Span:
    quiet = line.DIM if node.state == "lost" else line.TEXT
    if name == "node":
        return (node.id, line.STRONG if here else quiet)
    if name == "free":
        # Nothing can start on a host that is lost, however its cards stood.
        known = states and node.state != "lost"
        return (f"{states.count(FREE)}/{len(states)}" if known else UNKNOWN, quiet)
    if name == "type":
        return (_kinds(node), quiet)
    if name == "roles":
        return (_role(node, leader), line.ACCENT if leader else line.DIM)
    if name == "host":
        return (_host(node), line.DIM)
    if name == "since":
        return (age(node.lost_ms if node.state == "lost" else node.joined_ms, now_ms), line.DIM)
    if name == "gossip":
        seen = gossip.states.get(node.id, "")
        return (seen or UNKNOWN, line.DIM if seen in ("", "alive") or node.state == "lost" else line.WARN)
    if name == "what":
        return _what(node, holds, names, gossip)
    return ("", quiet)


def _what(node: "Node", holds: "Sequence[Hold]", names: Mapping[str, str], gossip: "GossipSeen") -> Span:
    difference = gossip.differences.get(node.id, "")
    if node.state == "lost":
        return (difference or node.reason or "nothing was heard from it", line.BAD)
    if node.engine_down:
        return (f"no containers: {node.engine_down}", line.WARN)
    groups: dict[str, int] = {}
    cleaning = 0
    for hold in holds:
        if hold.releasing:
            cleaning += len(hold.cards)
        else:
            groups[hold.group_id] = groups.get(hold.group_id, 0) + 1
    if node.service is not None:
        left = len({hold.group_id for hold in holds})
        return (service_line(node.service, left), line.WARN)
    said = [names.get(group_id, group_id) for group_id in sorted(groups)]
    text = ", ".join(said[:3]) + (f" and {len(said) - 3} more" if len(said) > 3 else "")
    if cleaning:
        text = f"{text}  {cleaning} cards are being cleaned".strip()
    if node.gpu_backend == "simulated":
        text = f"{text}  simulated cards".strip()
    if difference:
        return (f"{difference}  {text}".strip(), line.WARN)
    return (text, line.DIM)


def service_line(service: "OutOfService", left: int) -> str:
    """left: groups that still have something there."""
    by = f"by {service.by}" + (f": {service.reason}" if service.reason else "")
    if service.drained is None:
        stay = f"; {left} groups stay" if left else ""
        return f"cordoned {by}{stay}"
    if service.empty:
        return f"drained {by}"
    until = f" until {_clock(service.until_ms)}" if service.until_ms is not None else ""
    total = max(service.drained, left)
    return f"draining{until}, {left} of {total} group{'' if total == 1 else 's'} left, {by}"


def _clock(at_ms: int) -> str:
    iso = iso_utc(at_ms)
    return f"{iso[5:10]} {iso[11:16]} UTC"


def node_summary(nodes: "Sequence[Node]", used: int, total: int, gossip: "GossipSeen") -> Line:
    ready = sum(node.state == "ready" for node in nodes)
    out = sum(node.service is not None for node in nodes)
    kinds: dict[str, int] = {}
    for node in nodes:
        for _, kind in node.cards:
            kinds[kind] = kinds.get(kind, 0) + 1
    parts: list[Line] = [
        (("R ", line.GOOD), (f"{ready:,} ", line.TEXT), ("ready", line.DIM)),
        (("✖ ", line.BAD), (f"{len(nodes) - ready:,} ", line.TEXT), ("lost", line.DIM)) if ready < len(nodes) else (),
        (("? ", line.WARN), (", ".join(gossip.strangers[:2]), line.TEXT), (" not registered", line.DIM))
        if gossip.strangers
        else (),
        ((f"{out:,} ", line.WARN), ("out of service", line.DIM)) if out else (),
        ((f"{used:,}/{total:,} ", line.TEXT), ("cards in use", line.DIM)),
        *(((f"{count:,} ", line.TEXT), (kind, line.DIM)) for kind, count in sorted(kinds.items())[:4]),
        *(((f"{glyph} ", tone), (state, line.DIM)) for state, (glyph, tone) in CARD_GLYPHS.items()),
    ]
    return ((" ", line.TEXT), *joined([part for part in parts if part], ("   ", line.TEXT)))


def map_cell_width(nodes: "Sequence[Node]") -> int:
    names = max((len(node.id) for node in nodes), default=6)
    cards = max((len(node.cards) for node in nodes), default=1)
    return min(names, 20) + 1 + min(cards, 16) + 1 + 5 + 2


def map_cell(
    node: "Node", holds: "Sequence[Hold]", utils: Mapping[str, float | None], names_wide: int, wide: int, here: bool
) -> Line:
    """`gpu-01 ▇▇▇▇···· 4`: its cards, and how many of them are free."""
    name = cell(node.id, names_wide, line.STRONG if here else line.TEXT)
    if node.state == "lost":
        rest: Line = (("✖ lost", line.BAD),)
    else:
        states = card_states(node, holds)
        free = states.count(FREE)
        rest = (*card_spans(node, states, utils), (f" {free or '':>2}", line.DIM))
    return line.exactly((("▌" if here else " ", line.ACCENT), name, (" ", line.TEXT), *rest), wide)

"""The consensus of the mesh as lines: voters with their lag, the log, and the attached agent."""

from collections.abc import Mapping
from typing import Any

from console.core import line
from console.core.columns import Column, Layout, fitted, laid_out
from console.core.format import UNKNOWN, coarse, number, text_or_dash, width
from console.core.line import Line, joined

_COLUMNS = (
    Column("voter", "VOTER", 10, 24, 9, grows=2),
    Column("role", "ROLE", 8, 8, 8),
    Column("link", "LINK", 11, 11, 8),
    Column("match", "LOG", 10, 13, 6, right=True, grows=3),
    Column("lag", "LAG", 8, 10, 7, right=True, grows=4),
    Column("address", "ADDRESS", 14, 48, 3, grows=1),
)
LAG_WARN = 1000


def voter_ids(status: Mapping[str, Any]) -> list[str]:
    return [str(voter.get("raft_id")) for voter in _voters(status)]


def _voters(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((status.get("consensus") or {}).get("voters") or [])


def _shape(status: Mapping[str, Any], cells: int) -> Layout:
    names = [text_or_dash(voter.get("node")) for voter in _voters(status)]
    addresses = [text_or_dash(address) for address in _addresses(status).values()]
    widths = {
        "voter": max(map(width, names), default=0),
        "address": max(map(width, addresses), default=0),
    }
    return laid_out(fitted(_COLUMNS, widths), cells - 2)


def _addresses(status: Mapping[str, Any]) -> dict[str, Any]:
    return {str(item.get("raft_id")): item.get("voter_addr") for item in status.get("voters") or []}


def voter_head(status: Mapping[str, Any], cells: int) -> Line:
    return (("  ", line.TEXT), *_shape(status, cells).head())


def voter_line(status: Mapping[str, Any], raft_id: str, here: bool, cells: int) -> Line:
    consensus = status.get("consensus") or {}
    voter = next((item for item in _voters(status) if str(item.get("raft_id")) == raft_id), None)
    if voter is None:
        return line.EMPTY
    leader = voter.get("raft_id") == consensus.get("leader")
    answering = voter.get("raft_id") == consensus.get("raft_id")
    # Only the leader knows how far the others are.
    knows = consensus.get("role") == "leader" or answering
    match, last = voter.get("match"), consensus.get("last")
    lag = last - match if knows and isinstance(match, int) and isinstance(last, int) else None
    up = bool(voter.get("connected"))
    row = _shape(status, cells).row(
        {
            "voter": (text_or_dash(voter.get("node")), line.STRONG if here else line.TEXT),
            "role": ("leader" if leader else "follower", line.ACCENT if leader else line.DIM),
            "link": ("R answers" if up else "✖ no answer", line.GOOD if up else line.BAD),
            "match": (number(match) if knows else UNKNOWN, line.TEXT),
            "lag": (number(lag) if lag is not None else UNKNOWN, line.WARN if (lag or 0) > LAG_WARN else line.TEXT),
            "address": (text_or_dash(_addresses(status).get(raft_id)), line.DIM),
        }
    )
    return (("▌ " if here else "  ", line.ACCENT), *row)


def mesh_summary(status: Mapping[str, Any]) -> Line:
    consensus = status.get("consensus") or {}
    spare = consensus.get("spare")
    said = (
        ("no majority: nothing can be changed", line.BAD)
        if isinstance(spare, int) and spare < 0
        else ("one more loss ends the majority", line.WARN)
        if spare == 0
        else (f"{spare} more voter{'s' * (spare != 1)} may be lost", line.TEXT)
    )
    parts: list[Line] = [
        (("mesh ", line.DIM), (text_or_dash(status.get("cluster_id")), line.TEXT)),
        (("profile ", line.DIM), (text_or_dash(status.get("profile")), line.TEXT)),
        (("term ", line.DIM), (number(consensus.get("term")), line.TEXT)),
        (said,) if spare is not None else (),
        *_orders(status),
    ]
    return ((" ", line.TEXT), *joined([part for part in parts if part], ("   ", line.TEXT)))


def _orders(status: Mapping[str, Any]) -> list[Line]:
    """What operators ordered of the whole mesh, and stands."""
    paused, hold = status.get("scheduling_paused"), status.get("hold")
    said: list[Line] = []
    if isinstance(paused, Mapping):
        said.append(((f"scheduling paused {_by(paused)}", line.WARN),))
    if isinstance(hold, Mapping):
        left = coarse(hold["left_s"] * 1000) if isinstance(hold.get("left_s"), int) else UNKNOWN
        said.append(((f"held {_by(hold)}, {left} left", line.WARN),))
    return said


def _by(asked: Mapping[str, Any]) -> str:
    return f"by {asked.get('by')}" + (f" ({asked['reason']})" if asked.get("reason") else "")


def mesh_facts(status: Mapping[str, Any], age_s: float | None, cells: int) -> list[Line]:
    """Below the voters: the log as the answering voter has it, and the agent one is attached to."""
    consensus, agent = status.get("consensus") or {}, status.get("agent") or {}
    lease = agent.get("lease") or {}
    left = lease.get("left_ms")
    facts: list[tuple[str, str, str]] = [
        ("term", number(consensus.get("term")), line.TEXT),
        ("committed", number(consensus.get("commit")), line.TEXT),
        ("applied", number(consensus.get("applied")), line.TEXT),
        ("last in log", number(consensus.get("last")), line.TEXT),
        ("fsync p99", f"{consensus['fsync_p99_ms']:.1f} ms" if "fsync_p99_ms" in consensus else UNKNOWN, line.TEXT),
        ("waiting", number(consensus.get("waiting")), line.TEXT),
        ("feeds", number(consensus.get("subscribers")), line.TEXT),
        ("state hash", str(consensus.get("state_hash") or UNKNOWN)[:16], line.DIM),
        ("alarm", str(consensus.get("alarm") or "none"), line.BAD if consensus.get("alarm") else line.DIM),
        (
            "disk",
            "full" if consensus.get("disk_full") else "has room",
            line.BAD if consensus.get("disk_full") else line.DIM,
        ),
    ]
    own: list[tuple[str, str, str]] = [
        ("attached to", text_or_dash(agent.get("node_id")), line.TEXT),
        ("its role", text_or_dash(agent.get("role")), line.TEXT),
        ("it says", text_or_dash(agent.get("status")), line.TEXT),
        (
            "its lease",
            f"granted, {coarse(left)} left"
            if lease.get("granted") and isinstance(left, int)
            else str(lease.get("refusal") or "not granted"),
            line.TEXT if lease.get("granted") else line.WARN,
        ),
        *_gossip_facts(agent.get("gossip") or {}),
        ("read", f"{age_s:.0f} s ago" if age_s is not None else UNKNOWN, line.DIM),
    ]
    half = max((cells - 3) // 2, 20)
    other = max(cells - 3 - half, 10)
    left_lines = [part for fact in facts for part in _fact(*fact, half)]
    right_lines = [part for fact in own for part in _fact(*fact, other)]
    return line.beside(left_lines, right_lines, half, other, " ")


def _gossip_facts(gossip: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What it sees of the other agents. Packets are always dropped now and then; two of one name are for people."""
    members = gossip.get("members") or {}
    if not members:
        return []
    worst_first = ("dead", "suspect", "left", "alive")
    said = " · ".join(f"{members[state]} {state}" for state in worst_first if members.get(state))
    troubled = any(members.get(state) for state in ("suspect", "dead"))
    facts = [("it sees", said, line.WARN if troubled else line.TEXT)]
    if dropped := gossip.get("dropped"):
        facts.append(("dropped", " · ".join(f"{count} {reason}" for reason, count in dropped.items()), line.DIM))
    if conflict := gossip.get("conflict"):
        facts.append(("name conflict", str(conflict), line.BAD))
    return facts


def _fact(name: str, value: str, tone: str, cells: int) -> list[Line]:
    return line.hung(((f"  {name:<14}", line.DIM),), value, tone, cells)

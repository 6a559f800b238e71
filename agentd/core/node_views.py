"""The two views of the mesh, side by side: the log, which decides, and gossip, which is a hint."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Member = Mapping[str, Any]
_IN = ("alive", "suspect")


def differences(rows: Sequence[Row], members: Mapping[str, Member]) -> list[dict[str, str]]:
    """`{node_id, kind, text}`, by name. rows: of the log. members: `{state, since_s, addr, version, uid}` by name; uid
    is "" where a member does not say."""
    by_name = {row["node_id"]: row for row in rows}
    found = []
    for name in sorted({**by_name, **members}):
        kind, text = _difference(by_name.get(name), members.get(name))
        if kind:
            found.append({"node_id": name, "kind": kind, "text": text})
    return found


def _difference(row: Row | None, member: Member | None) -> tuple[str, str]:
    """What is odd stands first: a narrow terminal shows no more."""
    if row is None:
        if member is None or member["state"] not in _IN:
            return "", ""
        return "only_gossip", f"not registered, but a member of that name gossips from {member['addr']}"
    if member is None:
        if row["state"] == "lost":
            return "", ""
        return "only_log", "unknown to gossip here, but registered"
    return _of_both(row, member)


def _of_both(row: Row, member: Member) -> tuple[str, str]:
    state, since = member["state"], f"{member['since_s']:.0f} s"
    if row["state"] == "ready" and state == "dead":
        return "state", f"dead for {since}, says gossip; the mesh keeps it until its lease has run out"
    if row["state"] == "ready" and state == "left":
        return "state", f"stopped {since} ago, said its agent; the mesh keeps it until its lease has run out"
    if row["state"] == "lost" and state in _IN:
        return "state", f"{state} for {since}, says gossip; the mesh gave it up, and it rejoins without its old tasks"
    if state in _IN and member["uid"] and member["uid"] != row["uid"]:
        return "uid", f"two of one name: another installation than the registered one gossips from {member['addr']}"
    if state in _IN and member["addr"] != row["api_addr"]:
        return "addr", f"moved: registered at {row['api_addr']}, it gossips from {member['addr']}"
    if state in _IN and member["version"] != row["version"]:
        return "version", f"version {member['version']}, registered with {row['version']}"
    return "", ""

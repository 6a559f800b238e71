"""A node out of service, in words."""

from typing import Any


def service_notes(node: Any) -> list[str]:
    """node: as `/nodes` answers it."""
    notes: list[str] = []
    cordon, drain, window = node.get("cordon"), node.get("drain"), node.get("maintenance")
    if drain:
        notes.append(drain_text(drain))
    if cordon and not drain:
        notes.append(f"cordoned by {cordon['by']}" + _because(cordon))
    if window and window["open"]:
        notes.append(f"maintenance until {_at(window['until_at'])}")
    elif window:
        notes.append(f"maintenance {_at(window['from_at'])} to {_at(window['until_at'])}")
    return notes


def service_state(node: Any) -> str:
    """Of a node that is there: ready, or why it takes no groups."""
    drain = node.get("drain")
    if not node.get("cordon"):
        return "ready"
    return "cordoned" if not drain else "drained" if drain.get("done_at") else "draining"


def drain_text(drain: Any) -> str:
    left, groups = drain["left"], max(drain["groups"], drain["left"])
    if drain.get("done_at"):
        moved = f", {drain['moved']} moved" if drain["moved"] else ""
        return f"drained by {drain['by']}{_because(drain)}: {_groups(drain['groups'])} left it{moved}"
    until = f" until {_at(drain['deadline_at'])}" if drain["mode"] == "wait" else ""
    return f"draining{until}: {left} of {_groups(groups)} left, by {drain['by']}{_because(drain)}"


def _at(iso: str | None) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else "?"


def _groups(count: int) -> str:
    return f"{count} group{'' if count == 1 else 's'}"


def _because(asked: Any) -> str:
    return f" ({asked['reason']})" if asked.get("reason") else ""

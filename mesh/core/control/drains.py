"""What is due on nodes that operators take out of service: groups that have to leave, drains that are done, maintenance
windows that open or are over."""

from typing import Any

from mesh.core.control.view import View
from schemas.commands import command
from schemas.states import SCHEDULING

Commands = list[dict[str, Any]]


def drains(view: View, now_ms: int) -> Commands:
    """now_ms: comparable with the leader's stamps."""
    commands: Commands = []
    for node_id, drain, window in view.operated():
        turn = _turn(window, now_ms)
        if turn is not None:
            commands.append(command("TurnMaintenance", node_id=node_id, to=turn))
        elif drain and drain["done_ms"] is None:
            commands += _leaving(view, node_id, now_ms >= drain["deadline_ms"])
            if view.is_empty(node_id):
                commands.append(command("EndDrain", node_id=node_id))
    # A gang may stand on several nodes that are drained; it is moved once.
    moved: dict[str, dict[str, Any]] = {}
    rest = [proposal for proposal in commands if proposal["t"] != "MoveGroup"]
    for proposal in commands:
        if proposal["t"] == "MoveGroup":
            moved.setdefault(proposal["group_id"], proposal)
    return [*moved.values(), *rest]


def _turn(window: dict[str, Any], now_ms: int) -> str | None:
    if not window:
        return None
    if now_ms >= window["until_ms"]:
        return "over"
    return "open" if not window["open"] and now_ms >= window["from_ms"] else None


def _leaving(view: View, node_id: str, due: bool) -> Commands:
    """Nothing of an attempt in `scheduling` has run yet, so it need not wait for the deadline; and what never ends by
    itself gains nothing by waiting."""
    commands: Commands = []
    for group_id, attempt, endless in view.groups_on(node_id):
        young = view.attempts.get(group_id)
        if due or endless or (young is not None and young.status == SCHEDULING):
            commands.append(command("MoveGroup", group_id=group_id, attempt=attempt, node_id=node_id))
    return commands

"""How often a group is started again by itself: `training.recovery` of its document.

Lost nodes restart every group. A document that names `max_restarts` bounds that, and asks for restarts after failures
of the infrastructure too, by their class. What a program did itself never restarts it."""

from mesh.core.state.group import Group
from mesh.core.state.penalty import penalise
from mesh.core.state.retry import wait_again
from mesh.core.state.shape import Shape, shape_of
from schemas.rules.failure_classes import INFRASTRUCTURE, NODE_LOST
from schemas.states import ENDING_FAILED, RECOVERING, RUNNING, STARTING


def begin_restart(group: Group, why: str) -> bool:
    """Counts one after a lost host. False where they are spent: then the attempt ends as failed."""
    most = _shape(group).max_restarts
    if most is not None and group.row["restarts"] >= most:
        group.row["ending"] = ENDING_FAILED
        text = f"{why[:1].upper()}{why[1:]}"
        failure = {"class": NODE_LOST, "rank": None, "exit_code": None, "signal": None, "text": text}
        group.row["failure"] = {**failure, "at_ms": group.at_ms}
        return False
    group.row["restarts"] += 1
    return True


def restarts_spent(group: Group) -> str:
    most = _shape(group).max_restarts
    return f"Its {most} restarts are spent." if most else "It asked for no restart."


def after_failure(group: Group) -> str | None:
    """Every rank of a failed attempt is gone. None where the group was put back into the queue, else what to add to the
    words about its failure."""
    shape, failure = _shape(group), group.row["failure"] or {}
    if shape.max_restarts is None:
        return ""
    if group.status == RECOVERING:
        return f" {restarts_spent(group)}"
    named = failure.get("class")
    if group.status not in (STARTING, RUNNING) or named not in INFRASTRUCTURE or named not in shape.restart_on:
        return ""
    if group.row["restarts"] >= shape.max_restarts:
        return f" {restarts_spent(group)}"
    group.row["restarts"] += 1
    node = group.row["nodes"][failure["rank"]] if failure.get("rank") is not None else None
    # It may be sick: the next attempt goes elsewhere where it can, and here only after a rest.
    penalise(group.store, node, group.at_ms)
    number = f"restart {group.row['restarts']} of {shape.max_restarts}"
    group.move(
        RECOVERING,
        f"Recovering ({number}, after {named}): {failure.get('text', 'the infrastructure failed it.')}",
        rank=failure.get("rank"),
        node=node,
        failure_class=named,
    )
    group.row["failure"] = None
    wait_again(group, f"Waiting again at its old place: every rank of attempt {group.attempt} is gone.")
    return None


def _shape(group: Group) -> Shape:
    shape = shape_of(group.row["document"])
    assert isinstance(shape, Shape)
    return shape

"""Moves a group as far as the facts about its ranks allow. Called after every command that changed a rank."""

from typing import Any

from mesh.core.state.failure import MESH_CLOCK
from mesh.core.state.group import Group
from mesh.core.state.lease_hold import KEY as HOLD
from mesh.core.state.rebuild import rebuild
from mesh.core.state.restarts import after_failure, begin_restart, restarts_spent
from mesh.core.state.retry import NODES_OWN, note_fruitless, wait_again
from schemas.limits import DEFAULT_PROFILE, EXPIRY_DELAY_MS, PROFILES
from schemas.states import (
    COMPLETED,
    ENDING_FAILED,
    ENDING_PAUSED,
    ENDING_RECOVERING,
    ENDING_ROLLBACK,
    ENDING_STOPPED,
    EXITED,
    FAILED,
    PAUSED,
    PENDING,
    PLACED,
    RECOVERING,
    RUNNING,
    SCHEDULING,
    STARTING,
    STOPPED,
    STOPPING,
)

SAME_TIME_MS = 5_000
"""Longer than peers and reports take, shorter than what one could take for the order of two separate faults."""


def settle(group: Group) -> None:
    advance(group)
    finish(group)


def advance(group: Group) -> None:
    """Forward, as far as the ranks are."""
    if group.row["ending"] is not None:
        return
    world = group.world()
    if group.status == SCHEDULING and group.count(RUNNING, EXITED) > 0:
        # Only where reports overtook one another: a process proves that the attempt was started.
        group.move(STARTING, f"Attempt {group.attempt} is starting: a rank reported its process.")
    if group.status == STARTING and group.count(RUNNING, EXITED) == world:
        group.row["phase_deadline_tries"] = 0
        group.move(RUNNING, f"Attempt {group.attempt} is running: {world} of {world} ranks started.")


def finish(group: Group) -> None:
    """To its end, once every rank is gone."""
    if group.status not in PLACED or not group.gone():
        return
    ending, source = group.row["ending"], group.status
    group.row["ending"] = None
    if ending is None:
        group.move(COMPLETED, f"Completed: all {group.world()} ranks exited 0.")
    elif ending == ENDING_FAILED:
        # Only now, as the cause that was seen first may have been a consequence of another.
        spent = after_failure(group)
        if spent is None:
            return
        failure = group.row["failure"] or {}
        group.move(
            FAILED,
            f"Failed: {failure.get('text', 'a rank failed')}{spent}",
            rank=failure.get("rank"),
            failure_class=failure.get("class"),
        )
        rebuild(group, source)
    elif ending == ENDING_STOPPED:
        group.move(STOPPED, f"Stopped: every rank of attempt {group.attempt} is gone.")
    elif ending == ENDING_PAUSED:
        group.move(PAUSED, f"Paused: every rank of attempt {group.attempt} is gone. It keeps its place until resumed.")
    elif group.status == RECOVERING:
        wait_again(group, f"Waiting again at its old place: every rank of attempt {group.attempt} is gone.")


def fail(group: Group, failure: dict[str, object], kind: str = "root_failure") -> None:
    """The first failure of an attempt decides: its siblings are stopped, later exits are consequences. kind: of the
    event; a failure without a rank is one of the whole group."""
    group.row["ending"] = ENDING_FAILED
    group.row["failure"] = {**failure, "at_ms": group.at_ms}
    rank = failure["rank"]
    assert rank is None or isinstance(rank, int)
    group.event(
        kind,
        f"{_sentence(failure['text'])}{_being_stopped(group, 'The ranks' if rank is None else 'The other ranks')}",
        rank=rank,
        failure_class=failure["class"],
    )
    group.order_stop()


def _sentence(text: object) -> str:
    """Programs and engines say what went wrong without a full stop."""
    said = str(text)
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _being_stopped(group: Group, who: str = "The other ranks") -> str:
    return "" if group.gone() else f" {who} are being stopped."


def blame_earlier(group: Group, failure: dict[str, Any]) -> None:
    """When a rank fails, its peers lose it and fail too, and the reports of two hosts arrive in any order: a host that
    is slow to tell may be minutes behind. So the failure that came first is named. Where only the hosts' own clocks
    say so, it must be about the same time, since a clock that is off by more orders nothing."""
    known = group.row["failure"]
    if known is None or known.get("exit_ms") is None or failure["exit_ms"] is None:
        return
    earlier_ms = known["exit_ms"] - failure["exit_ms"]
    by_mesh = known.get("exit_clock") == failure["exit_clock"] == MESH_CLOCK
    near = earlier_ms <= SAME_TIME_MS and group.at_ms - known["at_ms"] <= SAME_TIME_MS
    if earlier_ms > 0 and (by_mesh or near):
        group.row["failure"] = {**failure, "at_ms": known["at_ms"]}
        group.event(
            "root_failure",
            f"{failure['text']} That was {earlier_ms} ms before rank {known['rank']}.",
            rank=failure["rank"],
            failure_class=failure["class"],
        )


def failure_follows_loss(group: Group) -> bool:
    """Whether the failure of this attempt came while the host that is lost, or fenced, now was silent already.

    When a host dies or fences its ranks, those elsewhere lose their peer within a second and exit as if their code had
    failed, long before the lease proves the loss. A host is lost after T_lease of silence at least, so what failed in
    that time failed after the host fell silent: a consequence. What failed earlier failed beside a living host, by its
    own fault.
    """
    failure = group.row["failure"]
    if group.row["ending"] != ENDING_FAILED or failure is None or failure["rank"] is None:
        return False  # no rank failed: it ran, or stood still, for as long as it may
    cluster = group.store.get("meta", "cluster")
    profile = PROFILES[cluster["profile"] if cluster is not None else DEFAULT_PROFILE]
    silence_ms = profile.t_lease_ms + EXPIRY_DELAY_MS
    hold = group.store.get("meta", HOLD)
    if hold is not None and (hold["over_ms"] is None or group.at_ms - hold["over_ms"] <= silence_ms):
        # Nobody is given up during a hold, so the host may be silent since it began.
        silence_ms = max(silence_ms, group.at_ms - hold["since_ms"])
    return bool(group.at_ms - failure["at_ms"] <= silence_ms)


def recover(group: Group, why: str, node: str | None) -> None:
    """The attempt ends through no fault of the user's code. Before any start it goes straight back to the queue."""
    if group.row["failure"] is not None:
        why += " The failure seen before was a consequence of it."
        group.row["failure"] = None
    if group.status == SCHEDULING:
        roll_back(group, "node_lost", why, node)
        return
    if not begin_restart(group, why):
        group.move(RECOVERING, f"Ending: {why} {restarts_spent(group)}{_being_stopped(group)}", node=node)
        group.order_stop()
        return
    group.row["ending"] = ENDING_RECOVERING
    group.move(RECOVERING, f"Recovering: {why}{_being_stopped(group)}", node=node)
    group.order_stop()


def roll_back(group: Group, code: str, why: str, node: str | None) -> None:
    """Nothing of an attempt in `scheduling` has ever run, so its ranks are cancelled at once and the group waits again;
    one in `starting` may have processes and waits for their end first."""
    group.row["rollbacks"] += 1
    group.row["pending_reason"] = {"code": code, "text": why, "details": {"attempt": group.attempt, "node": node}}
    if code not in NODES_OWN:
        note_fruitless(group, code, why)
    group.row["claimed"] = []
    starting = group.status != SCHEDULING
    if starting:
        group.row["ending"] = ENDING_ROLLBACK
    leave_releasing(group)
    text = f"Attempt {group.attempt} was rolled back: {why}"
    if starting:
        group.move(RECOVERING, text, node=node, code=code)
    else:
        wait_again(group, text, node=node, code=code)


def leave_releasing(group: Group) -> None:
    """The agents hold claims that a new attempt, or another group, would collide with: cards stay releasing until each
    agent says that its own are clean."""
    group.order_stop()


def stop(group: Group, by: str) -> None:
    """A user's stop wins over every other ending."""
    if group.status == PENDING:
        group.move(STOPPED, f"Stopped by {by} while it was waiting.")
        return
    group.row["ending"] = ENDING_STOPPED
    left = "no rank is left" if group.gone() else "the ranks are ending"
    group.move(STOPPING, f"Stop asked by {by}; {left}.")
    group.order_stop()

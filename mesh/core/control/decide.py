"""What the controllers propose next: the scheduler's binds, the starts of claimed gangs, and the end of phases and
groups that take too long.

Pure: the picture, the time and a memory in, commands out. Everything here may be lost with the leader: the next one
decides afresh from the state, and the reducers refuse what no longer fits."""

from dataclasses import dataclass, field
from typing import Any

from mesh.core.control.drains import drains
from mesh.core.control.stops import overdue_stops
from mesh.core.control.time_limits import overdue
from mesh.core.control.view import Attempt, View
from mesh.core.sched.plan import plan
from mesh.core.sched.view import Plan
from mesh.core.state.agreement import STORAGE_NOT_SHARED, disagreement, no_beginning, odd_one
from mesh.core.state.reach import NO_WAY, blamed, meeting_address, no_way
from schemas.commands import command
from schemas.limits import (
    CLAIM_DEADLINE_MS,
    IMAGE_PULL_MS,
    PENALTY_FRESH_MS,
    PHASE_TRIES,
    REASONS_PER_COMMAND,
    START_DEADLINE_MS,
    TEXT_MAX,
)
from schemas.states import PARENT_CHECKPOINT, RESUME_MISSING, SCHEDULING

Commands = list[dict[str, Any]]

DEADLINE_MS = {SCHEDULING: CLAIM_DEADLINE_MS, "starting": START_DEADLINE_MS}
# Counts in a reason change with every start and end anywhere; a change of its code is told at once.
REASON_NUMBERS_MS = 5000


@dataclass(frozen=True, slots=True)
class Now:
    """mono_ms: for deadlines; wall_ms: comparable with the leader's stamps, and used for preferences only."""

    mono_ms: int
    wall_ms: int


@dataclass(slots=True)
class Memory:
    """Of one leadership. caught_up: the index of the last accepted proposal; nothing is decided before the picture
    shows it. phases: group -> (attempt, status, since); planned: index and time of the last scheduler pass, None to
    make one now; stamp_ahead_ms: the newest stamp in the nodes less the monotonic time it was seen at; sentence: the
    scheduler's last words."""

    caught_up: int = 0
    inherited: bool = True
    phases: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    numbers_ms: int | None = None
    planned: tuple[int, int] | None = None
    stamp_ahead_ms: int = 0
    sentence: str = ""


def decide(view: View, now: Now, memory: Memory) -> Commands:
    if view.idx < memory.caught_up:
        return []
    stamp_now_ms = _stamp_now_ms(view, now, memory)
    late = overdue(view, stamp_now_ms)
    late += overdue_stops(view, stamp_now_ms, frozenset(item["group_id"] for item in late))
    over = {proposal["group_id"] for proposal in late}
    commands = late + [item for item in drains(view, stamp_now_ms) if item.get("group_id") not in over]
    leaving = over | {proposal["group_id"] for proposal in commands if proposal["t"] == "MoveGroup"}
    commands += [proposal for proposal in _phases(view, now, memory) if proposal["group_id"] not in leaving]
    memory.inherited = False
    if view.waiting and _worth_planning(view, now, memory, stamp_now_ms):
        memory.planned = (view.idx, now.mono_ms)
        planned = plan(view.sched(), stamp_now_ms)
        memory.sentence = planned.sentence
        commands += [
            command("BindGroup", group_id=bind.group_id, attempt=bind.attempt, placements=list(bind.placements))
            for bind in planned.binds
            if bind.group_id not in over
        ]
        commands += _reasons(view, planned, now, memory)
    return commands


def _worth_planning(view: View, now: Now, memory: Memory, stamp_now_ms: int) -> bool:
    """The same picture gives the same plan, but for nodes that rest and for numbers not told yet."""
    if memory.planned is None or memory.planned[0] != view.idx or now.mono_ms - memory.planned[1] >= REASON_NUMBERS_MS:
        return True
    if stamp_now_ms - _newest_penalty_ms(view) <= PENALTY_FRESH_MS + REASON_NUMBERS_MS:
        return True
    return any(0 <= stamp_now_ms - group.not_before_ms <= REASON_NUMBERS_MS for group in view.waiting.values())


def _newest_penalty_ms(view: View) -> int:
    return max((node.penalty_ms for node in view.sched().nodes), default=0)


def _stamp_now_ms(view: View, now: Now, memory: Memory) -> int:
    """Now, comparable with the stamps in the state. A wall clock behind them (it was set back, or an earlier leader's
    ran ahead) would let a node rest until it catches up, for days; so the newest stamp counts as now when it is first
    seen, and time goes on from there."""
    memory.stamp_ahead_ms = max(memory.stamp_ahead_ms, view.newest_stamp_ms() - now.mono_ms)
    return max(now.wall_ms, now.mono_ms + memory.stamp_ahead_ms)


def _phases(view: View, now: Now, memory: Memory) -> Commands:
    commands: Commands = []
    for group_id in [group_id for group_id in memory.phases if group_id not in view.attempts]:
        del memory.phases[group_id]
    for attempt in view.attempts.values():
        phase = memory.phases.get(attempt.group_id)
        if phase is None or phase[:2] != (attempt.attempt, attempt.status):
            memory.phases[attempt.group_id] = (attempt.attempt, attempt.status, now.mono_ms)
            if memory.inherited and attempt.ending is None and not _all_claimed(attempt):
                commands.append(_inherit(attempt))
                continue
        proposal = _phase(view, attempt, now.mono_ms - memory.phases[attempt.group_id][2])
        if proposal is not None:
            commands.append(proposal)
    return commands


def _all_claimed(attempt: Attempt) -> bool:
    return attempt.status == SCHEDULING and attempt.claimed == tuple(range(len(attempt.nodes)))


def _phase(view: View, attempt: Attempt, since_ms: int) -> dict[str, Any] | None:
    if attempt.ending is not None:
        return None
    if _all_claimed(attempt):
        return _start(view, attempt)
    if since_ms >= deadline_ms(attempt):
        return _time_out(view, attempt)
    return None


def deadline_ms(attempt: Attempt) -> int:
    pull_ms = IMAGE_PULL_MS if attempt.in_container and attempt.status == SCHEDULING else 0
    return DEADLINE_MS[attempt.status] + pull_ms


def _inherit(attempt: Attempt) -> dict[str, Any]:
    if attempt.tries >= PHASE_TRIES:
        why = f"{attempt.tries} leaders in a row could not finish its {attempt.status} phase."
        return _rollback(attempt, "leaders_changed", why, None)
    return command("ContinuePhase", group_id=attempt.group_id, attempt=attempt.attempt, status=attempt.status)


def _start(view: View, attempt: Attempt) -> dict[str, Any] | None:
    if said := disagreement(attempt.views):
        return _rollback(attempt, STORAGE_NOT_SHARED, said, odd_one(attempt.views)["node"])
    if (why := no_beginning(attempt.views)) is not None:
        # A node is not to blame for what is incomplete everywhere.
        return _rollback(attempt, *why, attempt.views[0]["node"] if why[0] == RESUME_MISSING else None)
    if attempt.reach is not None and (said := no_way(attempt.reach)):
        return _rollback(attempt, NO_WAY, said, blamed(attempt.nodes, attempt.reach))
    api_addr = view.api_addr(attempt.nodes[0])
    if api_addr is None:
        return None
    addr = meeting_address(attempt.reach) or host_of(api_addr)
    told: dict[str, Any] = {}
    if attempt.needs_addresses:
        addresses = [view.api_addr(node) for node in attempt.nodes]
        if None in addresses:
            return None
        told["addresses"] = [addr, *(host_of(address) for address in addresses[1:] if address is not None)]
    return command(
        "StartGroup",
        group_id=attempt.group_id,
        attempt=attempt.attempt,
        claimed=list(attempt.claimed),
        master={"addr": addr, "port": attempt.port},
        resume=resume_decision(attempt),
        **told,
    )


def resume_decision(attempt: Attempt) -> dict[str, Any] | None:
    """One for all ranks: the document's own path stays that path at every attempt, else what rank 0 found, which is
    what every other node sees too. A parent's checkpoint is for as long as the group has none itself: it would lose
    what it did since."""
    if attempt.resume is not None:
        probe = attempt.probe or {}
        step = probe.get("step") if probe.get("path") == attempt.resume else None
        return {"path": attempt.resume, "step": step, "source": "document"}
    if attempt.probe is None:
        if attempt.parent is None:
            return None
        return {"path": attempt.parent["path"], "step": attempt.parent["step"], "source": PARENT_CHECKPOINT}
    return {"path": attempt.probe["path"], "step": attempt.probe.get("step"), "source": "checkpoint_path"}


def _time_out(view: View, attempt: Attempt) -> dict[str, Any]:
    seconds = deadline_ms(attempt) // 1000
    if attempt.status == SCHEDULING:
        late = {rank: node for rank, node in enumerate(attempt.nodes) if rank not in attempt.claimed}
        what, code = "claimed", "claim_timeout"
    else:
        late = view.unstarted.get((attempt.group_id, attempt.attempt), {})
        what, code = "started", "start_timeout"
    named = ", ".join(f"rank {rank} on {late[rank]}" for rank in sorted(late)[:4])
    if len(late) > 4:
        named += f" and {len(late) - 4} more"
    why = f"{named or 'some ranks'} not {what} within {seconds} s."
    return _rollback(attempt, code, why[:1].upper() + why[1:], late[min(late)] if late else None)


def _rollback(attempt: Attempt, code: str, why: str, node: str | None) -> dict[str, Any]:
    """why: with what several nodes say, perhaps more than a command holds."""
    text = why[:TEXT_MAX]
    return command("RollbackGroup", group_id=attempt.group_id, attempt=attempt.attempt, code=code, text=text, node=node)


def _reasons(view: View, planned: Plan, now: Now, memory: Memory) -> Commands:
    numbers = memory.numbers_ms is None or now.mono_ms - memory.numbers_ms >= REASON_NUMBERS_MS
    changed: dict[str, dict[str, Any]] = {}
    for group_id, reason in planned.reasons.items():
        stands = view.waiting[group_id].reason
        if stands == reason or (stands is not None and stands["code"] == reason["code"] and not numbers):
            continue
        changed[group_id] = reason
        if len(changed) == REASONS_PER_COMMAND:
            break
    if not changed:
        return []
    if numbers:
        memory.numbers_ms = now.mono_ms
    return [command("SetReasons", reasons=changed)]


def host_of(addr: str) -> str:
    """The host of `host:port`, an IPv6 one without its brackets."""
    host = addr.rpartition(":")[0] if addr.rpartition(":")[1] else addr
    return host.removeprefix("[").removesuffix("]")

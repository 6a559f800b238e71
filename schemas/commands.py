"""Commands of the replicated log: their fields as data, one checker, one encoder.

A command is `{"v": 1, "t": NAME, "at_ms": leader stamp, "request": optional, "caller": optional, "needs": optional,
...fields}`. A proposer leaves `at_ms` out; the leader stamps it last, so every voter applies the same time. The checker
runs before a proposal and again in `apply`, which may then trust the shape."""

from collections.abc import Mapping
from typing import Any

import msgpack

from schemas.command_checks import (
    Check,
    choice,
    each,
    integer,
    keyed,
    optional,
    payload,
    plain,
    plain_map,
    record,
    text,
)
from schemas.command_fields import (
    ADDRESS,
    ASKED,
    ATTEMPT,
    CALLER,
    CLUSTER_VERSION,
    DRAIN,
    GPU,
    GROUP,
    LONG,
    NODE,
    PARENT,
    PLACEMENT,
    RANK,
    REASON,
    REQUEST,
    RESUME,
    SEGMENT,
    TASK_REF,
    VOTER,
    report,
)
from schemas.errors import Finding, InvalidInput, Problem, problem_from_findings
from schemas.lexemes import kind_of
from schemas.limits import (
    ENTRY_MAX,
    FILE_SAID_MAX,
    GPUS_PER_NODE_MAX,
    HOLD_MAX_S,
    MAINTENANCE_AHEAD_MAX_S,
    MAINTENANCE_MAX_S,
    NAME_MAX,
    NODES_MAX,
    PORT_MAX,
    PORT_MIN,
    PRUNED_AT_ONCE,
    REASONS_PER_COMMAND,
    STOP_AFTER_MAX_S,
    TEXT_MAX,
)
from schemas.rules.permissions import ROLES, SCOPES
from schemas.rules.rendezvous_address import CANDIDATES_MAX
from schemas.states import (
    OVER_DEADLINE,
    OVER_STALL,
    OVER_WAIT,
    RENDEZVOUS_STATES,
)

VERSION = 1

_FILE_ACCESS: dict[str, Check] = {"group_id": GROUP, "attempt": ATTEMPT, "rank": RANK, "path": text(FILE_SAID_MAX)}

# name -> (required fields, optional fields)
COMMANDS: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "InitCluster": (
        {
            "cluster_id": SEGMENT,
            "epoch": integer(1),
            "profile": choice("fast", "lan", "wan"),
            "voters": each(VOTER, 7),
        },
        {},
    ),
    "RegisterNode": (
        {
            "node_id": NODE,
            "uid": SEGMENT,
            "api_addr": ADDRESS,
            "voter_addr": optional(ADDRESS),
            "gpus": each(GPU, GPUS_PER_NODE_MAX),
            "gpu_backend": choice("simulated", "nvml", "none"),
            "runtime": choice("process", "docker", "memory"),
            "labels": keyed(text(NAME_MAX), text(TEXT_MAX, empty=True), 256),
            "version": text(NAME_MAX),
            "cpus": integer(),
            "memory_mb": integer(),
        },
        # Why no container can be started there now; where ranks of other hosts may look for this one's, best first; the
        # newest cluster version that its release knows.
        {"engine_down": optional(LONG), "addresses": each(ADDRESS, CANDIDATES_MAX), "supports": CLUSTER_VERSION},
    ),
    "RaiseVersion": ({"to": CLUSTER_VERSION, "by": text(NAME_MAX)}, {}),
    "SubmitGroup": (
        {
            "group_id": GROUP,
            "document": plain_map,
            "tenant": text(NAME_MAX),
            "user": text(NAME_MAX),
            "warnings": each(plain, 1000),
            "resubmit_of": optional(GROUP),
        },
        {"parent": PARENT},
    ),
    "SetReasons": ({"reasons": keyed(GROUP, REASON, REASONS_PER_COMMAND)}, {}),
    "BindGroup": ({"group_id": GROUP, "attempt": ATTEMPT, "placements": each(PLACEMENT, NODES_MAX)}, {}),
    # sent_ms: by the clock that at_ms of its reports is of, so that both together say how long ago something was.
    "TaskReports": ({"node": NODE, "uid": SEGMENT, "reports": each(report)}, {"sent_ms": integer()}),
    "StartGroup": (
        {
            "group_id": GROUP,
            "attempt": ATTEMPT,
            "claimed": each(RANK, NODES_MAX),
            "master": record({"addr": ADDRESS, "port": integer(PORT_MIN, PORT_MAX)}),
            "resume": RESUME,
        },
        # Of the nodes by rank, for frameworks whose ranks must know all of them.
        {"addresses": each(ADDRESS, NODES_MAX)},
    ),
    "ContinuePhase": ({"group_id": GROUP, "attempt": ATTEMPT, "status": choice("scheduling", "starting")}, {}),
    "RollbackGroup": (
        {"group_id": GROUP, "attempt": ATTEMPT, "code": text(NAME_MAX), "text": LONG, "node": optional(NODE)},
        {},
    ),
    "StopGroup": ({"group_id": GROUP, "by": text(NAME_MAX)}, {}),
    "PauseGroup": ({"group_id": GROUP, "by": text(NAME_MAX)}, {}),
    "ResumeGroup": ({"group_id": GROUP, "by": text(NAME_MAX)}, {}),
    "StopAfterCheckpoint": (
        {"group_id": GROUP, "by": text(NAME_MAX), "within_s": integer(1, STOP_AFTER_MAX_S)},
        {},
    ),
    # A group that waits has no attempt yet. text: what was seen of one that stands still.
    "FailGroup": (
        {
            "group_id": GROUP,
            "attempt": integer(0, 9999),
            "over": choice(OVER_DEADLINE, OVER_WAIT, OVER_STALL),
        },
        {"text": LONG},
    ),
    "ExpireNode": ({"node_id": NODE, "uid": SEGMENT, "text": LONG}, {}),
    "RejoinNode": ({"node_id": NODE, "uid": SEGMENT, "losses": integer(1), "tasks": each(record(TASK_REF))}, {}),
    "DeleteGroup": ({"group_id": GROUP}, {}),
    "CordonNode": ({"node_id": NODE, **ASKED}, {}),
    "UncordonNode": ({"node_id": NODE, "by": text(NAME_MAX)}, {}),
    "GiveUpNode": ({"node_id": NODE, **ASKED}, {}),
    "DrainNode": ({"node_id": NODE, **DRAIN, **ASKED}, {}),
    "MoveGroup": ({"group_id": GROUP, "attempt": ATTEMPT, "node_id": NODE}, {}),
    "EndDrain": ({"node_id": NODE}, {}),
    "PlanMaintenance": (
        # Begins at `from_ms`, or `in_s` after the leader's stamp where that is None.
        {
            "node_id": NODE,
            "from_ms": optional(integer()),
            "in_s": integer(0, MAINTENANCE_AHEAD_MAX_S),
            "for_s": integer(1, MAINTENANCE_MAX_S),
            **DRAIN,
            **ASKED,
        },
        {},
    ),
    "TurnMaintenance": ({"node_id": NODE, "to": choice("open", "over")}, {}),
    "CancelMaintenance": ({"node_id": NODE, "by": text(NAME_MAX)}, {}),
    "HoldMesh": ({"for_s": integer(1, HOLD_MAX_S), **ASKED}, {}),
    "ReleaseHold": ({"by": text(NAME_MAX)}, {}),
    "HoldLeft": ({"hold": integer(1), "left_ms": integer()}, {}),
    "PauseScheduling": (ASKED, {}),
    "ResumeScheduling": ({"by": text(NAME_MAX)}, {}),
    "PutKey": (
        {
            "caller": CALLER,
            "key_id": SEGMENT,
            "name": text(NAME_MAX),
            "role": choice(*ROLES),
            "tenant": text(NAME_MAX),
            "sha256": text(64),
        },
        {"scopes": optional(each(choice(*SCOPES), len(SCOPES))), "expires_ms": optional(integer())},
    ),
    "RevokeKey": ({"caller": CALLER, "key_id": SEGMENT}, {}),
    "PutSigner": ({"signer_id": SEGMENT, "secret": payload, "after": text(NAME_MAX, empty=True)}, {}),
    "PruneGroups": ({"group_ids": each(GROUP, PRUNED_AT_ONCE)}, {}),
    "RecordExec": (
        {
            "group_id": GROUP,
            "attempt": ATTEMPT,
            "rank": RANK,
            "by": text(NAME_MAX),
            "phase": choice("opened", "ended"),
            "text": LONG,
        },
        {},
    ),
    "RecordRendezvous": (
        {"group_id": GROUP, "attempt": ATTEMPT, "state": choice(*RENDEZVOUS_STATES), "text": LONG},
        {},
    ),
    "RecordDownload": (_FILE_ACCESS, {}),
    "RecordUpload": (_FILE_ACCESS, {}),
    "Noop": ({}, {"payload": payload}),
}

_ENVELOPE: dict[str, Check] = {"v": integer(VERSION, VERSION), "t": text(NAME_MAX)}
_ENVELOPE_OPTIONAL: dict[str, Check] = {
    "at_ms": integer(),
    "request": REQUEST,
    "caller": CALLER,
    # The cluster version from which on it means what it says (schemas/versions.py).
    "needs": CLUSTER_VERSION,
}
_CHECKS = {
    name: record({**_ENVELOPE, **required}, {**_ENVELOPE_OPTIONAL, **extra})
    for name, (required, extra) in COMMANDS.items()
}


def command(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"v": VERSION, "t": name, **fields}


def command_findings(value: object) -> list[Finding]:
    """Everything wrong with the shape of a command; an empty list means it may be proposed."""
    if not isinstance(value, Mapping):
        return [Finding("invalid_command", "", f"a command is a map, not {kind_of(value)}")]
    name = value.get("t")
    check = _CHECKS.get(name) if isinstance(name, str) else None
    if check is None:
        return [
            Finding(
                "invalid_command",
                "t",
                f"{name!r:.80} is no command of version {VERSION}",
                f"Known: {', '.join(COMMANDS)}.",
            )
        ]
    found: list[Finding] = []
    check(value, "", found)
    return found


def command_refusal(value: object) -> Problem | None:
    found = command_findings(value)
    if not found:
        return None
    return problem_from_findings("invalid_command", f"{found[0].message}; the command was not proposed.", found)


def encode_command(value: Mapping[str, Any]) -> bytes:
    """The bytes of one log entry. Raises InvalidInput(invalid_command) for a wrong shape or one above ENTRY_MAX."""
    found = command_findings(value)
    if found:
        raise InvalidInput(
            "invalid_command", f"{found[0].message}; the command was not proposed.", found[0].hint, found[0].path, found
        )
    raw: bytes = msgpack.packb(value, use_bin_type=True)
    if len(raw) > ENTRY_MAX:
        raise InvalidInput(
            "invalid_command",
            f"the {value['t']} command has {len(raw)} bytes; a log entry holds at most {ENTRY_MAX}.",
            "Make the document, its parameters or the gang smaller.",
        )
    return raw

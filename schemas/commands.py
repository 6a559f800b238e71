"""Commands of the replicated log: their fields as data, one checker, one encoder.

A command is `{"v": 1, "t": NAME, "at_ms": leader stamp, "request": optional, "caller": optional,
"needs": optional, ...fields}`. A
proposer leaves `at_ms` out; the leader stamps it last, so every voter applies the same time. The checker runs before a
proposal and again in `apply`, which may then trust the shape."""

from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from schemas.errors import Finding, InvalidInput, Problem, problem_from_findings
from schemas.ids import group_id_refusal, node_id_refusal, segment_refusal
from schemas.limits import (
    ATTEMPTS_MAX,
    DOCUMENT_DEPTH_MAX,
    DRAIN_DEADLINE_MAX_S,
    ENTRY_MAX,
    FILE_SAID_MAX,
    GPUS_PER_NODE_MAX,
    HOLD_MAX_S,
    INT_MAX,
    LIST_MAX,
    MAINTENANCE_AHEAD_MAX_S,
    MAINTENANCE_MAX_S,
    MAP_MAX,
    NAME_MAX,
    NODES_MAX,
    NOTE_MAX,
    PORT_MAX,
    PORT_MIN,
    PRUNED_AT_ONCE,
    REASONS_PER_COMMAND,
    REMOVED_AT_ONCE,
    STOP_AFTER_MAX_S,
    TEXT_MAX,
)
from schemas.rules.permissions import KINDS, ROLES, SCOPES
from schemas.rules.rendezvous_address import CANDIDATES_MAX
from schemas.states import DRAIN_MODES, OVER_DEADLINE, OVER_STALL, OVER_WAIT, RENDEZVOUS_STATES
from schemas.versions import FIRST, VERSION_MAX

VERSION = 1

Check = Callable[[object, str, list[Finding]], None]


def _say(found: list[Finding], path: str, message: str, hint: str = "") -> None:
    found.append(Finding("invalid_command", path, f"{path or 'command'} {message}", hint))


def text(limit: int = NAME_MAX, empty: bool = False) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, str):
            _say(found, path, f"must be text, not {type(value).__name__}")
        elif not value and not empty:
            _say(found, path, "is empty")
        elif len(value) > limit:
            _say(found, path, f"has {len(value)} characters; at most {limit} fit")
        elif not _encodable(value):
            _say(found, path, "holds half of a surrogate pair, which is no text")

    return check


def integer(low: int = 0, high: int = INT_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            _say(found, path, f"must be a whole number, not {type(value).__name__}")
        elif not low <= value <= high:
            _say(found, path, f"is {value}; it must be {low} to {high}")

    return check


def either(kind: type, first: Check, second: Check) -> Check:
    """`first` for values of `kind`, `second` for all others."""

    def check(value: object, path: str, found: list[Finding]) -> None:
        (first if isinstance(value, kind) else second)(value, path, found)

    return check


def boolean(value: object, path: str, found: list[Finding]) -> None:
    if not isinstance(value, bool):
        _say(found, path, f"must be true or false, not {type(value).__name__}")


def choice(*allowed: str) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, str) or value not in allowed:
            _say(found, path, f"is {value!r:.80}; it must be one of {', '.join(allowed)}")

    return check


def refused_by(refusal: Callable[[object], str | None]) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        reason = refusal(value)
        if reason is not None:
            _say(found, path, f"is refused: {reason}")

    return check


def optional(inner: Check) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if value is not None:
            inner(value, path, found)

    return check


def each(inner: Check, limit: int = LIST_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, list | tuple):
            _say(found, path, f"must be a list, not {type(value).__name__}")
        elif len(value) > limit:
            _say(found, path, f"has {len(value)} elements; at most {limit} fit")
        else:
            for at, item in enumerate(value):
                inner(item, f"{path}[{at}]", found)

    return check


def keyed(key: Check, inner: Check, limit: int = MAP_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, Mapping):
            _say(found, path, f"must be a map, not {type(value).__name__}")
        elif len(value) > limit:
            _say(found, path, f"has {len(value)} entries; at most {limit} fit")
        else:
            for name, item in value.items():
                key(name, f"{path} key", found)
                inner(item, f"{path}.{name}", found)

    return check


def record(required: Mapping[str, Check], extra: Mapping[str, Check] | None = None) -> Check:
    """A map with exactly these fields; those of `extra` may be absent."""
    known = {**required, **(extra or {})}

    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, Mapping):
            _say(found, path, f"must be a map, not {type(value).__name__}")
            return
        dot = f"{path}." if path else ""
        for name in required:
            if name not in value:
                _say(found, f"{dot}{name}", "is missing")
        for name, item in value.items():
            field = known.get(name) if isinstance(name, str) else None
            if field is None:
                _say(
                    found, f"{dot}{name!s:.80}", "is not a field of this command", f"Known fields: {', '.join(known)}."
                )
            else:
                field(item, f"{dot}{name}", found)

    return check


def plain(value: object, path: str, found: list[Finding], depth: int = 0) -> None:
    """Anything JSON could hold, bounded in depth, width and integer size."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if not _encodable(value):
            _say(found, path, "holds half of a surrogate pair, which is no text")
    elif isinstance(value, int):
        if not -INT_MAX <= value <= INT_MAX:
            _say(found, path, "is a number beyond 64 bits")
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            _say(found, path, "is not a finite number")
    elif depth >= DOCUMENT_DEPTH_MAX:
        _say(found, path, f"is nested deeper than {DOCUMENT_DEPTH_MAX} levels")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str) or not _encodable(name):
                _say(found, f"{path} key {name!r:.80}", "must be text")
            else:
                plain(item, f"{path}.{name}", found, depth + 1)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            plain(item, f"{path}[{at}]", found, depth + 1)
    else:
        _say(found, path, f"is a {type(value).__name__}, which no command may hold")


def plain_map(value: object, path: str, found: list[Finding]) -> None:
    if isinstance(value, Mapping):
        plain(value, path, found)
    else:
        _say(found, path, f"must be a map, not {type(value).__name__}")


def payload(value: object, path: str, found: list[Finding]) -> None:
    if not isinstance(value, bytes | str):
        _say(found, path, f"must be bytes or text, not {type(value).__name__}")


def _encodable(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


NODE = refused_by(node_id_refusal)
GROUP = refused_by(group_id_refusal)
SEGMENT = refused_by(segment_refusal)
LONG = text(TEXT_MAX, empty=True)
ADDRESS = text(300)
RANK = integer(0, NODES_MAX - 1)
ATTEMPT = integer(1, ATTEMPTS_MAX)
UUID = text(NAME_MAX)
CLUSTER_VERSION = integer(FIRST, VERSION_MAX)
RESUME = optional(record({"path": text(TEXT_MAX)}, {"step": optional(integer()), "source": text(NAME_MAX)}))
# Of another group, where this one begins. checkpoint_path: the directory of the other's; path: below it.
PARENT = record(
    {"group_id": GROUP, "checkpoint_path": text(TEXT_MAX), "path": text(TEXT_MAX), "step": optional(integer())}
)

# Why one of rank 0's addresses was not reached.
UNREACHED = record({"addr": ADDRESS, "why": text(300)})
# What a node sees of the checkpoints, to be compared with what the others see; absent where nobody looked.
# mark: of the save that `pick` is; rejected: what was passed over.
SEES = record(
    {"pick": text(TEXT_MAX, empty=True), "digest": text(64), "text": LONG},
    {"mark": text(64, empty=True), "rejected": each(record({"name": text(TEXT_MAX), "why": LONG}), 8)},
)

GPU = record({"uuid": UUID, "type": text(NAME_MAX), "memory_mb": integer(), "index": integer(0, GPUS_PER_NODE_MAX - 1)})
VOTER = record({"raft_id": integer(1), "node": NODE, "voter_addr": ADDRESS}, {"api_addr": ADDRESS})
# A card by its uuid, or by its index on the node: with uuids a gang of 1,250 x 8 would not fit one log entry.
CARD = either(str, UUID, integer(0, GPUS_PER_NODE_MAX - 1))
PLACEMENT = record({"rank": RANK, "node": NODE, "gpus": each(CARD, GPUS_PER_NODE_MAX), "port": integer(0, PORT_MAX)})
REASON = record({"code": text(NAME_MAX), "text": LONG}, {"details": plain_map})
TASK_REF = {"group_id": GROUP, "attempt": ATTEMPT, "rank": RANK, "token": integer()}
# For whom an agent asks; absent where it asks for itself. key: of a person, its API key.
CALLER = record({"kind": choice(*KINDS), "name": text(NAME_MAX), "node": NODE}, {"key": SEGMENT})
REQUEST = record({"client": SEGMENT, "id": SEGMENT, "digest": text(NAME_MAX)})

# Who asked for it, and in whose words.
ASKED = {"by": text(NAME_MAX), "reason": text(NOTE_MAX, empty=True)}
DRAIN = {"mode": choice(*DRAIN_MODES), "deadline_s": integer(0, DRAIN_DEADLINE_MAX_S)}

IMAGE = record({"id": text(NAME_MAX)}, {"digest": optional(text(NAME_MAX))})
_REPORT_BASE: dict[str, Check] = {**TASK_REF, "seq": integer(1), "kind": text(NAME_MAX)}
# Outside the order of a task's life.
_BESIDE: dict[str, Check] = {**TASK_REF, "seq": integer(0, 0), "kind": text(NAME_MAX)}
REPORT_KINDS: dict[str, Check] = {
    "progress": record({**_BESIDE, "text": LONG}),
    "claimed": record(
        {**_REPORT_BASE},
        {
            "resume": RESUME,
            "at_ms": integer(),
            "sees": SEES,
            "reached": each(ADDRESS, CANDIDATES_MAX),
            "unreached": each(UNREACHED, CANDIDATES_MAX),
        },
    ),
    "claim_failed": record(
        {**_REPORT_BASE, "code": text(NAME_MAX), "text": LONG, "permanent": boolean}, {"at_ms": integer()}
    ),
    "started": record({**_REPORT_BASE}, {"at_ms": integer(), "image": IMAGE}),
    "exited": record(
        {
            **_REPORT_BASE,
            "exit_code": optional(integer(-INT_MAX)),
            "signal": optional(integer(0, 255)),
            "at_ms": integer(),
        },
        {"why": text(NAME_MAX, empty=True), "text": LONG, "class": optional(text(NAME_MAX))},
    ),
    "released": record({**_REPORT_BASE}, {"at_ms": integer()}),
    # Of rank 0: the newest complete checkpoint is another one. age_ms: since it was written. free_bytes: of its file
    # system, after it.
    "checkpoint": record(
        {
            **_BESIDE,
            "pick": text(TEXT_MAX),
            "step": optional(integer()),
            "mark": text(64),
            "bytes": integer(),
            "files": integer(),
            "age_ms": integer(),
            "took_ms": integer(),
        },
        {"free_bytes": integer()},
    ),
    "checkpoints_removed": record({**_BESIDE, "removed": each(text(TEXT_MAX), REMOVED_AT_ONCE)}),
    "log_lost": record({**_REPORT_BASE, "bytes": integer(1)}, {"at_ms": integer()}),
}


def report(value: object, path: str, found: list[Finding]) -> None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    check = REPORT_KINDS.get(kind) if isinstance(kind, str) else None
    if check is None:
        _say(found, f"{path}.kind", f"is {kind!r:.80}; it must be one of {', '.join(REPORT_KINDS)}")
    else:
        check(value, path, found)


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
        return [Finding("invalid_command", "", f"a command is a map, not {type(value).__name__}")]
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

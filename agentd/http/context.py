"""What the handlers of one agent share."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from agentd.core.tenant_rows import group_for, hidden
from agentd.http.answer import answer
from agentd.http.callers import caller_of
from agentd.http.parameter import CONSISTENCY
from agentd.runtime.base import TaskId
from mesh.client import MeshClient
from schemas.api import HEADER_AGE_MS, HEADER_INDEX, HEADER_NODE
from schemas.errors import NotFound, Unavailable
from schemas.ids import segment_refusal
from schemas.rules.permissions import Permission
from schemas.task_types import shown_shape

if TYPE_CHECKING:
    from agentd.debug_report import DebugReport
    from agentd.exec_service import ExecService
    from agentd.files.service import FileService
    from agentd.http.metrics import Vitals
    from agentd.identity.service import IdentityService
    from agentd.join import JoinDesk
    from agentd.log_service import LogService
    from agentd.telemetry.node_telemetry import NodeTelemetry
    from mesh.gossip import GossipDriver

Row = dict[str, Any]
_OWNED_AT_ONCE = 1000


@dataclass(slots=True)
class Api:
    """mesh is None until this agent has joined. health: facts about this agent for /healthz and /mesh."""

    node_id: str
    desk: "JoinDesk"
    health: Callable[[], dict[str, Any]]
    mesh: MeshClient | None = None
    extra_allowed_paths: tuple[str, ...] = ()
    logs: "LogService | None" = None
    telemetry: "NodeTelemetry | None" = None
    vitals: "Vitals | None" = None
    gossip: "GossipDriver | None" = None
    execs: "ExecService | None" = None
    files: "FileService | None" = None
    debug: "DebugReport | None" = None
    identity: "IdentityService | None" = None
    """Of a mesh with TLS."""
    to_ca: "Callable[[], Awaitable[tuple[aiohttp.ClientSession, str]]] | None" = None
    """A way to the agent that has the mesh CA, and its address; once this agent has joined."""


API = web.AppKey("api", Api)


def mesh_of(request: web.Request) -> MeshClient:
    mesh = request.app[API].mesh
    if mesh is None:
        raise Unavailable(
            "not_joined",
            "this agent has not joined a mesh yet",
            "its log says what it waits for; ask another agent meanwhile",
        )
    return mesh


def telemetry_of(request: web.Request) -> "NodeTelemetry":
    telemetry = request.app[API].telemetry
    if telemetry is None:
        raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
    return telemetry


@dataclass(frozen=True, slots=True)
class Reading:
    """Results of one moment of the state, and the headers that say which."""

    results: list[Any]
    headers: dict[str, str]


async def read(request: web.Request, *reads: dict[str, Any]) -> Reading:
    level = CONSISTENCY.read(request)
    found = await mesh_of(request).query(list(reads), level=level)
    return Reading(found["results"], reading_headers(request, found))


def reading_headers(request: web.Request, found: dict[str, Any]) -> dict[str, str]:
    return {
        HEADER_INDEX: str(found["idx"]),
        HEADER_AGE_MS: str(found["age_ms"]),
        HEADER_NODE: request.app[API].node_id,
    }


async def scan_all(request: web.Request, entity: str, prefix: str = "") -> tuple[list[tuple[str, Row]], Reading]:
    """Every row, a page at a time; the reading is that of the last page."""
    rows: list[tuple[str, Row]] = []
    while True:
        reading = await read(request, {"scan": [entity, prefix, rows[-1][0] if rows else "", 1000]})
        (page,) = reading.results
        if not page:
            return rows, reading
        rows += [(key, row) for key, row in page]


def answer_reading(request: web.Request, value: Any, reading: Reading) -> web.Response:
    return answer(request, value, headers=reading.headers)


def checked_group_id(text: str) -> str:
    """An id of the wrong shape names nothing, so it is answered as one that does not exist."""
    if segment_refusal(text) is not None:
        raise no_such_group(text)
    return text


def checked_task_id(text: str) -> TaskId:
    """Of GROUP.ATTEMPT.RANK. Raises NotFound."""
    group_id, _, rest = text.partition(".")
    attempt, _, rank = rest.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in (attempt, rank)):
        raise NotFound("no_such_task", f"there is no task {text[:80]!r}", "write GROUP.ATTEMPT.RANK")
    return TaskId(checked_group_id(group_id), int(attempt), int(rank))


def visible(request: web.Request, group_id: str, group: Row | None) -> Row:
    """The group, where it is the caller's to see; another tenant's is answered as one that does not exist."""
    if group is None or not caller_of(request).sees(str(group["tenant"])):
        raise no_such_group(group_id)
    return for_caller(request, group)


def for_caller(request: web.Request, group: Row) -> Row:
    caller = caller_of(request)
    return group if caller.sees_all else group_for(caller.tenant, group)


def whole_for_caller(request: web.Request, group: Row) -> Row:
    """With its document, of which who may not act for the owner is shown no secrets."""
    shown = for_caller(request, group)
    return shown if caller_of(request).may(Permission.WRITE_GROUPS) else hidden(shown)


async def require_visible(request: web.Request, group_id: str) -> None:
    """Before anything that this host has of the group's own is looked at. Raises NotFound."""
    if caller_of(request).sees_all:
        return
    found = await mesh_of(request).query([{"get": ["group", group_id]}], level="stale")
    if found["results"][0] is None:
        found = await mesh_of(request).query([{"get": ["group", group_id]}])
    visible(request, group_id, found["results"][0])


async def visible_ids(request: web.Request, group_ids: Iterable[str]) -> set[str]:
    """Those that are the caller's to see."""
    caller, wanted = caller_of(request), sorted(set(group_ids))
    if caller.sees_all:
        return set(wanted)
    seen: set[str] = set()
    for at in range(0, len(wanted), _OWNED_AT_ONCE):
        found = await mesh_of(request).query([{"owned": [caller.tenant, wanted[at : at + _OWNED_AT_ONCE]]}], "stale")
        seen.update(found["results"][0])
    return seen


def no_such_group(group_id: str) -> NotFound:
    return NotFound(
        "no_such_group",
        f"there is no task group {group_id[:80]!r}",
        "`heteroflow ls` or GET /api/v1/task-groups lists those that you may see",
    )


def no_such_task(task_id: TaskId) -> NotFound:
    return NotFound(
        "no_such_task",
        f"group {task_id.group_id} has no rank {task_id.rank} in attempt {task_id.attempt}",
        "`heteroflow show` or GET /api/v1/task-groups/{id} lists its ranks",
    )


def require_rank(group: Mapping[str, Any], rank: int) -> None:
    """Raises NotFound where no attempt of the group can have it; an answer without a line would look like silence."""
    nodes = shown_shape(group["document"])["n_nodes"]
    if nodes is not None and rank >= nodes:
        raise no_such_task(TaskId(group["group_id"], group["attempt"], rank))


def require_attempt(group: Mapping[str, Any], attempt: int) -> None:
    """Raises NotFound."""
    if attempt > group["attempt"]:
        had = f"{group['attempt']} attempt{'s' * (group['attempt'] != 1)}"
        raise NotFound("no_such_attempt", f"group {group['group_id']} has had {had}", "leave attempt out")

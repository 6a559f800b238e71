"""Task groups: submit, list, show, stop, pause, resume, resubmit, delete, events."""

import os
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentd.http import group_view
from agentd.http.answer import answer
from agentd.http.body import read_document, read_nothing
from agentd.http.callers import caller_of
from agentd.http.capacity import capacity_warnings
from agentd.http.context import (
    API,
    answer_reading,
    checked_group_id,
    for_caller,
    mesh_of,
    read,
    require_attempt,
    scan_all,
    visible,
    whole_for_caller,
)
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Choices, Whole, Words, limit
from agentd.http.parent import with_parent
from agentd.http.proposing import now_ms, propose_once
from schemas.api import (
    FaultEvents,
    GroupDeleted,
    GroupDetail,
    GroupList,
    GroupStatus,
    Submitted,
)
from schemas.commands import command
from schemas.errors import Conflict, Forbidden
from schemas.ids import make_group_id
from schemas.instants import iso_utc
from schemas.rules.permissions import DEFAULT_TENANT, Permission
from schemas.states import GROUP_STATUSES, TERMINAL
from schemas.task_group import DOCUMENT, accepted_task_group, encode_document

routes = web.RouteTableDef()

_STATUS = Choices("status", tuple(GROUP_STATUSES), "only groups in one of these")
_NAME = Words("name", "only groups whose name holds this, in either case", high=256)
_GROUPS_LIMIT, _EVENTS_LIMIT = limit(1000, 100), limit(1000, 1000)
_GROUPS_CURSOR = Whole("cursor", 0, (1 << 53) - 1, "of the page before")
_EVENTS_CURSOR = Whole("cursor", 0, 99_999_999, "of the page before", 0)
_ATTEMPT = Whole("attempt", 0, 9999, "tasks of this one; of the current one if not given")
_NO_BODY = {"type": "object", "maxProperties": 0}


@routes.post("/api/v1/task-groups")
@needs(Permission.WRITE_GROUPS)
@Described("Submit a task group", answer=Submitted, statuses=(200, 201), body=DOCUMENT, once=True, problems=(422,))
async def submit(request: web.Request) -> web.Response:
    return await submit_document(request, await read_document(request))


async def submit_document(request: web.Request, body: Mapping[str, Any]) -> web.Response:
    body, parent = await with_parent(request, body)
    document, warnings = accepted_task_group(body, request.app[API].extra_allowed_paths)
    caller = caller_of(request)
    if parent is not None:
        parent.judge(document)
        warnings += parent.warnings
    tenant = document.get("tenant") or (parent.tenant if parent else caller.tenant) or DEFAULT_TENANT
    if not caller.sees(tenant):
        raise Forbidden(
            "forbidden",
            f"{caller.name} may submit for tenant {caller.tenant} only, not for {tenant}",
            "leave tenant out of the document, or use a key of that tenant",
            field="tenant",
        )
    told = parent.told if parent is not None else None
    return await _submit(request, document, warnings, encode_document(document), tenant, None, told)


async def _submit(
    request: web.Request,
    document: Mapping[str, Any],
    warnings: list[Any],
    digested: bytes,
    tenant: str,
    resubmit_of: str | None,
    parent: dict[str, Any] | None,
) -> web.Response:
    group_id = make_group_id(now_ms(), os.urandom(8))
    warnings = [*warnings, *await capacity_warnings(request, document)]
    data = await propose_once(
        request,
        command(
            "SubmitGroup",
            group_id=group_id,
            document=document,
            tenant=tenant,
            user=caller_of(request).name,
            warnings=warnings,
            resubmit_of=resubmit_of,
            **({} if parent is None else {"parent": parent}),
        ),
        digested,
    )
    first_time = data["group_id"] == group_id
    shown = {
        "group_id": data["group_id"],
        "status": data["status"],
        "warnings": data.get("warnings", warnings),
        "created_at": iso_utc(data["created_ms"]),
    }
    location = {"Location": f"/api/v1/task-groups/{data['group_id']}"}
    return answer(request, shown, 201 if first_time else 200, location)


@routes.get("/api/v1/task-groups")
@needs(Permission.READ_GROUPS)
@Described(
    "Task groups, newest first",
    answer=GroupList,
    parameters=(CONSISTENCY, _STATUS, _NAME, _GROUPS_LIMIT, _GROUPS_CURSOR),
)
async def list_groups(request: web.Request) -> web.Response:
    wanted: dict[str, Any] = {"limit": _GROUPS_LIMIT.read(request)}
    if statuses := _STATUS.read(request):
        wanted["status"] = statuses
    if name := _NAME.read(request):
        wanted["name"] = name
    if not caller_of(request).sees_all:
        wanted["tenant"] = caller_of(request).tenant
    if (after := _GROUPS_CURSOR.read(request)) >= 0:
        wanted["after"] = after
    reading = await read(request, {"groups": wanted})
    (found,) = reading.results
    shown = {
        "groups": [group_view.summary(for_caller(request, row)) for row in found["groups"]],
        "cursor": found["next"],
    }
    return answer_reading(request, shown, reading)


@routes.get("/api/v1/task-groups/{group_id}")
@needs(Permission.READ_GROUPS)
@Described("One group with its tasks", answer=GroupDetail, parameters=(CONSISTENCY, _ATTEMPT))
async def show(request: web.Request) -> web.Response:
    group_id = checked_group_id(request.match_info["group_id"])
    reading = await read(request, {"get": ["group", group_id]}, {"scan": ["task", f"{group_id}/"]})
    group, tasks = visible(request, group_id, reading.results[0]), reading.results[1]
    if (attempt := _ATTEMPT.read(request)) < 0:
        attempt = group["attempt"]
    require_attempt(group, attempt)
    rows = [row for _, row in tasks if row["attempt"] == attempt]
    if sum(group["tally"].values()) != len(rows) or attempt != group["attempt"]:
        # A large gang, or one of many attempts: more tasks than one read holds.
        found, _ = await scan_all(request, "task", f"{group_id}/{attempt:04d}/")
        rows = [row for _, row in found]
    return answer_reading(request, group_view.detail(whole_for_caller(request, group), rows), reading)


@routes.post("/api/v1/task-groups/{group_id}/stop")
@needs(Permission.WRITE_GROUPS)
@Described("Stop a group", answer=GroupStatus, once=True)
async def stop(request: web.Request) -> web.Response:
    await read_nothing(request)
    return answer(request, await stop_group(request, checked_group_id(request.match_info["group_id"])))


async def stop_group(request: web.Request, group_id: str, part: str = "") -> dict[str, Any]:
    """part: as in `propose_once`."""
    return await _order(request, "StopGroup", "stop", group_id, part)


@routes.post("/api/v1/task-groups/{group_id}/pause")
@needs(Permission.WRITE_GROUPS)
@Described("Pause a running group: it saves, frees its cards and keeps its place", answer=GroupStatus, once=True)
async def pause(request: web.Request) -> web.Response:
    await read_nothing(request)
    group_id = checked_group_id(request.match_info["group_id"])
    return answer(request, await _order(request, "PauseGroup", "pause", group_id))


@routes.post("/api/v1/task-groups/{group_id}/resume")
@needs(Permission.WRITE_GROUPS)
@Described("Put a paused group back into the queue, at its old place", answer=GroupStatus, once=True)
async def resume(request: web.Request) -> web.Response:
    await read_nothing(request)
    group_id = checked_group_id(request.match_info["group_id"])
    return answer(request, await _order(request, "ResumeGroup", "resume", group_id))


async def _order(request: web.Request, name: str, word: str, group_id: str, part: str = "") -> dict[str, Any]:
    proposed = command(name, group_id=group_id, by=caller_of(request).name)
    data = await propose_once(request, proposed, f"{word} {group_id}".encode(), part)
    return {"group_id": group_id, "status": data["status"]}


@routes.post("/api/v1/task-groups/{group_id}/resubmit")
@needs(Permission.WRITE_GROUPS)
@Described("Submit the document of an ended group again", answer=Submitted, statuses=(200, 201), once=True)
async def resubmit(request: web.Request) -> web.Response:
    """The same words as a new group."""
    await read_nothing(request)
    group_id = checked_group_id(request.match_info["group_id"])
    found = await mesh_of(request).query([{"get": ["group", group_id]}])
    group = visible(request, group_id, found["results"][0])
    if group["status"] not in TERMINAL:
        raise Conflict(
            "group_active",
            f"group {group_id} is {group['status']}; only a completed, failed or stopped group is resubmitted",
            "stop it first",
        )
    document, warnings = accepted_task_group(group["document"], request.app[API].extra_allowed_paths)
    digested = f"resubmit {group_id}".encode()
    return await _submit(request, document, warnings, digested, group["tenant"], group_id, group.get("parent"))


@routes.delete("/api/v1/task-groups/{group_id}")
@needs(Permission.WRITE_GROUPS)
@Described("Delete an ended group", answer=GroupDeleted, once=True)
async def delete(request: web.Request) -> web.Response:
    return answer(request, await delete_group(request, checked_group_id(request.match_info["group_id"])))


async def delete_group(request: web.Request, group_id: str, part: str = "") -> dict[str, Any]:
    await propose_once(request, command("DeleteGroup", group_id=group_id), f"delete {group_id}".encode(), part)
    return {"group_id": group_id, "deleted": True}


@routes.get("/api/v1/task-groups/{group_id}/fault-events")
@needs(Permission.READ_GROUPS)
@Described(
    "What happened to a group, oldest first",
    answer=FaultEvents,
    parameters=(CONSISTENCY, _EVENTS_LIMIT, _EVENTS_CURSOR),
)
async def fault_events(request: web.Request) -> web.Response:
    group_id = checked_group_id(request.match_info["group_id"])
    most, after = _EVENTS_LIMIT.read(request), _EVENTS_CURSOR.read(request)
    start = f"{group_id}/{after:08d}" if after else ""
    reading = await read(request, {"get": ["group", group_id]}, {"scan": ["event", f"{group_id}/", start, most]})
    visible(request, group_id, reading.results[0])
    rows = reading.results[1]
    cursor = int(rows[-1][0].rpartition("/")[2]) if await _more_events(request, group_id, rows, most) else None
    shown = {"group_id": group_id, "events": [group_view.event(row) for _, row in rows], "cursor": cursor}
    return answer_reading(request, shown, reading)


async def _more_events(request: web.Request, group_id: str, rows: list[Any], most: int) -> bool:
    """A page is shorter than asked also where its rows are large."""
    if not rows or len(rows) == most:
        return bool(rows)
    (following,) = (await read(request, {"scan": ["event", f"{group_id}/", rows[-1][0], 1]})).results
    return bool(following)

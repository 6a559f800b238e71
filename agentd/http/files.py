"""Files of a group, at any node: what is there, one of them or a part of it, and uploads; the node that has them reads
and writes."""

import contextlib
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import hdrs, web

from agentd.core.byte_range import NotSatisfiable, Span, if_match_holds, if_range_holds, span_of
from agentd.files.disk_thread import DiskThread
from agentd.files.service import FileService
from agentd.files.source import LocalSource, Peer, Source
from agentd.files.uploads import UploadOrder
from agentd.http import file_stream
from agentd.http.answer import answer, problem_answer
from agentd.http.callers import caller_of, on_behalf
from agentd.http.context import (
    API,
    Reading,
    answer_reading,
    checked_group_id,
    checked_task_id,
    mesh_of,
    no_such_task,
    read,
    reading_headers,
    visible,
)
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Flag, Whole, Words, refused
from agentd.http.proposing import record
from agentd.runtime.base import TaskId
from schemas.api import FileList, FileWritten
from schemas.commands import command
from schemas.errors import Conflict, NotFound, Problem, Unavailable
from schemas.instants import iso_utc
from schemas.limits import FILE_NAMES_PAGE, FILE_SAID_MAX, FILE_SIZE_MAX
from schemas.rules.frameworks.rank import MountPoint, mount_points
from schemas.rules.permissions import Permission
from schemas.rules.target_path import TARGET_MAX, Place, place_of

routes = web.RouteTableDef()
BINARY = "application/octet-stream"
_BYTES = {"type": "string", "format": "binary"}
_LIST_S = 30.0
_RANK = Whole("rank", 0, 1_000_000, "the node of which rank", 0)
_TARGET = Words("target_path", "absolute, inside the group's own mounts", r"^/", TARGET_MAX)
_LIMIT = Whole("limit", 1, FILE_NAMES_PAGE, "at most so many names", 200)
_CURSOR = Words("cursor", "of the page before", r"^([0-9a-f]{2}){1,255}$", 510)
_OVERWRITE = Flag("overwrite", "replace a file that is there")
_PARENTS = Flag("parents", "make directories that are missing")
_UPLOAD = Words("upload", "an id of your own: the file comes in parts of at most 64 MiB", r"^[A-Za-z0-9_-]{8,64}$", 64)
_OFFSET = Whole("offset", 0, FILE_SIZE_MAX, "of this part in the file; with upload", 0)
_SIZE = Whole("size", 0, FILE_SIZE_MAX, "of the whole file; with upload")
_SHA256 = Words("sha256", "of the whole file: refused where another arrived", r"^[0-9a-f]{64}$", 64)
_LISTING = (_TARGET, _LIMIT, _CURSOR)
_WRITING = (_TARGET, _OVERWRITE, _PARENTS, _UPLOAD, _OFFSET, _SIZE, _SHA256)
_ASKING = (
    ("Range", "bytes=A-B, bytes=A- or bytes=-N; several ranges are answered with the whole"),
    ("If-Range", "the ETag of the file that the range is of; another one is sent whole"),
    ("If-Match", "the ETag of the file that is wanted; another one is 412"),
)
_listed = partial(Described, answer=FileList, problems=(409,))
_sent = partial(Described, answer=_BYTES, kind=BINARY, statuses=(200, 206), problems=(409, 412, 416), asking=_ASKING)
_written = partial(Described, answer=FileWritten, body=_BYTES, body_kind=BINARY, problems=(409, 507))


@dataclass(frozen=True, slots=True)
class Holder:
    """Where the files of one rank are. address: of its agent, "" where that is unknown; lost: why its node is held for
    lost, else empty."""

    key: TaskId
    group: dict[str, Any]
    node: str
    address: str
    lost: str
    reading: Reading

    @property
    def mounts(self) -> tuple[MountPoint, ...]:
        return mount_points(self.group["document"], self.group["checkpoint_path"])


@routes.get("/api/v1/task-groups/{group_id}/files")
@needs(Permission.READ_GROUPS)
@_listed("Files of a group", parameters=(CONSISTENCY, _RANK, *_LISTING))
async def group_files(request: web.Request) -> web.Response:
    """Of one directory below the group's mounts, or the mounts where no target_path is given; by the node of a rank of
    the newest attempt, also after the group has ended."""
    return await _list(request, *_of_group(request))


@routes.get("/api/v1/tasks/{task}/files")
@needs(Permission.READ_GROUPS)
@_listed("Files of one rank", parameters=(CONSISTENCY, *_LISTING))
async def task_files(request: web.Request) -> web.Response:
    """By the node that runs or ran it. task: GROUP.ATTEMPT.RANK."""
    return await _list(request, *_of_task(request))


@routes.get("/api/v1/task-groups/{group_id}/files/content")
@needs(Permission.READ_GROUPS)
@_sent("A file of a group, or a part of it", parameters=(CONSISTENCY, _RANK, _TARGET))
async def group_file(request: web.Request) -> web.StreamResponse:
    """Bytes as they are, by the node of a rank of the newest attempt. An answer that ends before its Content-Length was
    cut: go on with Range and If-Range."""
    return await _send(request, *_of_group(request))


@routes.get("/api/v1/tasks/{task}/files/content")
@needs(Permission.READ_GROUPS)
@_sent("A file of one rank, or a part of it", parameters=(CONSISTENCY, _TARGET))
async def task_file(request: web.Request) -> web.StreamResponse:
    """By the node that runs or ran it. task: GROUP.ATTEMPT.RANK."""
    return await _send(request, *_of_task(request))


@routes.put("/api/v1/task-groups/{group_id}/files/content")
@needs(Permission.WRITE_GROUPS)
@_written("Upload a file", parameters=(_RANK, *_WRITING))
async def put_group_file(request: web.Request) -> web.Response:
    """The file appears whole or not at all. Without `upload` the body is the whole file, and one that breaks off leaves
    nothing; with it the body is a part, which may be sent again, and `received` says where to go on."""
    return await _receive(request, *_of_group(request))


@routes.put("/api/v1/tasks/{task}/files/content")
@needs(Permission.WRITE_GROUPS)
@_written("Upload a file to the node of one rank", parameters=_WRITING)
async def put_task_file(request: web.Request) -> web.Response:
    """As for a group. task: GROUP.ATTEMPT.RANK."""
    return await _receive(request, *_of_task(request))


@routes.get("/mesh/v1/files/{group_id}/{attempt}/{rank}")
@needs(Permission.READ_GROUPS, peer=True)
@_listed("Files of one rank, by the host that has them", parameters=_LISTING)
async def files_here(request: web.Request) -> web.Response:
    holder = await _here(request)
    return answer(request, await _list_here(request, holder, _place(holder, _TARGET.read(request))))


@routes.get("/mesh/v1/files/{group_id}/{attempt}/{rank}/content")
@needs(Permission.READ_GROUPS, peer=True)
@_sent("A file, by the host that has it", parameters=(_TARGET,))
async def file_here(request: web.Request) -> web.StreamResponse:
    holder = await _here(request)
    return await _send_here(request, _named(holder, _TARGET.read(request)))


@routes.put("/mesh/v1/files/{group_id}/{attempt}/{rank}/content")
@needs(Permission.WRITE_GROUPS, peer=True)
@_written("Upload a file to this host", parameters=_WRITING)
async def put_file_here(request: web.Request) -> web.Response:
    holder = await _here(request)
    size, place = _checked_writing(request), _named(holder, _TARGET.read(request))
    return answer(request, await _receive_here(request, holder, place, size))


async def _list(request: web.Request, group_id: str, attempt: int | None, rank: int) -> web.Response:
    target_path = _TARGET.read(request)
    _LIMIT.read(request), _CURSOR.read(request)
    holder = await _holder(request, group_id, attempt, rank)
    place = _place(holder, target_path)
    if place is None:
        shown: Any = _listing(holder, "", "mounts")
    elif holder.node == _service(request).node_id:
        shown = await _list_here(request, holder, place)
    else:
        shown = await _peer(request, holder).list(_said(request, _LISTING))
    return answer_reading(request, shown, holder.reading)


async def _send(request: web.Request, group_id: str, attempt: int | None, rank: int) -> web.StreamResponse:
    holder = await _holder(request, group_id, attempt, rank)
    place = _named(holder, _TARGET.read(request))
    if request.method != hdrs.METH_HEAD:
        await _told(request, "RecordDownload", holder, place, "")
    if holder.node == _service(request).node_id:
        return await _send_here(request, place, holder.reading.headers)
    source = await _peer(request, holder).source(place.path)
    return await _send_source(request, place, source, holder.reading.headers)


async def _receive(request: web.Request, group_id: str, attempt: int | None, rank: int) -> web.Response:
    holder = await _holder(request, group_id, attempt, rank)
    size, place = _checked_writing(request), _named(holder, _TARGET.read(request))
    await _told(request, "RecordUpload", holder, place, _UPLOAD.read(request))
    if holder.node == _service(request).node_id:
        return answer(request, await _receive_here(request, holder, place, size))
    body = file_stream.Body(request, bool(_UPLOAD.read(request)))
    peer = _peer(request, holder)
    with _service(request).transfer(_caller(request)):
        put = peer.put(_said(request, _WRITING), request.content_length, body.pieces())
        return answer(request, await file_stream.while_allowed(request, body.judged(put)))


async def _list_here(request: web.Request, holder: Holder, place: Place | None) -> FileList:
    if place is None:
        return _listing(holder, "", "mounts")
    files, limit = _service(request).files, _LIMIT.read(request)
    after = os.fsdecode(bytes.fromhex(_CURSOR.read(request)))
    async with DiskThread() as disk:
        found = await disk.call(partial(files.list, place, after, limit), _LIST_S)
    cursor = os.fsencode(found.after).hex() or None
    listing = _listing(holder, place.path, found.type)
    return {**listing, "entries": found.entries, "cursor": cursor, "cut": found.cut}


async def _send_here(request: web.Request, place: Place, headers: dict[str, str] | None = None) -> web.StreamResponse:
    async with DiskThread() as disk:

        def opened() -> LocalSource:
            found = _service(request).files.open(place)
            disk.at_end(lambda: os.close(found.descriptor))
            return LocalSource(disk, found)

        return await _send_source(request, place, await disk.call(opened), headers or {})


async def _send_source(
    request: web.Request, place: Place, source: Source, headers: dict[str, str]
) -> web.StreamResponse:
    if not if_match_holds(request.headers.get(hdrs.IF_MATCH), source.tag):
        problem = Problem("file_changed", f"{place.path} is another file now", "begin again", status=412)
        return problem_answer(request, problem)
    asked = request.headers.get(hdrs.RANGE) if if_range_holds(request.headers.get(hdrs.IF_RANGE), source.tag) else None
    try:
        span = span_of(asked, source.size) if request.method == hdrs.METH_GET else None
    except NotSatisfiable:
        text = f"{place.path} has {source.size} bytes, and none of them is in the range"
        problem = Problem("range_not_satisfiable", text, "ask for less", status=416)
        return problem_answer(request, problem, {hdrs.CONTENT_RANGE: f"bytes */{source.size}"})
    shown = headers | {
        hdrs.CONTENT_TYPE: BINARY,
        hdrs.CONTENT_DISPOSITION: file_stream.attachment(place.path.rpartition("/")[2]),
        hdrs.ACCEPT_RANGES: "bytes",
        hdrs.ETAG: source.tag,
        hdrs.LAST_MODIFIED: source.last_modified,
        # Whatever a browser makes of it, it runs nothing.
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    with _service(request).transfer(_caller(request)):
        return await file_stream.send(request, source, span or Span(0, source.size), span is not None, shown)


async def _receive_here(request: web.Request, holder: Holder, place: Place, size: int | None) -> FileWritten:
    service, upload = _service(request), _UPLOAD.read(request)
    order = UploadOrder(
        place,
        holder.key.group_id,
        upload,
        _OFFSET.read(request),
        size,
        _OVERWRITE.read(request),
        _PARENTS.read(request),
        _SHA256.read(request),
    )
    body = file_stream.Body(request, bool(upload))
    with service.transfer(_caller(request)):
        received = await file_stream.while_allowed(request, service.uploads.receive(order, body.blocks()))
    return {
        "target_path": place.path,
        "node_id": service.node_id,
        "received": received.size,
        "complete": received.sha256 is not None,
        "sha256": received.sha256,
    }


async def _holder(request: web.Request, group_id: str, attempt: int | None, rank: int) -> Holder:
    """attempt: None for the one that was placed last. Raises NotFound, Conflict."""
    reading = await read(request, {"get": ["group", group_id]})
    group = _visible(request, group_id, reading.results[0])
    if not group["attempt"]:
        raise Conflict(
            "not_placed",
            f"group {group_id} has not been placed on any node yet, so none is known to have its files",
            "`heteroflow why` says what it waits for",
        )
    key = TaskId(group_id, group["attempt"] if attempt is None else attempt, rank)
    task = (await read(request, {"get": ["task", f"{group_id}/{key.attempt:04d}/{rank:05d}"]})).results[0]
    if task is None:
        raise no_such_task(key)
    node = (await read(request, {"get": ["node", task["node"]]})).results[0]
    lost = "it is not in the mesh any more"
    if node is not None:
        lost = f"since {iso_utc(node['lost_ms'])}" if node["state"] == "lost" and node["lost_ms"] else ""
    return Holder(key, group, str(task["node"]), str(node["api_addr"]) if node is not None else "", lost, reading)


async def _here(request: web.Request) -> Holder:
    """Of a route between agents: this host judges by what it reads itself. Raises NotFound."""
    attempt, rank = request.match_info["attempt"], request.match_info["rank"]
    key = checked_task_id(f"{request.match_info['group_id']}.{attempt}.{rank}")
    asked = [{"get": ["group", key.group_id]}, {"get": ["task", f"{key.group_id}/{key.attempt:04d}/{key.rank:05d}"]}]
    node = _service(request).node_id
    for level in ("stale", "linearizable"):
        found = await mesh_of(request).query(asked, level=level)
        group, task = found["results"]
        if group is not None and task is not None and task["node"] == node:
            group = _visible(request, key.group_id, group)
            return Holder(key, group, node, "", "", Reading(found["results"], reading_headers(request, found)))
    _visible(request, key.group_id, group)
    raise no_such_task(key)


def _visible(request: web.Request, group_id: str, group: dict[str, Any] | None) -> dict[str, Any]:
    with contextlib.suppress(NotFound):
        return visible(request, group_id, group)
    raise NotFound(
        "no_such_group",
        f"there is no task group {group_id[:80]!r}",
        "the files of a group that was removed stay where they are, and are not served any more",
    )


def _place(holder: Holder, target_path: str) -> Place | None:
    return place_of(target_path, holder.mounts) if target_path else None


def _named(holder: Holder, target_path: str) -> Place:
    if (place := _place(holder, target_path)) is None:
        raise refused(_TARGET.name, "", "is missing", "give the absolute path of a file")
    return place


def _listing(holder: Holder, target_path: str, kind: str) -> FileList:
    return {
        "group_id": holder.key.group_id,
        "attempt": holder.key.attempt,
        "rank": holder.key.rank,
        "node_id": holder.node,
        "target_path": target_path,
        "type": kind,
        "mounts": [{"target": m.target, "source": m.source, "read_only": m.read_only} for m in holder.mounts],
        "entries": [],
        "cursor": None,
        "cut": False,
    }


def _peer(request: web.Request, holder: Holder) -> Peer:
    session, key = _service(request).session_to_peers, holder.key
    url = f"http://{holder.address}/mesh/v1/files/{key.group_id}/{key.attempt}/{key.rank}"
    peer = Peer(session, holder.node, url, on_behalf(request), holder.lost)
    if not holder.address:
        raise peer.silent(ValueError(holder.lost))
    return peer


async def _told(request: web.Request, what: str, holder: Holder, place: Place, upload: str) -> None:
    """In the audit before a byte moves; once for the ranges of a download and the parts of an upload."""
    service, key = _service(request), holder.key
    same = (what, _caller(request), key, place.path, upload)
    if service.told(same):
        return
    path = place.path.encode("utf-8", "replace").decode()
    said = path if len(path) <= FILE_SAID_MAX else "…" + path[1 - FILE_SAID_MAX :]
    entry = command(what, group_id=key.group_id, attempt=key.attempt, rank=key.rank, path=said)
    await record(request, entry)
    service.tell(same)


def _checked_writing(request: web.Request) -> int | None:
    """The size of the whole file, None where the body's end will tell it. Raises InvalidInput, WrongBodyType."""
    file_stream.require_plain(request, BINARY)
    for parameter in _WRITING:
        parameter.read(request)
    upload, offset, size = _UPLOAD.read(request), _OFFSET.read(request), _SIZE.read(request)
    if not upload:
        if offset:
            raise refused(_OFFSET.name, str(offset), "is of a part", "give upload too")
        if size >= 0 and request.content_length not in (None, size):
            raise refused(_SIZE.name, str(size), "is not what Content-Length says")
        return size if size >= 0 else request.content_length
    if size < 0:
        raise refused(_SIZE.name, "", "is missing", "an upload in parts says how large the whole is")
    if offset > size:
        raise refused(_OFFSET.name, str(offset), "is behind the end")
    return size


def _said(request: web.Request, parameters: tuple[Any, ...]) -> dict[str, str]:
    """What the caller gave of these, once read: another agent reads it again."""
    return {p.name: request.query[p.name] for p in parameters if p.name in request.query}


def _of_group(request: web.Request) -> tuple[str, int | None, int]:
    return checked_group_id(request.match_info["group_id"]), None, _RANK.read(request)


def _of_task(request: web.Request) -> tuple[str, int | None, int]:
    key = checked_task_id(request.match_info["task"])
    return key.group_id, key.attempt, key.rank


def _caller(request: web.Request) -> str:
    caller = caller_of(request)
    return caller.key or caller.kind


def _service(request: web.Request) -> FileService:
    service = request.app[API].files
    if service is None:
        raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
    return service

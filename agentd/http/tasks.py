"""A single container, for who does not want to know of groups: the same document, and what it makes is a group of one
task."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentd.http.body import read_document
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.task_groups import submit_document
from schemas.api import Submitted
from schemas.errors import InvalidInput
from schemas.rules.permissions import Permission
from schemas.task_group import DOCUMENT
from schemas.task_group.document_schema import REQUIRED_OF_TASK
from schemas.task_types import CONTAINER, TRAINING

routes = web.RouteTableDef()
_SECTIONS = ("", TRAINING, "task")
_BODY = {name: part for name, part in DOCUMENT.items() if name not in ("anyOf", "examples")} | {
    "required": ["name", "task"],
    "properties": {
        **DOCUMENT["properties"],
        "task_type": {"enum": [CONTAINER]},
        "task": {**DOCUMENT["properties"]["task"], **REQUIRED_OF_TASK},
    },
    "description": "A task group of one container; task_type may be left out.",
    "examples": [{"name": "tokenise math", "task": {"command": "python tokenise.py", "gpu_required": 0}}],
}


@routes.post("/api/v1/tasks")
@needs(Permission.WRITE_GROUPS)
@Described("Submit one container", answer=Submitted, statuses=(200, 201), body=_BODY, once=True, problems=(422,))
async def submit(request: web.Request) -> web.Response:
    """The id of the answer is the group's: stop, logs and all else are its routes."""
    body: Mapping[str, Any] = await read_document(request)
    task_type = body.get("task_type", CONTAINER)
    if task_type == TRAINING and (where := _preemptible(body)):
        raise InvalidInput(
            "not_for_training",
            "training is never preempted and never preempts, as a single task neither",
            "remove preemptible, and send it to /api/v1/task-groups",
            field=where,
        )
    if task_type != CONTAINER:
        raise InvalidInput(
            "not_for_type",
            "this route takes one container",
            "send what has another task_type to /api/v1/task-groups",
            field="task_type",
        )
    if _several(body):
        raise InvalidInput(
            "single_task",
            "this route takes one container, not several",
            "remove n_nodes, or send it to /api/v1/task-groups",
            field=f"{CONTAINER}.n_nodes",
        )
    return await submit_document(request, {**body, "task_type": CONTAINER})


def _preemptible(body: Mapping[str, Any]) -> str | None:
    """Where it is said, in any spelling of true."""
    for name in _SECTIONS:
        part = body.get(name) if name else body
        if isinstance(part, Mapping) and part.get("preemptible") not in (None, False, "false"):
            return f"{name}.preemptible" if name else "preemptible"
    return None


def _several(body: Mapping[str, Any]) -> bool:
    part = body.get(CONTAINER)
    return isinstance(part, Mapping) and str(part.get("n_nodes", 1)) != "1"

"""Several groups at once. Each is judged and carried out for itself, and what became of it stands beside its id: one
that is refused neither stops the others nor is let through with them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.body import read_document
from agentd.http.context import checked_group_id
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.proposing import request_id_of
from agentd.http.task_groups import delete_group, stop_group
from schemas.api import BatchOutcomes
from schemas.errors import HeteroFlowError, InvalidInput
from schemas.lexemes import Number
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()
BATCH_MAX = 100  # each is an entry of the log; all wait in one request
_BODY_MAX = 16 << 10
_BODY = {
    "type": "object",
    "properties": {
        "group_ids": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": BATCH_MAX,
            "uniqueItems": True,
        }
    },
    "required": ["group_ids"],
    "additionalProperties": False,
}
One = Callable[[web.Request, str, str], Awaitable[dict[str, Any]]]


@routes.post("/api/v1/task-groups/stop")
@needs(Permission.WRITE_GROUPS)
@Described("Stop several groups", answer=BatchOutcomes, body=_BODY, once=True)
async def stop(request: web.Request) -> web.Response:
    return await _each(request, stop_group)


@routes.post("/api/v1/task-groups/delete")
@needs(Permission.WRITE_GROUPS)
@Described("Delete several ended groups", answer=BatchOutcomes, body=_BODY, once=True)
async def delete(request: web.Request) -> web.Response:
    return await _each(request, delete_group)


async def _each(request: web.Request, act: One) -> web.Response:
    group_ids = _group_ids(await read_document(request, _BODY_MAX))
    request_id_of(request)  # a bad one refuses the batch, not each part of it

    async def outcome(group_id: str) -> dict[str, Any]:
        try:
            # Its part of the request id is its own, so that a repeat of the batch does none of them twice.
            done = await act(request, checked_group_id(group_id), group_id)
        except HeteroFlowError as error:
            return {"group_id": group_id, "status": None, "problem": error.problem.to_dict()}
        return {"group_id": group_id, "status": done.get("status", "deleted"), "problem": None}

    return answer(request, {"outcomes": await asyncio.gather(*map(outcome, group_ids))})


def _group_ids(body: dict[str, Any]) -> list[str]:
    """Raises InvalidInput."""
    if unknown := sorted(set(body) - {"group_ids"}):
        raise InvalidInput(
            "unknown_field",
            f"{unknown[0][:80]!r} is no field of this action",
            "use group_ids",
            field=unknown[0][:80],
        )
    given = body.get("group_ids")
    if (
        not isinstance(given, list)
        or not 1 <= len(given) <= BATCH_MAX
        or not all(isinstance(item, str) and not isinstance(item, Number) and item for item in given)
        or len(set(given)) != len(given)
    ):
        raise InvalidInput(
            "invalid_field",
            f"group_ids is not a list of 1 to {BATCH_MAX} different group ids",
            "send more of them in further requests",
            field="group_ids",
        )
    return [str(item) for item in given]

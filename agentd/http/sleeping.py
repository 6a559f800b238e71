"""Sleep and wake of inference groups: known, and not in this version."""

from aiohttp import web

from agentd.http.context import checked_group_id, mesh_of, visible
from agentd.http.description import Described
from agentd.http.needs import needs
from schemas.errors import InvalidInput, NotSupportedYet
from schemas.rules.permissions import Permission
from schemas.task_types import INFERENCE

routes = web.RouteTableDef()


@routes.post("/api/v1/task-groups/{group_id}/{order:sleep|wake}")
@needs(Permission.WRITE_GROUPS)
@Described("Not supported yet: sleep and wake of inference", statuses=(), problems=(422,))
async def sleep(request: web.Request) -> web.Response:
    group_id, way = checked_group_id(request.match_info["group_id"]), request.match_info["order"]
    found = await mesh_of(request).query([{"get": ["group", group_id]}])
    group = visible(request, group_id, found["results"][0])
    if group["task_type"] != INFERENCE:
        raise InvalidInput(
            "not_for_type",
            f"a {group['task_type']} group knows no {way}: only an inference group gives its memory back and goes on",
            "pause or stop it where its cards are needed",
        )
    raise NotSupportedYet(
        "not_supported_yet",
        f"{way} is not supported yet in this version",
        "stop the group where its cards are needed, and resubmit it later",
    )

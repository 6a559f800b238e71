"""Scaling of a group: four ways to ask for it, and one answer for training, whose world is written once."""

from aiohttp import web

from agentd.http.context import checked_group_id, mesh_of, visible
from agentd.http.description import Described
from agentd.http.needs import needs
from schemas.errors import InvalidInput, NotSupportedYet
from schemas.rules.permissions import Permission
from schemas.task_types import TRAINING

routes = web.RouteTableDef()
_WAYS = {
    "scale": "scaled by hand",
    "autoscale": "scaled up or down by itself, nor may its scale-down be switched on",
}


@routes.post("/api/v1/task-groups/{group_id}/{way:scale|autoscale}")
@routes.put("/api/v1/task-groups/{group_id}/{way:scale|autoscale}")
@routes.patch("/api/v1/task-groups/{group_id}/{way:scale|autoscale}")
@needs(Permission.WRITE_GROUPS)
@Described("Refused for training: its world is fixed", statuses=(), problems=(422,))
async def scale(request: web.Request) -> web.Response:
    """Whatever the body says: ranks that come or go would leave the others waiting in their next collective."""
    group_id, way = checked_group_id(request.match_info["group_id"]), request.match_info["way"]
    found = await mesh_of(request).query([{"get": ["group", group_id]}])
    group = visible(request, group_id, found["results"][0])
    if (kind := group["task_type"]) != TRAINING:
        raise NotSupportedYet(
            "not_supported_yet",
            f"{way} of {kind} groups is not supported yet in this version",
            "submit one more group, or stop one",
        )
    shape = group["document"]["training"]
    raise InvalidInput(
        "static_world",
        f"a training group cannot be {_WAYS[way]}: its world of {shape['world_size']} ranks is fixed at creation",
        "stop it, and clone it with another n_nodes; it goes on from its newest checkpoint",
        field="training.n_nodes",
    )

"""The checkpoints of a group as its ledger has them, and the stop that waits for the next one."""

from aiohttp import web

from agentd.http import checkpoint_view
from agentd.http.answer import answer
from agentd.http.asked import asked_fields
from agentd.http.callers import caller_of
from agentd.http.checkpoint_advice import advice
from agentd.http.context import answer_reading, checked_group_id, read, scan_all, visible
from agentd.http.description import Described
from agentd.http.group_view import moment
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY
from agentd.http.proposing import propose_once
from schemas.api import Checkpoints, StopAsked
from schemas.commands import command, command_refusal
from schemas.errors import InvalidInput
from schemas.limits import LEDGER_MAX, STOP_AFTER_MAX_S
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()


@routes.get("/api/v1/task-groups/{group_id}/checkpoints")
@needs(Permission.READ_GROUPS)
@Described("The checkpoints of a group, newest first", answer=Checkpoints, parameters=(CONSISTENCY,))
async def checkpoints(request: web.Request) -> web.Response:
    """As the host of rank 0 saw them complete, the newest 200; and those that a resume passed over as incomplete.
    `advice`: whether the disk has room, and how often to save by what was measured."""
    group_id = checked_group_id(request.match_info["group_id"])
    reading = await read(request, {"get": ["group", group_id]}, {"scan": ["save", f"{group_id}/", "", LEDGER_MAX]})
    group = visible(request, group_id, reading.results[0])
    rows = [row for _, row in reading.results[1]]
    nodes, _ = await scan_all(request, "node")
    shown = {
        "group_id": group_id,
        "checkpoint_path": group["checkpoint_path"],
        "keep_last_n": checkpoint_view.keep_last_n(group),
        "at_risk": checkpoint_view.at_risk(group),
        "advice": advice(group, rows, [node for _, node in nodes]),
        "checkpoints": checkpoint_view.ledger(group, rows),
    }
    return answer_reading(request, shown, reading)


_WITHIN = {
    "type": "integer",
    "minimum": 1,
    "maximum": STOP_AFTER_MAX_S,
    "default": 3600,
    "description": "seconds; without a checkpoint by then it is stopped all the same",
}
_BODY = {"type": "object", "properties": {"within_s": _WITHIN}, "additionalProperties": False}


@routes.post("/api/v1/task-groups/{group_id}/stop-after-checkpoint")
@needs(Permission.WRITE_GROUPS)
@Described("Stop a group after its next checkpoint", answer=StopAsked, body=_BODY, once=True)
async def stop_after_checkpoint(request: web.Request) -> web.Response:
    """It runs on until then; what does not run is stopped at once."""
    group_id = checked_group_id(request.match_info["group_id"])
    fields = await asked_fields(request, _BODY)
    proposed = command("StopAfterCheckpoint", group_id=group_id, by=caller_of(request).name, **fields)
    refusal = command_refusal(proposed)
    if refusal is not None:
        raise InvalidInput("invalid_parameter", refusal.message, refusal.hint, refusal.field, refusal.findings)
    data = await propose_once(request, proposed, f"stop after checkpoint {group_id} {fields['within_s']}".encode())
    deadline_ms = data.get("deadline_ms")
    shown = {"group_id": group_id, "status": data["status"], "deadline_at": moment(deadline_ms)}
    return answer(request, shown)

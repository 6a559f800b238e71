"""What has risen, as the leader's agent judged it."""

from typing import Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.callers import caller_of
from agentd.http.context import telemetry_of, visible_ids
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.page import page_of
from agentd.http.parameter import Choice, Words, limit
from schemas.api import Alerts
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()
_STATE = Choice("state", ("raised", "cleared", "all"), "cleared: of the last hour", "raised")
_LIMIT = limit(10_000, 10_000)
_CURSOR = Words("cursor", "of the page before")


@routes.get("/api/v1/alerts")
@needs(Permission.READ_GROUPS)
@Described("What has risen", answer=Alerts, parameters=(_STATE, _LIMIT, _CURSOR))
async def alerts(request: web.Request) -> web.Response:
    """As the leader's agent judged it: what stands, then what has cleared, each newest first."""
    state = _STATE.read(request)
    most, after = _LIMIT.read(request), _CURSOR.read(request)
    picture = await telemetry_of(request).leader.picture()
    shown = [*(picture.raised if state != "cleared" else ()), *(picture.cleared if state != "raised" else ())]
    seen = await visible_ids(request, (alert["group_id"] for alert in shown if alert["group_id"]))
    nodes = caller_of(request).may(Permission.READ_MESH)
    shown = [alert for alert in shown if (alert["group_id"] in seen if alert["group_id"] else nodes)]
    page, cursor = page_of(shown, after, most, _place)
    return answer(request, {"alerts": page, "leader": picture.leader, "cursor": cursor})


def _place(alert: dict[str, Any]) -> str:
    standing = alert["state"] == "raised"
    at = alert["since"] if standing else alert["cleared"]
    return f"{int(not standing)}-{_descending(at)}-{alert['id']}"


def _descending(instant: str) -> str:
    """Sorts the newest first: every digit is what it lacks to nine."""
    return instant.translate(_NINES)


_NINES = str.maketrans("0123456789", "9876543210")

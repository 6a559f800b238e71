"""What runs now, as the nodes last said: to the leader from every node, and from him to whoever asks."""

import time
from typing import Any

from aiohttp import web

from agentd.core.report import Report
from agentd.core.telemetry_blob import BLOB_MAX, CardNow, NodeNow, Progress, TaskNow, by_attempt
from agentd.http.answer import MSGPACK, answer
from agentd.http.body import read_bounded
from agentd.http.callers import caller_of
from agentd.http.context import telemetry_of, visible_ids
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.page import page_of
from agentd.http.parameter import Choices, Words, limit
from agentd.telemetry.leader_agent import CLOCK_HEADER, NODE_HEADER, Picture, pack_picture
from schemas.api import Telemetry
from schemas.errors import InvalidInput
from schemas.ids import node_id_refusal
from schemas.limits import NODES_MAX
from schemas.rules.permissions import Permission
from schemas.rules.tfevents.report import json_number

routes = web.RouteTableDef()
_GROUP = Words("group", "only this one")
_PARTS = Choices(
    "parts",
    ("ranks", "nodes", "none"),
    "ranks of groups, and nodes, are most of a large answer; both if not given, `none` is neither",
)
_LIMIT = limit(2 * NODES_MAX, 2 * NODES_MAX)
_CURSOR = Words("cursor", "of the page before: groups come first, then nodes")
_BINARY = {"type": "string", "format": "binary"}


@routes.post("/mesh/v1/telemetry")
@needs(Permission.PEER)
@Described(
    "A node's last observations, for the leader's agent",
    statuses=(204,),
    body=_BINARY,
    body_kind=MSGPACK,
    headers=((NODE_HEADER, "the node they are of"),),
)
async def take(request: web.Request) -> web.Response:
    node = request.headers.get(NODE_HEADER, "")
    if (refusal := node_id_refusal(node)) is not None:
        raise InvalidInput("invalid_node", refusal, field=NODE_HEADER)
    telemetry_of(request).desk.take(node, await read_bounded(request, BLOB_MAX))
    return web.Response(status=204, headers={CLOCK_HEADER: f"{time.time():.6f}"})


@routes.get("/mesh/v1/telemetry")
@needs(Permission.PEER)
@Described("All observations, verdicts and alerts", kind=MSGPACK, answer={})
async def give(request: web.Request) -> web.Response:
    return web.Response(body=pack_picture(telemetry_of(request).desk), content_type=MSGPACK)


@routes.get("/api/v1/telemetry")
@needs(Permission.READ_GROUPS)
@Described("What runs now, as the nodes last said", answer=Telemetry, parameters=(_GROUP, _PARTS, _LIMIT, _CURSOR))
async def telemetry(request: web.Request) -> web.Response:
    """Groups are those of which any rank is alive."""
    wanted = _GROUP.read(request)
    parts = _PARTS.read(request) if _PARTS.name in request.query else list(_PARTS.values)
    most, after = _LIMIT.read(request), _CURSOR.read(request)
    picture = await telemetry_of(request).leader.picture()
    by_group = by_attempt(picture.nodes)
    seen = await visible_ids(request, (group_id for group_id, _ in by_group))
    places: list[tuple[str, Any]] = [
        (f"group/{key[0]}/{key[1]:06d}", (key, ranks))
        for key, ranks in by_group.items()
        if key[0] in seen and (not wanted or key[0] == wanted)
    ]
    if not wanted and "nodes" in parts and caller_of(request).may(Permission.READ_MESH):
        places += [(f"node/{node.node_id}", node) for node in picture.nodes]
    places.sort(key=lambda entry: entry[0])
    page, cursor = page_of(places, after, most, lambda entry: entry[0])
    groups = [
        group_answer(picture, *found) | ({} if "ranks" in parts else {"ranks": []})
        for place, found in page
        if place.startswith("group/")
    ]
    nodes = [node_answer(found) for place, found in page if place.startswith("node/")]
    return answer(request, {"leader": picture.leader, "groups": groups, "nodes": nodes, "cursor": cursor})


def group_answer(picture: Picture, key: tuple[str, int], ranks: list[tuple[NodeNow, TaskNow]]) -> dict[str, Any]:
    first = next((task for _, task in ranks if task.rank == 0), None)
    cards = [card for node, task in ranks for card in node.cards if card.uuid in task.cards]
    utils = [card.util for card in cards if card.util is not None]
    verdict = picture.verdicts.get(key, {"state": "unjudged", "text": "not judged yet"})
    progress = first.progress if first is not None else None
    return {
        "group_id": key[0],
        "attempt": key[1],
        **progress_answer(progress),
        "report": report_answer(first.report if first is not None else None),
        "curve_state": first.curve_state if first is not None else None,
        "curve_text": first.curve_text if first is not None else None,
        "gpu_util": round(sum(utils) / len(utils), 1) if utils else None,
        "gpus": len(cards),
        "gpus_unknown": len(cards) - len(utils),
        "simulated": any(node.simulated for node, _ in ranks),
        "stall": verdict["state"],
        "stall_text": verdict["text"],
        "ranks": [rank_answer(node, task) for node, task in ranks],
    }


def progress_answer(progress: Progress | None) -> dict[str, Any]:
    if progress is None:
        return {"loss_tag": None, "step": None, "loss": None, "wall": None, "age_s": None}
    return {
        "loss_tag": progress.tag,
        "step": progress.step,
        "loss": json_number(progress.value),
        "wall": json_number(progress.wall),
        "age_s": json_number(round(progress.age_s, 1)),
    }


def report_answer(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    told = report.to_dict()
    numbers = {name: None if told[name] is None else json_number(told[name]) for name in ("loss", "lr", "epoch")}
    metrics = {name: json_number(value) for name, value in told["metrics"].items()}
    return told | numbers | {"metrics": metrics, "age_s": json_number(round(report.stepped_s, 1))}


def rank_answer(node: NodeNow, task: TaskNow) -> dict[str, Any]:
    return {
        "rank": task.rank,
        "node_id": node.node_id,
        "running": task.running,
        "cpu_percent": None if task.cpu_percent is None else round(task.cpu_percent, 1),
        "log_silent_s": None if task.log is None else task.log.seconds,
        "cards": [card_answer(card) for card in node.cards if card.uuid in task.cards],
    }


def node_answer(node: NodeNow) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "simulated": node.simulated,
        "tasks": len(node.tasks),
        "cards": [card_answer(card) for card in node.cards],
    }


def card_answer(card: CardNow) -> dict[str, Any]:
    """None is what could not be read."""
    return {
        "uuid": card.uuid,
        "util": None if card.util is None else round(card.util, 1),
        "memory_used_mb": card.memory_mb,
        "temperature_c": card.temperature_c,
        "power_w": card.power_w,
    }

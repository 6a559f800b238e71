"""Cards of one task, now and over time, from the host that runs or ran it."""

import json
from typing import Any

import aiohttp
from aiohttp import web

from agentd.http.answer import answer
from agentd.http.callers import caller_of, on_behalf
from agentd.http.context import (
    answer_reading,
    checked_task_id,
    no_such_task,
    read,
    require_visible,
    telemetry_of,
)
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Whole
from agentd.http.telemetry import card_answer
from agentd.runtime.base import TaskId
from agentd.telemetry.history import TaskSample
from agentd.telemetry.node_telemetry import task_name
from schemas.api import CardHistory, GpuMetrics
from schemas.errors import HeteroFlowError
from schemas.instants import iso_utc
from schemas.rules.permissions import Permission
from schemas.rules.tfevents.report import json_number

routes = web.RouteTableDef()
_REMOTE_S = 10.0
_SINCE = Whole("since_ms", 0, (1 << 53) - 1, "Unix milliseconds: only later samples", 0)
_POINTS = Whole("points", 1, 10_000, "the newest that many", 360)


@routes.get("/api/v1/tasks/{task}/gpu-metrics")
@needs(Permission.READ_GROUPS)
@Described("Cards of one rank, now and over time", answer=GpuMetrics, parameters=(CONSISTENCY, _SINCE, _POINTS))
async def gpu_metrics(request: web.Request) -> web.Response:
    """By the host that runs or ran it. task: GROUP.ATTEMPT.RANK."""
    task_id = checked_task_id(request.match_info["task"])
    since_ms, points = _range(request)
    key = f"{task_id.group_id}/{task_id.attempt:04d}/{task_id.rank:05d}"
    reading = await read(request, {"get": ["task", key]}, {"get": ["group", task_id.group_id]})
    row, group = reading.results
    if row is None or group is None or not caller_of(request).sees(str(group["tenant"])):
        raise no_such_task(task_id)
    node = str(row["node"])
    about: dict[str, Any] = {
        "task_id": task_name(task_id),
        "group_id": task_id.group_id,
        "attempt": task_id.attempt,
        "rank": task_id.rank,
        "node_id": node,
        "status": row["status"],
    }
    return answer_reading(request, about | await _from_host(request, task_id, node, since_ms, points), reading)


@routes.get("/mesh/v1/gpu-metrics/{task}")
@needs(Permission.READ_GROUPS, peer=True)
@Described("Cards of one rank, by the host that has its samples", answer=CardHistory, parameters=(_SINCE, _POINTS))
async def gpu_metrics_here(request: web.Request) -> web.Response:
    task_id = checked_task_id(request.match_info["task"])
    await require_visible(request, task_id.group_id)
    return answer(request, await _here(request, task_id, *_range(request)))


async def _from_host(request: web.Request, task_id: TaskId, node: str, since_ms: int, points: int) -> dict[str, Any]:
    telemetry = telemetry_of(request)
    if node == telemetry.node_id:
        return await _here(request, task_id, since_ms, points)
    try:
        url = f"http://{await telemetry.leader.address(node)}/mesh/v1/gpu-metrics/{task_name(task_id)}"
        timeout = aiohttp.ClientTimeout(total=_REMOTE_S, sock_connect=3.0)
        parameters = {"since_ms": str(since_ms), "points": str(points)}
        session, headers = telemetry.leader.session, on_behalf(request)
        async with session.get(url, params=parameters, headers=headers, timeout=timeout) as response:
            if response.status == 200:
                value: dict[str, Any] = json.loads(await response.read())
                return value
            why = f"its agent answered {response.status}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, HeteroFlowError) as error:
        why = str(error) or type(error).__name__
    text = f"node {node}, which has the samples, does not answer ({why})"
    return {"state": "probe_failed", "text": text, "simulated": None, "now": None, "samples": []}


async def _here(request: web.Request, task_id: TaskId, since_ms: int, points: int) -> dict[str, Any]:
    """state: live while the task runs, ended, or no_samples."""
    telemetry = telemetry_of(request)
    samples = await telemetry.history.read(task_name(task_id), since_ms, points)
    now = telemetry.cards_of(task_id)
    state = "live" if now is not None else "ended" if samples else "no_samples"
    return {
        "state": state,
        "text": "" if state != "no_samples" else "no sample of it is kept: it has only begun, or is long over",
        "simulated": telemetry.simulated,
        "now": None if now is None else [card_answer(card) for card in now],
        "samples": [_sample(sample) for sample in samples],
    }


def _sample(sample: TaskSample) -> dict[str, Any]:
    return {
        "at": iso_utc(sample.at_ms),
        "at_ms": sample.at_ms,
        "cpu_percent": None if sample.cpu_percent is None else round(sample.cpu_percent, 1),
        "step": sample.step,
        "loss": None if sample.loss is None else json_number(sample.loss),
        "cards": [card_answer(card) for card in sample.cards],
    }


def _range(request: web.Request) -> tuple[int, int]:
    return _SINCE.read(request), _POINTS.read(request)

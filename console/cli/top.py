"""heteroflow top"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.ls import cards, run_time
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, coarse, number, status_text
from schemas.api import GroupNow, GroupSummary
from schemas.states import PLACED

if TYPE_CHECKING:
    from console.client import MeshClient

_PAGE = 1000
_STALLS = {"moving": "", "stalled": "! stalled", "unjudged": "?"}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    groups, now_ms = await _placed(client)
    telemetry = (await client.read("/api/v1/telemetry")).value
    said: dict[tuple[str, int], GroupNow] = {(item["group_id"], item["attempt"]): item for item in telemetry["groups"]}
    pairs = [(group, said.get((group["group_id"], group["attempt"]))) for group in groups]
    if args.output == "json":
        terminal.json({"groups": [{**group, "now": now} for group, now in pairs]})
        return 0
    if not pairs:
        terminal.note("nothing runs")
        return 0
    head = ("NAME", "STATUS", "GPU", "RUN", "STEP", "LOSS", "AGE", "GPU %", "ID", "NOTE")
    rows = [_row(group, now, now_ms) for group, now in pairs]
    terminal.table(head, rows, right=("GPU", "RUN", "STEP", "LOSS", "AGE", "GPU %"))
    if any(now is not None and now["simulated"] for _, now in pairs):
        terminal.note("cards are simulated: their GPU % is the processor use of the job")
    return 0


async def _placed(client: "MeshClient") -> tuple[list[GroupSummary], int]:
    params = {"status": ",".join(sorted(PLACED)), "limit": str(_PAGE)}
    groups: list[GroupSummary] = []
    while True:
        answer = await client.read("/api/v1/task-groups", params)
        groups += answer.value["groups"]
        cursor = answer.value.get("cursor")
        if cursor is None:
            return groups, answer.now_ms
        params["cursor"] = str(cursor)


def _row(group: GroupSummary, now: GroupNow | None, now_ms: int) -> tuple[str, ...]:
    head = (group["name"], status_text(group["status"]), cards(group), run_time(group, now_ms))
    if now is None:
        return (*head, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, group["group_id"], "not heard of yet")
    return (
        *head,
        number(now["step"]),
        _value(now["loss"]),
        _age(now["age_s"]),
        _util(now),
        group["group_id"],
        _note(now),
    )


def _value(value: float | str | None) -> str:
    return UNKNOWN if value is None else f"{float(value):.7g}"


def _age(age_s: float | str | None) -> str:
    return coarse(int(min(age_s, 1e12) * 1000)) if isinstance(age_s, int | float) else UNKNOWN


def _util(now: GroupNow) -> str:
    """What some cards do not tell is marked: the number is that of the others."""
    if now["gpu_util"] is None:
        return UNKNOWN
    return f"{now['gpu_util']:.0f}" + ("?" if now["gpus_unknown"] else "")


def _note(now: GroupNow) -> str:
    if now["stall"] == "stalled" or (now["stall"] == "unjudged" and now["step"] is not None):
        return f"{_STALLS[now['stall']]} {now['stall_text']}"
    state: Any = now["curve_state"]
    return str(now["curve_text"]) if state in ("nan", "unreadable", "probe_failed", "no_log", "no_points") else ""


VERB = Verb(_add_arguments, _run)

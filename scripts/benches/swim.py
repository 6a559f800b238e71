"""From kill -9 until the first and the last of the others call it dead, beside Serf at equal timings (profile lan,
whose knobs and values are memberlist's), both at once on one machine: 5, 10 and 20 processes each, on loopback
addresses of their own. Then eight spinning processes: nobody may be called dead. CPU and memory are of members at rest.

Only the gossip driver runs in our processes, not an agent. Serf is Debian's `serf`; without it ours is measured alone.
"""

import asyncio
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scripts.benches.swim_bench.swarm import Swarm, ours, serf

PROFILE = "lan"
SIZES = tuple(int(size) for size in os.environ.get("HF_SWIM_SIZES", "5,10,20").split(","))
ROUNDS = int(os.environ.get("HF_BENCH_ROUNDS", "3"))
SPIN_S = float(os.environ.get("HF_SPIN_SECONDS", "20"))
SPINNERS = 8
REST_S = float(os.environ.get("HF_REST_SECONDS", "8"))
WHOLE_WITHIN_S, SEEN_WITHIN_S = 60.0, 60.0


class NotMeasured(Exception):
    """What did not come about in time: the machine is too busy, or the members are broken."""


async def until(what: str, look: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while True:
        if look():
            return
        if time.monotonic() > deadline:
            raise NotMeasured(f"not within {within_s:.0f} s: {what}")
        await asyncio.sleep(0.02)


async def whole(swarms: Sequence[Swarm]) -> None:
    for swarm in swarms:
        await until(f"all {swarm.kind.name} members see all", swarm.whole, WHOLE_WITHIN_S)


async def kill_round(swarm: Swarm, victims: Sequence[str]) -> list[tuple[float, float]]:
    """Seconds to the first and to the last, of each victim."""
    # At any moment of the others' probe intervals.
    await asyncio.sleep(random.random())
    at = await swarm.kill(victims)

    def seen_by_all(victim: str) -> bool:
        return len(swarm.seen(victim)) == swarm.living

    for victim in victims:
        await until(
            f"all {swarm.kind.name} members call {victim} dead",
            partial(seen_by_all, victim),
            SEEN_WITHIN_S,
        )
    seen = [swarm.seen(victim) for victim in victims]
    for victim in victims:
        await swarm.members[victim].reading
        await swarm.start(victim)
    return [(times[0] - at, times[-1] - at) for times in seen]


async def measure_size(count: int, result: dict[str, dict[str, Any]], wrong: list[str], spin: bool) -> None:
    kinds = [ours(PROFILE)] + ([serf(PROFILE)] if shutil.which("serf") else [])
    network = random.randrange(80, 200)
    swarms = [Swarm(kind, network + at, count) for at, kind in enumerate(kinds)]
    try:
        for name in swarms[0].names:
            await asyncio.gather(*[swarm.start(name) for swarm in swarms])
        await whole(swarms)
        if count == SIZES[-1]:
            await rest(swarms, result)
        taken: dict[str, list[tuple[float, float]]] = {swarm.kind.name: [] for swarm in swarms}
        for _ in range(ROUNDS):
            victims = random.sample(swarms[0].names, max(1, count // 5))
            for swarm, times in zip(
                swarms, await asyncio.gather(*[kill_round(swarm, victims) for swarm in swarms]), strict=True
            ):
                taken[swarm.kind.name] += times
            await whole(swarms)
        record(count, taken, result)
        if spin:
            await spinning(swarms, result, wrong)
        for swarm in swarms:
            result["figures"][f"{swarm.kind.name} {count}: false deaths"] = len(swarm.false_deaths)
    finally:
        await asyncio.gather(*[swarm.end() for swarm in swarms])


def record(count: int, taken: dict[str, list[tuple[float, float]]], result: dict[str, dict[str, Any]]) -> None:
    medians: dict[tuple[str, str], float] = {}
    for kind, times in taken.items():
        for part, values in (("first", [first for first, _ in times]), ("all", [last for _, last in times])):
            medians[kind, part] = statistics.median(values)
            result["figures"][f"{kind} {count}: to {part}, s"] = medians[kind, part]
        result["figures"][f"{kind} {count}: kills"] = len(times)
    if "serf" in taken:
        for part in ("first", "all"):
            name = f"mesh/serf {count}: to {part}"
            result["ratios"][name] = medians["mesh", part] / medians["serf", part]
            result["budgets"][name] = "<= 1.0"


async def rest(swarms: Sequence[Swarm], result: dict[str, dict[str, Any]]) -> None:
    before = [swarm.cpu_s() for swarm in swarms]
    began = time.monotonic()
    await asyncio.sleep(REST_S)
    took = time.monotonic() - began
    for swarm, cpu_s in zip(swarms, before, strict=True):
        per_member = (swarm.cpu_s() - cpu_s) / took / swarm.living
        result["figures"][f"{swarm.kind.name}: CPU of a member at rest, %"] = per_member * 100
        result["figures"][f"{swarm.kind.name}: memory of a member, MB"] = swarm.rss_mb()


async def spinning(swarms: Sequence[Swarm], result: dict[str, dict[str, Any]], wrong: list[str]) -> None:
    before = [len(swarm.false_deaths) for swarm in swarms]
    spin = (sys.executable, "-c", "while True: pass")
    spinners = [await asyncio.create_subprocess_exec(*spin) for _ in range(SPINNERS)]
    try:
        await asyncio.sleep(SPIN_S)
    finally:
        for spinner in spinners:
            spinner.kill()
            await spinner.wait()
    for swarm, known in zip(swarms, before, strict=True):
        false = len(swarm.false_deaths) - known
        result["figures"][f"{swarm.kind.name}: false deaths beside {SPINNERS} spinners, {SPIN_S:.0f} s"] = false
        if false and swarm.kind.name == "mesh":
            wrong.append(f"{false} times a living member was called dead beside {SPINNERS} spinners")


async def measure() -> dict[str, Any]:
    result: dict[str, dict[str, Any]] = {"figures": {}, "ratios": {}, "budgets": {}}
    wrong: list[str] = []
    for count in SIZES:
        await measure_size(count, result, wrong, spin=count == SIZES[len(SIZES) // 2])
    return {**result, "wrong": wrong}


def main() -> dict[str, Any]:
    if shutil.which("serf") is None:
        print("without Serf: it is not installed (Debian: serf)", file=sys.stderr)
    return asyncio.run(measure())

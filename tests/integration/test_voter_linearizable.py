"""Histories of real voters under kills and stalls are linearizable."""

import asyncio
import math
import random
import signal
import time
from pathlib import Path

import pytest

from mesh.client import VoterClient
from schemas.errors import HeteroFlowError, OutcomeUnknown
from tests.integration.linearizable import Op, linearizable
from tests.integration.voters import Voters, grows, init, register, requests, voters

KEYS = ("k1", "k2", "k3")
INF = math.inf


@pytest.mark.parametrize(
    ("ops", "verdict"),
    [
        ([Op(0, 1, True, "a"), Op(2, 3, False, "a")], True),
        ([Op(0, 1, True, "a"), Op(2, 3, False, None)], False),
        ([Op(0, 5, True, "a"), Op(1, 2, False, None), Op(3, 4, False, "a")], True),
        ([Op(0, 5, True, "a"), Op(1, 2, False, "a"), Op(3, 4, False, None)], False),
        ([Op(0, INF, True, "a"), Op(1, 2, False, None), Op(3, 4, False, "a")], True),
        ([Op(0, INF, True, "a"), Op(1, 2, False, "a"), Op(3, 4, False, None)], False),
        ([Op(0, INF, True, "a"), Op(1, 2, False, None)], True),
        ([Op(0, 1, True, "a"), Op(0, 1, True, "b"), Op(2, 3, False, "b"), Op(4, 5, False, "a")], False),
    ],
)
def test_the_checker_knows_right_from_wrong(ops: list[Op], verdict: bool) -> None:
    assert linearizable(ops, None) is verdict


class Recorder:
    """Clients that read and write registers: a node's version is the value."""

    def __init__(self, mesh: Voters, seed: int) -> None:
        self.mesh, self.rng = mesh, random.Random(seed)
        self.history: dict[str, list[Op]] = {key: [] for key in KEYS}
        self.stop = asyncio.Event()
        self.unknown = 0

    async def run(self, c: int) -> None:
        order = [n for n in self.mesh.ids if n != c % 3 + 1]
        client = self.mesh.client(c % 3 + 1, *order)
        count = 0
        while not self.stop.is_set():
            count += 1
            key = self.rng.choice(KEYS)
            if self.rng.random() < 0.5:
                await self.write(client, key, f"{c}-{count}")
            else:
                await self.read(client, key)
            # Slow enough that the search stays small, quick enough to meet every fault.
            await asyncio.sleep(self.rng.random() * 0.02)

    async def write(self, client: VoterClient, key: str, value: str) -> None:
        begun = time.monotonic()
        try:
            await client.propose(register(key, f"u-{key}", version=value), timeout_s=8)
        except OutcomeUnknown:
            self.unknown += 1
            self.history[key].append(Op(begun, INF, True, value))
        except HeteroFlowError:
            return  # surely not done
        else:
            self.history[key].append(Op(begun, time.monotonic(), True, value))

    async def read(self, client: VoterClient, key: str) -> None:
        begun = time.monotonic()
        try:
            row = (await client.query([{"get": ["node", key]}], timeout_s=8))["results"][0]
        except HeteroFlowError:
            return
        self.history[key].append(Op(begun, time.monotonic(), False, row["version"]))

    @property
    def size(self) -> int:
        return sum(map(len, self.history.values()))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "stall"])
async def test_histories_under_faults_are_linearizable(tmp_path: Path, fault: str) -> None:
    async with voters(tmp_path, 3) as mesh:
        mesh.start_all()
        await mesh.client().propose({**init(mesh.roster), "request": next(requests("init"))}, timeout_s=30)
        for key in KEYS:
            request = {"client": "init", "id": key, "digest": "d"}
            await mesh.client().propose({**register(key, f"u-{key}", version="0"), "request": request}, timeout_s=30)
        recorder = Recorder(mesh, seed=7)
        tasks = [asyncio.create_task(recorder.run(c)) for c in range(6)]
        for _ in range(3):
            await grows(lambda: recorder.size, 60, 30)
            leader = await mesh.leader()
            if fault == "kill":
                mesh.kill(leader)
            else:
                mesh.processes[leader].send_signal(signal.SIGSTOP)
            await grows(lambda: recorder.size, 60, 40)
            if fault == "kill":
                mesh.start(leader)
            else:
                mesh.processes[leader].send_signal(signal.SIGCONT)
        recorder.stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        for key, ops in recorder.history.items():
            assert linearizable(ops, "0"), f"{key}: {sorted(ops, key=lambda op: op.begun)}"
        assert recorder.size > 300

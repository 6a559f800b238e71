"""The stall alert of real torchrun jobs, as the console shows it."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scripts.loopback_mesh import processes_of
from tests.docker.test_torchrun import EXAMPLES, TRAIN, World
from tests.terminal.tmux_console import TmuxConsole, tmux_console

PACED = Path(__file__).resolve().parents[1] / "integration" / "paced_trainer.py"
# Above what a busy machine may hold a trainer up by; below the pauses that are to be told apart.
FLAGS = ("--telemetry-every", "0.3", "--stall-after", "5")
WAIT_S = 120.0

pytestmark = [
    pytest.mark.need("torch"),
    pytest.mark.need("tmux"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


@pytest.fixture
def world() -> Iterator[World]:
    made = World("process")
    made.mesh.runtime = (*made.mesh.runtime, *FLAGS)
    try:
        made.mesh.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def console(world: World) -> Iterator[TmuxConsole]:
    with tmux_console(world.root, world.mesh.address(2), world.mesh.token_file) as console:
        console.until("no groups yet")
        yield console


def alerts(world: World, state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.mesh.api(2).call("GET", f"/alerts?state={state}")["alerts"]
    return found


def workers(world: World, rank: int) -> list[int]:
    """The pids outside of whatever the runtime puts between: of torchrun's children, the one of this rank."""
    mark, found = f"\0RANK={rank}\0".encode(), []
    for pid in processes_of(world.root):
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def of(screen: str, name: str) -> str:
    return next((row for row in screen.split("\n") if name in row), "")


def test_a_rank_that_is_held_before_its_all_reduce(world: World, console: TmuxConsole) -> None:
    group = world.submit(world.document(f"{TRAIN} --step-delay 50", steps=1_000_000, checkpoint_every=1_000_000))
    world.says(group, "step 20 loss")
    console.until(lambda screen: "R running" in of(screen, "torch ddp"))
    (pid,) = workers(world, 3)
    os.kill(pid, signal.SIGSTOP)
    try:
        row = of(console.until(lambda screen: "! stalled" in of(screen, "torch ddp")), "torch ddp")
        assert "no step for" in row
        # The banner of the group itself, and the alerts view with what to do.
        console.press("d")
        console.until(lambda screen: "▸ detail" in screen and "! stalled" in screen and "no step for" in screen)
        console.press("5")
        console.until(lambda screen: "▸ alerts" in screen and "no step for" in screen and "resubmit goes on" in screen)
        (alert,) = alerts(world, "raised")
        assert (alert["group_id"], alert["rule"]) == (group, "stalled")
    finally:
        os.kill(pid, signal.SIGCONT)
    console.until("all is well")
    console.press("1")
    console.until(lambda screen: "R running" in of(screen, "torch ddp") and "stalled" not in screen)
    assert [alert["state"] for alert in alerts(world, "all")] == ["cleared"]
    assert world.show(group)["status"] == "running"


def test_what_only_looks_like_a_stall(world: World, console: TmuxConsole) -> None:
    kinds = ("slow_start", "checkpoint", "held_back")
    groups = []
    for kind in kinds:
        document = world.document(f"torchrun --nproc_per_node=$LOCAL_WORLD_SIZE {PACED} {kind}")
        document["name"] = kind.replace("_", "-")
        document["training"] |= {"n_nodes": 1, "per_node_gpu": 1, "checkpoint_path": str(world.root / "of" / kind)}
        document["task"] |= {"gpu_required": 1}
        document["task"]["env"]["PYTHONPATH"] = str(EXAMPLES)
        groups.append(world.submit(document))
    console.until("held-back")
    end = time.monotonic() + WAIT_S
    while (seen := [world.show(group)["status"] for group in groups]) != ["completed"] * len(kinds):
        assert "failed" not in seen and time.monotonic() < end, (seen, [world.lines(group) for group in groups])
        screen = console.screen()
        assert "stalled" not in screen, screen
        time.sleep(0.2)
    assert alerts(world, "all") == []
    # They were looked at: each had steps of its own.
    console.until(lambda screen: all("C completed" in of(screen, kind.replace("_", "-")) for kind in kinds))
    for group in groups:
        tags = world.mesh.api().call("GET", f"/task-groups/{group}/curves")["tags"]
        assert tags["train/loss"], tags

"""A stop reaches the training however its command is written, and what it saves is whole: process and container."""

import shlex
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentd.runtime.base import Mount, Observed, TaskSpec
from tests.contract.test_runtime import DockerHost, Host, ProcessHost, Program
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
GRACE_S = 60.0
# Saves as a training does: whole under another name, then renamed; the sleep is a stop that must wait for it.
SAVE = "sleep 0.3; echo data > $CK/.tmp-$1; mv $CK/.tmp-$1 $CK/step-$1"
WORKER = f"trap '{SAVE}; exit 0' TERM; touch $CK/up-$1; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; touch $CK/up-$1; while :; do sleep 0.05; done"


def worker(number: int, text: str = WORKER) -> str:
    return f"sh -c {shlex.quote(text)} worker {number}"


def inside(text: str) -> str:
    return f"sh -c {shlex.quote(text)}"


# name: the command, the workers it has, and what the task ends with, its code or its signal.
SAVING: dict[str, tuple[str | tuple[str, ...], int, int]] = {
    "a && b; c": (f"true && {worker(1)}; echo last > $CK/last", 1, 0),
    "sh -c of it": (inside(f"true && {worker(1)}; echo last > $CK/last"), 1, 0),
    "two shells deep": (f"true && {inside('cd / && ' + worker(1) + '; code=$?; exit $code')}", 1, 0),
    "its code is kept": (f"{worker(1)}; exit 3", 1, 3),
    "exec": (f"cd / && exec {worker(1)}", 1, 0),
    "a list": (("sh", "-c", WORKER, "worker", "1"), 1, 0),
    "a list of exec": (("sh", "-c", f"exec {worker(1)}"), 1, 0),
    # The launcher hands nothing on; it waits, and its workers are in sessions of their own.
    "own sessions": (f"trap : TERM; setsid {worker(1)} & setsid {worker(2)} & wait; wait; exit 5", 2, 5),
    "a group of processes": (f"trap : TERM; {worker(1)} & {worker(2)} & {worker(3)} & wait; wait", 3, 0),
}


@pytest.fixture(
    params=[
        pytest.param(ProcessHost, id="process"),
        pytest.param(DockerHost, id="docker", marks=pytest.mark.need("docker")),
    ]
)
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(prefix="hf-stop-") as root:
        made: Host = request.param(Path(root))
        (made.root / "checkpoints").mkdir()
        await made.open()
        yield made
        await made.end()


def spec_of(host: Host, command: str | tuple[str, ...]) -> TaskSpec:
    made = host.spec(Program())
    saved = host.root / "checkpoints"
    text, words = (command, ()) if isinstance(command, str) else ("", command)
    if made.container is None:
        return replace(made, shell=text, argv=words, env={**made.env, "CK": str(saved)})
    mounts = (Mount(str(saved), "/checkpoint"),)
    return replace(made, shell=text, argv=words, env={"CK": "/checkpoint"}, mounts=mounts)


async def stopped(host: Host, command: str | tuple[str, ...], workers: int, grace_s: float) -> Observed:
    spec = spec_of(host, command)
    await host.runtime.start(spec)

    async def up() -> bool:
        return len(list((host.root / "checkpoints").glob("up-*"))) == workers

    await eventually(f"{workers} workers to be up", up)
    # A container that is stopped before its shim has seen it start is ended, not asked: it has done nothing yet.
    await host.until(spec.id, "running")
    await host.runtime.stop(spec.id, grace_s, "user")
    return await host.until(spec.id, "exited")


def saved(host: Host) -> list[str]:
    return sorted(
        path.name for path in (host.root / "checkpoints").iterdir() if "step-" in path.name or "tmp" in path.name
    )


@pytest.mark.parametrize("name", SAVING)
async def test_a_stop_leaves_a_whole_checkpoint_of_every_worker(host: Host, name: str) -> None:
    command, workers, code = SAVING[name]
    seen = await stopped(host, command, workers, GRACE_S)
    assert saved(host) == [f"step-{number}" for number in range(1, workers + 1)]
    assert (seen.exit_code, seen.signal, seen.why) == (code, None, "stopped")
    assert (host.root / "checkpoints" / "last").exists() == (isinstance(command, str) and "/last" in command)


@pytest.mark.parametrize(
    "command", [worker(1, DEAF), f"{inside('true && ' + worker(1, DEAF))}; exit 0"], ids=["alone", "in shells"]
)
async def test_who_does_not_listen_is_ended_when_the_grace_is_over(host: Host, command: str) -> None:
    seen = await stopped(host, command, 1, 0.5)
    assert saved(host) == []
    assert (seen.signal, seen.why) == (9, "stopped")


async def test_one_that_listens_saves_beside_one_that_does_not(host: Host) -> None:
    command = f"trap : TERM; setsid {worker(1)} & setsid {worker(2, DEAF)} & wait; wait; wait"
    seen = await stopped(host, command, 2, 5.0)
    assert saved(host) == ["step-1"]
    assert (seen.signal, seen.why) == (9, "stopped")

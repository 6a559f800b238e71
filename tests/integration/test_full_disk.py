"""A job that fills the disk of the data directory with its output: the mesh keeps its log, and says what is missing."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentd.logs.writer import reserved_bytes
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
SIZE = 128 << 20


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[RunningMesh]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=True)
    try:
        async with RunningMesh(disk, n=1, voters=1) as running:
            yield running
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def group(name: str, command: str) -> dict[str, Any]:
    """Without checkpoints, for which there is no room."""
    document = shell_group(name, Path("/"), command, n_nodes=1)
    del document["training"]["checkpoint_path"]
    return document


@pytest.mark.attack(41)
async def test_output_fills_the_disk_and_the_mesh_goes_on(mesh: RunningMesh, tmp_path: Path) -> None:
    flood = f"yes 0123456789abcdef | head -c {2 * SIZE}; touch {tmp_path}/printed; sleep 600"
    group_id = await mesh.submit(group("flood", flood))
    await mesh.status(group_id, "running")

    async def printed() -> bool:
        return (tmp_path / "printed").exists()

    # The program is never held up: what finds no room is left out.
    await eventually("all of the output", printed)
    found = os.statvfs(mesh.directory)
    free = found.f_bavail * found.f_frsize
    kept = reserved_bytes(found.f_blocks * found.f_frsize)
    assert kept // 2 < free < kept + (4 << 20), (free, kept)
    # Writes are taken, and another task is not started here.
    for number in range(20):
        await mesh.submit(group(f"after-{number}", "true"))
    consensus = (await mesh.nodes[0].call("GET", "/mesh")).value["consensus"]
    assert not consensus["disk_full"]
    events = await eventually("what was lost", lambda: _lost(mesh, group_id))
    assert "output" in events[-1]["text"]
    assert (await mesh.group(group_id))["status"] == "running"
    answer = await mesh.nodes[0].call("POST", f"/task-groups/{group_id}/stop")
    assert answer.status == 200, answer
    await mesh.status(group_id, "stopped")


async def _lost(mesh: RunningMesh, group_id: str) -> list[dict[str, Any]] | None:
    answer = await mesh.nodes[0].call("GET", f"/task-groups/{group_id}/fault-events")
    return [event for event in answer.value["events"] if event["kind"] == "log_lost"] or None

"""The mesh of real agents that tests and benches start."""

from scripts.loopback_mesh import LoopbackMesh
from tests.integration.mesh_fixture import RunningMesh

MORE = ("--telemetry-every", "0.4")


def holds(command):
    at = command.index(MORE[0])
    return tuple(command[at : at + 2]) == MORE


def test_flags_reach_the_agent_of_every_node(tmp_path):
    running = RunningMesh(tmp_path, n=3, guard_flags=MORE).loopback
    for mesh in (LoopbackMesh(tmp_path, flags=MORE), running):
        assert all(holds(mesh._command(node)) for node in (1, 2, 3))

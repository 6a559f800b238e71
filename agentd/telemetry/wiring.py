"""The telemetry of one agent, put together."""

from collections.abc import Callable
from pathlib import Path

import aiohttp

from agentd.core.certificate_life import CertificateNow
from agentd.core.rendezvous import RendezvousLimits
from agentd.core.stall import StallLimits
from agentd.gpu.base import GpuAdapter
from agentd.node_feed import NodeFeed
from agentd.runtime.base import Runtime
from agentd.task_plan import GIVEN
from agentd.telemetry.curve_files import CurveFiles
from agentd.telemetry.desk import TelemetryDesk
from agentd.telemetry.history import History
from agentd.telemetry.leader_agent import LeaderAgent
from agentd.telemetry.node_telemetry import NodeTelemetry
from agentd.telemetry.report_pipes import ReportPipes
from agentd.telemetry.stall_end import StallEnd
from agentd.telemetry.task_probe import TaskProbe
from mesh.client import MeshClient
from schemas.rules.frameworks.rank import REPORT_PIPE


def make_telemetry(
    node_id: str,
    mesh: MeshClient,
    session: aiohttp.ClientSession,
    feed: NodeFeed,
    runtime: Runtime,
    cards: GpuAdapter,
    history: Path,
    every_s: float,
    stall_after_s: float,
    certificate: Callable[[], CertificateNow | None] = lambda: None,
    rendezvous_after_s: float = 120.0,
    stall_fails_after_s: float = 1800.0,
) -> NodeTelemetry:
    desk = TelemetryDesk(StallLimits(stall_after_s), every_s, RendezvousLimits(rendezvous_after_s))
    return NodeTelemetry(
        node_id=node_id,
        mesh=mesh,
        feed=feed,
        # The pids of `memory` are invented, and would be those of strangers.
        probe=TaskProbe(cards, runtime.log_dir, runtime.name != "memory", every_s),
        curves=CurveFiles(stall_after_s),
        reports=ReportPipes(lambda task_id: str(Path(runtime.log_dir(task_id)).parent / GIVEN / REPORT_PIPE)),
        history=History(history),
        desk=desk,
        leader=LeaderAgent(node_id, mesh, desk, session),
        every_s=every_s,
        simulated=cards.backend == "simulated",
        certificate=certificate,
        stall_end=StallEnd(stall_fails_after_s),
    )

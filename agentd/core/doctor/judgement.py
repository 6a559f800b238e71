"""All facts of a host to all findings, in the order in which people mend things."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentd.core.doctor.card_rules import card_findings, cuda_findings
from agentd.core.doctor.engine_rules import engine_findings
from agentd.core.doctor.facts import (
    CardFacts,
    ClockFacts,
    CudaFacts,
    DiskFacts,
    EngineFacts,
    NetworkFacts,
    ReachFacts,
    RightsFacts,
    Setup,
    ShareFacts,
    ShmFacts,
)
from agentd.core.doctor.finding import Finding, Unanswered
from agentd.core.doctor.host_rules import (
    clock_findings,
    disk_findings,
    reach_findings,
    rights_findings,
    shm_findings,
)
from agentd.core.doctor.network_rules import network_findings
from agentd.core.doctor.share_rules import share_findings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Facts:
    """What each probe saw, or that it was not heard of in its time."""

    setup: Setup
    rights: RightsFacts | Unanswered
    engine: EngineFacts | Unanswered
    cards: CardFacts | Unanswered
    cuda: CudaFacts | Unanswered
    disk: DiskFacts | Unanswered
    shm: ShmFacts | Unanswered
    reach: ReachFacts | Unanswered
    clock: ClockFacts | Unanswered
    shares: ShareFacts | Unanswered
    network: NetworkFacts | Unanswered


def judge(facts: Facts) -> list[Finding]:
    setup = facts.setup
    cards = 0 if isinstance(facts.cards, Unanswered) else len(facts.cards["cards"])
    wanted = setup["runtime"] == "docker"
    return [
        *_seen("user", facts.rights, lambda rights: rights_findings(rights, setup)),
        *_seen("engine", facts.engine, lambda engine: engine_findings(engine, setup, cards), "fail" if wanted else ""),
        *card_findings(facts.cards, setup),
        *cuda_findings(facts.cuda, cards if setup["gpus"].startswith("nvml") else 0),
        *_seen("shm", facts.shm, shm_findings),
        *disk_findings(facts.disk),
        *_seen("ports", facts.reach, reach_findings),
        *_seen("clock", facts.clock, clock_findings),
        *_seen("shares", facts.shares, share_findings, "fail"),
        *_seen("network", facts.network, network_findings),
    ]


def _seen(
    check: str, facts: T | Unanswered, rule: Callable[[T], Sequence[Finding]], state: str = ""
) -> Sequence[Finding]:
    if not isinstance(facts, Unanswered):
        return rule(facts)
    if state != "fail":
        return [Finding(check, "skipped", f"looking at it {facts.text}")]
    why = "what does not answer a look will not answer a task either"
    return [
        Finding(check, "fail", f"looking at it {facts.text}", why, "look at dmesg and at what hangs: ps -eo stat,args")
    ]

"""`heteroflow-agentd doctor`: facts, findings, and how they are told."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentd.config import AgentConfig
from agentd.core.doctor.facts import Setup
from agentd.core.doctor.finding import Finding, failed
from agentd.core.doctor.judgement import Facts, judge
from agentd.doctor.cards import look_at_cards
from agentd.doctor.cuda import look_at_cuda
from agentd.doctor.engine import look_at_engine
from agentd.doctor.fabric import look_at_network
from agentd.doctor.family import look_at_rights
from agentd.doctor.probe import Look, look_at_all
from agentd.doctor.reach import look_at_clock, look_at_reach
from agentd.doctor.storage import look_at_disk, look_at_shares, look_at_shm

# The engine and CUDA on eight cards take seconds on a healthy host; what takes longer hangs.
WITHIN_S = 20.0
_MARKS: Mapping[str, str] = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL", "skipped": "-   "}


def looks_of(setup: Setup) -> dict[str, Look]:
    """In the names of Facts."""
    looks: dict[str, Look] = {
        "rights": lambda: look_at_rights(setup),
        "engine": lambda: look_at_engine(setup),
        "cards": lambda: look_at_cards(setup),
        "cuda": look_at_cuda,
        "disk": lambda: look_at_disk(setup),
        "shm": look_at_shm,
        "reach": lambda: look_at_reach(setup),
        "clock": lambda: look_at_clock(setup),
        "shares": lambda: look_at_shares(setup),
        "network": look_at_network,
    }
    return looks


def setup_of(config: AgentConfig) -> Setup:
    return {
        "data_dir": str(config.data_dir),
        "runtime": config.runtime,
        "gpus": config.gpus,
        "docker_socket": config.docker_socket,
        "api": str(config.api),
        "voter": str(config.voter),
        "allow_paths": list(config.extra_allowed_paths),
    }


def visit(config: AgentConfig, as_json: bool) -> int:
    """Prints; 1 where something fails."""
    setup = setup_of(config)
    seen: dict[str, Any] = look_at_all(looks_of(setup), WITHIN_S)
    findings = judge(Facts(setup=setup, **seen))
    print(json.dumps([asdict(finding) for finding in findings], indent=1) if as_json else report(findings))
    return 1 if failed(findings) else 0


def report(findings: Sequence[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.state]}  {finding.check:<15}{finding.what}")
        lines += [f"{'':21}{word}: {text}" for word, text in (("why", finding.why), ("fix", finding.fix)) if text]
    counts = {state: sum(finding.state == state for finding in findings) for state in _MARKS}
    fine = "this host can train" if not counts["fail"] else "this host cannot do its work before what fails is mended"
    lines.append(
        f"\n{counts['fail']} fail, {counts['warn']} warn, {counts['ok']} ok, {counts['skipped']} skipped: {fine}"
    )
    return "\n".join(lines)

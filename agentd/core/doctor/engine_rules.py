"""The container engine, its runtimes and the NVIDIA toolkit."""

from collections.abc import Sequence

from agentd.core.doctor.facts import EngineFacts, Setup
from agentd.core.doctor.finding import Finding, State, ok, skipped
from agentd.core.doctor.package_versions import (
    ENGINE_FLOOR,
    RUNC_BACKPORTS,
    RUNC_FLOOR,
    TOOLKIT_FLOOR,
    at_least,
    backport,
    upstream_of,
)


def engine_findings(facts: EngineFacts, setup: Setup, cards: int) -> Sequence[Finding]:
    """cards: NVIDIA cards of this host."""
    if setup["runtime"] != "docker":
        return [skipped("engine", f"runtime {setup['runtime']} needs no container engine")]
    if facts["error"]:
        return [
            Finding(
                "engine",
                "fail",
                facts["error"],
                "no container can be started here, and this node gets no tasks",
                "systemctl start docker (Debian: apt-get install docker.io), or say where it listens: --docker-socket",
            )
        ]
    found = [_engine(facts), _live_restore(facts), _runc(facts), _socket(facts)]
    if cards:
        found.append(_toolkit(facts))
    return found


def _engine(facts: EngineFacts) -> Finding:
    version = upstream_of(facts["version"])
    if version and not at_least(version, ENGINE_FLOOR):
        return Finding(
            "engine",
            "fail",
            f"Docker {version} answers",
            f"versions before {ENGINE_FLOOR} do not take what a task asks for",
            "upgrade the engine",
        )
    return ok("engine", f"Docker {facts['version']} answers")


def _live_restore(facts: EngineFacts) -> Finding:
    if facts["live_restore"]:
        return ok("live-restore", "containers outlive a restart of the engine")
    return Finding(
        "live-restore",
        "fail",
        "live-restore is off",
        "every restart or upgrade of the engine kills all training on this host",
        'put {"live-restore": true} into /etc/docker/daemon.json and say systemctl reload docker',
    )


def _runc(facts: EngineFacts) -> Finding:
    said = next((version for name, version in facts["components"].items() if name.lower() == "runc"), "")
    version, package = upstream_of(said), facts["packages"].get("runc", "")
    if not version:
        return skipped("runc", "the engine does not say which runc it uses")
    if at_least(version, RUNC_FLOOR):
        return ok("runc", f"runc {version}")
    release = (facts["release"][0], facts["release"][1])
    # Only where what runs is the distribution's: another runc may be in the path of the engine.
    mended = backport(package, release, RUNC_BACKPORTS) if package and upstream_of(package) == version else None
    if mended:
        return ok("runc", f"runc {package} has the mends of its distribution")
    if mended is None and package and upstream_of(package) == version:
        return _old(
            "runc", "warn", f"runc {package} of {' '.join(release)}", "whether it has the mend is not known here"
        )
    return _old("runc", "fail", f"runc {package or version}", "a container can break out (CVE-2024-21626)")


def _old(check: str, state: State, what: str, why: str) -> Finding:
    return Finding(check, state, what, why, f"upgrade it: {RUNC_FLOOR} or the security update of your distribution")


def _toolkit(facts: EngineFacts) -> Finding:
    said = facts["toolkit"] or facts["packages"].get("nvidia-container-toolkit", "")
    version = upstream_of(said)
    if not version:
        return Finding(
            "nvidia-toolkit",
            "fail",
            "the NVIDIA container toolkit is not on this host",
            "no container can be given a card",
            "install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker",
        )
    if not at_least(version, TOOLKIT_FLOOR):
        return Finding(
            "nvidia-toolkit",
            "fail",
            f"NVIDIA container toolkit {version}",
            "an image can take over the host (CVE-2024-0132, CVE-2025-23266, CVE-2025-23267)",
            f"upgrade it to {TOOLKIT_FLOOR} or newer",
        )
    return ok("nvidia-toolkit", f"NVIDIA container toolkit {version}")


def _socket(facts: EngineFacts) -> Finding:
    mode = facts["socket_mode"]
    if mode is not None and mode & 0o002:
        return Finding(
            "engine-socket",
            "warn",
            f"the engine's socket may be written by everybody (mode {mode:04o})",
            "whoever may talk to the engine is root on this host",
            "chmod 660 it and keep the group docker small",
        )
    return ok("engine-socket", "the engine's socket is closed to others")

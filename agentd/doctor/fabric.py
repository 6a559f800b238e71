"""Network cards, RDMA ports and NUMA nodes out of /sys."""

import contextlib
import resource
from pathlib import Path

from agentd.core.doctor.facts import NetworkFacts, Nic, RdmaPort
from agentd.doctor.cards import nvidia_cards

_NET, _RDMA = Path("/sys/class/net"), Path("/sys/class/infiniband")


def look_at_network() -> NetworkFacts:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "nics": _nics(),
        "rdma": _ports(),
        "cards_numa": nvidia_cards(),
        "peermem": Path("/sys/module/nvidia_peermem").is_dir(),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
    }


def _nics() -> list[Nic]:
    default = _default_routes()
    found: list[Nic] = []
    for path in sorted(_NET.iterdir()) if _NET.is_dir() else ():
        # Not loopback, nor ends of containers and bridges: a real card has a device, a bond or VLAN leads somewhere.
        if path.name == "lo" or not ((path / "device").exists() or path.name in default):
            continue
        speed = _number(path / "speed")
        found.append(
            {
                "name": path.name,
                "up": _word(path / "operstate") in ("up", "unknown"),
                "mtu": _number(path / "mtu") or 0,
                "mbit": speed if speed is not None and speed > 0 else None,
                "numa": _number(path / "device" / "numa_node"),
                "default": path.name in default,
            }
        )
    return found


def _default_routes() -> set[str]:
    with contextlib.suppress(OSError):
        rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
        return {row[0] for row in rows if len(row) > 7 and row[1] == "00000000" and row[7] == "00000000"}
    return set()


def _ports() -> list[RdmaPort]:
    found: list[RdmaPort] = []
    for port in sorted(_RDMA.glob("*/ports/*")):
        device = port.parent.parent
        found.append(
            {
                "device": device.name,
                "port": int(port.name),
                # `4: ACTIVE`
                "state": _word(port / "state").partition(":")[2].strip() or "unknown",
                "rate": _word(port / "rate"),
                "numa": _number(device / "device" / "numa_node"),
            }
        )
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_word(path))
    except ValueError:
        return None

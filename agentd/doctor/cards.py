"""NVIDIA cards as bus and driver show them."""

from pathlib import Path

from agentd.core.doctor.facts import CardFacts, Setup
from agentd.gpu.nvml import NvmlGpus

_PCI = Path("/sys/bus/pci/devices")


def nvidia_cards() -> dict[str, int]:
    """Bus address -> NUMA node, -1 where the host has none."""
    found = {}
    for device in sorted(_PCI.iterdir()) if _PCI.is_dir() else ():
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
            # 3D and display controllers; not the bridges and sound devices of the same maker.
            if vendor == "0x10de" and kind.startswith(("0x0300", "0x0302")):
                found[device.name] = int((device / "numa_node").read_text())
        except (OSError, ValueError):
            continue
    return found


def look_at_cards(setup: Setup) -> CardFacts:
    only = [uuid for uuid in setup["gpus"].partition(":")[2].split(",") if uuid]
    adapter = NvmlGpus(only)
    cards = adapter.inventory()
    facts: CardFacts = {
        "pci": len(nvidia_cards()),
        "state": adapter.state,
        "cards": [{"uuid": card.uuid, "type": card.type, "index": card.index} for card in cards],
        "faults": dict(adapter.faults) if cards else {},
    }
    adapter.close()
    return facts

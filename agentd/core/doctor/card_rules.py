"""NVIDIA cards: the driver's list, and whether a real operation on each of them answers."""

from collections.abc import Sequence

from agentd.core.doctor.facts import CardFacts, CudaFacts, Setup
from agentd.core.doctor.finding import Finding, Unanswered, ok, skipped

_DRIVER_HUNG = "a driver that hangs keeps tasks from starting, and what runs on the cards from ending"


def card_findings(facts: CardFacts | Unanswered, setup: Setup) -> Sequence[Finding]:
    if setup["gpus"] == "none" or setup["gpus"].startswith("simulated"):
        return [skipped("cards", f"--gpus {setup['gpus']}: no card of this host is used")]
    if isinstance(facts, Unanswered):
        return [Finding("cards", "fail", f"the driver {facts.text}", _DRIVER_HUNG, "look at dmesg for XID; reboot")]
    found = []
    if facts["faults"]:
        told = "; ".join(f"{uuid}: {why}" for uuid, why in sorted(facts["faults"].items()))
        fix = "nvidia-smi -L lists the cards by UUID; correct --gpus, or look at dmesg for XID"
        found.append(Finding("cards", "fail", f"not usable: {told}", "tasks cannot be given these cards", fix))
    seen = len(facts["cards"])
    if not seen and not facts["pci"]:
        return [*found, skipped("cards", "no NVIDIA card is in this host")]
    if not seen:
        fix = "install the driver (the module and libnvidia-ml of one version), then nvidia-smi must list the cards"
        why = f"{facts['pci']} NVIDIA cards are on the bus and none can be used"
        return [*found, Finding("cards", "fail", facts["state"], why, fix)]
    if seen < facts["pci"] and setup["gpus"] == "nvml":
        what = f"the driver lists {seen} of {facts['pci']} cards"
        found.append(Finding("cards", "warn", what, "a card fell off the bus, or is another driver's", "look at dmesg"))
    kinds = sorted({card["type"] for card in facts["cards"]})
    return [*found, ok("cards", f"{seen} cards usable: {', '.join(kinds)}")]


def cuda_findings(facts: CudaFacts | Unanswered, cards: int) -> Sequence[Finding]:
    """cards: as the driver lists them."""
    if not cards:
        return [skipped("cuda", "without cards there is nothing to compute on")]
    if isinstance(facts, Unanswered):
        return [Finding("cuda", "fail", f"CUDA {facts.text}", _DRIVER_HUNG, "look at dmesg for XID; reboot the host")]
    if facts["error"]:
        why = "tasks that use the cards will fail"
        return [Finding("cuda", "fail", facts["error"], why, "install libcuda of the driver's version; nvidia-smi")]
    broken = [device for device in facts["devices"] if device["error"]]
    if broken:
        told = "; ".join(f"card {device['index']}: {device['error']}" for device in broken)
        why = "the driver lists the card and it computes nothing"
        return [Finding("cuda", "fail", told, why, "look at dmesg for XID; nvidia-smi --gpu-reset, or reboot")]
    if len(facts["devices"]) < cards:
        what = f"CUDA sees {len(facts['devices'])} of {cards} cards"
        why = "the others are in MIG mode without instances, or held exclusively"
        return [Finding("cuda", "warn", what, why, "nvidia-smi -q -d COMPUTE shows the mode of each")]
    return [ok("cuda", f"memory of {len(facts['devices'])} cards was written and read back")]

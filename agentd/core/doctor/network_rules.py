"""Network cards, RDMA and NUMA: hints, since what a fabric should be only its operator knows."""

from collections.abc import Sequence

from agentd.core.doctor.facts import NetworkFacts, Nic
from agentd.core.doctor.finding import Finding, ok, skipped

_FAST_MBIT = 25_000
_SLOW_MBIT = 10_000
_JUMBO = 4200


def network_findings(facts: NetworkFacts) -> Sequence[Finding]:
    cards = bool(facts["cards_numa"])
    return [*_nics(facts["nics"], cards), *_rdma(facts, cards)]


def _nics(nics: Sequence[Nic], cards: bool) -> Sequence[Finding]:
    up = [nic for nic in nics if nic["up"]]
    if not up:
        why = "no other host can be reached"
        return [Finding("network", "fail", "no network card but loopback is up", why, "ip link shows them")]
    found = []
    for nic in up:
        mbit = nic["mbit"]
        if mbit is not None and mbit >= _FAST_MBIT and nic["mtu"] < _JUMBO:
            what = f"{nic['name']} runs at {mbit // 1000} Gbit/s with MTU {nic['mtu']}"
            why = "small packets cost a core and a good part of the bandwidth"
            fix = f"ip link set {nic['name']} mtu 9000, on every host and switch of that network"
            found.append(Finding("network", "warn", what, why, fix))
        if mbit is not None and nic["default"] and cards and mbit < _SLOW_MBIT:
            what = f"{nic['name']}, which leads to the other hosts, runs at {mbit} Mbit/s"
            why = "gradients of several hosts go through it: training will wait for the network"
            fix = "let NCCL_SOCKET_IFNAME name a faster one, or use fewer hosts with more cards"
            found.append(Finding("network", "warn", what, why, fix))
    told = ", ".join(f"{nic['name']} ({_speed(nic)}, MTU {nic['mtu']})" for nic in up)
    return [*found, ok("network", told)]


def _speed(nic: Nic) -> str:
    return "speed unknown" if nic["mbit"] is None else f"{nic['mbit'] / 1000:g} Gbit/s"


def _rdma(facts: NetworkFacts, cards: bool) -> Sequence[Finding]:
    ports = facts["rdma"]
    if not ports:
        return [skipped("rdma", "no RDMA device is in this host")]
    found = []
    down = [f"{port['device']}/{port['port']} is {port['state']}" for port in ports if port["state"] != "ACTIVE"]
    active = [port for port in ports if port["state"] == "ACTIVE"]
    if down:
        why = "NCCL uses what is left, slower, or falls back to sockets"
        fix = "look at cable, switch and subnet manager: ibstat, rdma link"
        found.append(Finding("rdma", "warn" if active else "fail", "; ".join(down), why, fix))
    if facts["memlock"] is not None and facts["memlock"] < 1 << 30:
        what = f"only {facts['memlock'] >> 10} KiB may be locked in memory"
        why = "RDMA registers its buffers there and fails, or falls back to sockets"
        found.append(Finding("rdma", "warn", what, why, "LimitMEMLOCK=infinity in the unit (the installer's has it)"))
    if cards and not facts["peermem"]:
        what = "the kernel module nvidia_peermem is not loaded"
        why = "each transfer of a card goes through the host's memory, unless the driver has dma-buf"
        found.append(Finding("rdma", "warn", what, why, "modprobe nvidia_peermem; echo it into /etc/modules-load.d"))
    near = {port["numa"] for port in active if port["numa"] is not None and port["numa"] >= 0}
    far = sorted(bus for bus, node in facts["cards_numa"].items() if node >= 0 and near and node not in near)
    if far:
        what = f"cards {', '.join(far)} are on a NUMA node without an active RDMA port"
        why = "their traffic crosses the socket's interconnect"
        found.append(Finding("numa", "warn", what, why, "a port on each node, where bandwidth between hosts matters"))
    if active:
        told = ", ".join(f"{port['device']}/{port['port']} {port['rate']}" for port in active)
        found.append(ok("rdma", f"active: {told}"))
    return found

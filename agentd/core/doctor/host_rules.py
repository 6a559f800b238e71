"""Shared memory, the disk of the data directory, ports, clock and rights."""

from collections.abc import Sequence
from statistics import median

from agentd.core.clocks import SKEW_RAISED_S
from agentd.core.doctor.facts import ClockFacts, DiskFacts, ReachFacts, RightsFacts, Setup, ShmFacts
from agentd.core.doctor.finding import Finding, Unanswered, ok, skipped
from agentd.core.doctor.share_rules import NETWORK_KINDS

GIB = 1 << 30
FSYNC_WARN_MS, FSYNC_FAIL_MS = 10.0, 100.0
"""Every commit waits for an fsync of most voters: at 10 ms it is felt, at 100 ms heartbeats wait behind it."""
DISK_WARN, DISK_FAIL = 10 * GIB, 1 * GIB
RENDEZVOUS_PORTS = (20000, 29999)


def shm_findings(facts: ShmFacts) -> Sequence[Finding]:
    fix = "mount -o remount,size=50% /dev/shm, and the same in /etc/fstab"
    why = "data loaders and NCCL pass tensors through it, and die with a bus error where it is full"
    if facts["kind"] != "tmpfs":
        return [Finding("shm", "fail", f"/dev/shm is {facts['kind'] or 'not there'}, not tmpfs", why, fix)]
    size = f"/dev/shm has {facts['bytes'] / GIB:.1f} GiB, {facts['free_bytes'] / GIB:.1f} GiB free"
    if facts["bytes"] < GIB:
        return [Finding("shm", "warn", size, why, fix)]
    if facts["free_bytes"] < facts["bytes"] // 10:
        return [Finding("shm", "warn", size, why, "something left files there: ls -lS /dev/shm")]
    return [ok("shm", size)]


def disk_findings(facts: DiskFacts | Unanswered) -> Sequence[Finding]:
    move = "give --data-dir a local disk that answers"
    if isinstance(facts, Unanswered):
        return [Finding("disk", "fail", f"the data directory {facts.text}", "nothing can be recorded there", move)]
    if facts["error"]:
        return [Finding("disk", "fail", f"{facts['path']}: {facts['error']}", "nothing can be recorded there", move)]
    found = []
    if facts["kind"] in NETWORK_KINDS:
        why = "locks and memory-mapped files of a share do not hold what they promise"
        found.append(Finding("disk", "fail", f"{facts['path']} is on {facts['kind']}", why, move))
    elif facts["kind"] in ("tmpfs", "ramfs"):
        why = "after a reboot this node is a stranger to its mesh"
        found.append(Finding("disk", "warn", f"{facts['path']} is in memory ({facts['kind']})", why, move))
    free = f"{facts['path']} has {facts['free_bytes'] / GIB:.1f} GiB free"
    if facts["free_bytes"] < DISK_WARN:
        state = "fail" if facts["free_bytes"] < DISK_FAIL else "warn"
        why = "logs of tasks are dropped, and a voter gives up its seat, when it is full"
        found.append(Finding("disk", "fail" if state == "fail" else "warn", free, why, "free some, or move it"))
    return [*found, *_fsync(facts)]


def _fsync(facts: DiskFacts) -> Sequence[Finding]:
    if not facts["fsync_ms"]:
        return [skipped("fsync", "no write was measured")]
    ordered = sorted(facts["fsync_ms"])
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    what = f"fsync p99 {p99:.1f} ms, median {median(ordered):.1f} ms over {len(ordered)} writes"
    if p99 < FSYNC_WARN_MS:
        return [ok("fsync", what)]
    why = "every commit of the mesh waits for this disk while this host is a voter"
    fix = "an SSD with power-loss protection for --data-dir, or voters on other hosts"
    return [Finding("fsync", "warn" if p99 < FSYNC_FAIL_MS else "fail", what, why, fix)]


def reach_findings(facts: ReachFacts) -> Sequence[Finding]:
    found = []
    for port in facts["ports"]:
        address, flag = port["address"], port["flag"]
        if port["state"] == "free":
            found.append(ok("ports", f"{flag} {address} is free"))
        elif port["state"] == "ours":
            found.append(ok("ports", f"{flag} {address} is this agent's"))
        elif port["state"] == "taken":
            what = f"{flag} {address} is used by {port['holder'] or 'another process'}"
            found.append(Finding("ports", "fail", what, "the agent cannot listen there", f"end it, or say {flag}"))
        else:
            what = f"{flag} {address} cannot be listened on: {port['holder'] or port['state']}"
            fix = f"say {flag} with an address of this host (ip addr lists them)"
            found.append(Finding("ports", "fail", what, "the agent cannot start", fix))
    if facts["ephemeral"] is not None and _overlaps(facts["ephemeral"]):
        low, high = facts["ephemeral"]
        what = f"outgoing connections take ports {low} to {high}"
        why = f"they take rendezvous ports ({RENDEZVOUS_PORTS[0]} to {RENDEZVOUS_PORTS[1]}) from tasks about to start"
        fix = "sysctl -w net.ipv4.ip_local_port_range='32768 60999', and the same in /etc/sysctl.d"
        found.append(Finding("ports", "warn", what, why, fix))
    if facts["engine_tcp"]:
        what = f"something listens on port 2375 ({', '.join(facts['engine_tcp'])})"
        why = "an engine over plain TCP makes whoever reaches it root on this host"
        fix = 'take -H tcp:// and "hosts" out of the engine\'s settings; the agent uses its socket'
        found.append(Finding("engine-tcp", "warn", what, why, fix))
    return found


def _overlaps(ephemeral: Sequence[int]) -> bool:
    return ephemeral[0] <= RENDEZVOUS_PORTS[1] and ephemeral[1] >= RENDEZVOUS_PORTS[0]


def clock_findings(facts: ClockFacts) -> Sequence[Finding]:
    found = []
    if facts["synchronised"] is None:
        found.append(skipped("clock", "the kernel does not say whether something keeps its time"))
    elif facts["synchronised"]:
        found.append(ok("clock", "the kernel's clock is synchronised"))
    else:
        why = "nothing is decided by it, but people compare logs and curves of several hosts, and certificates expire"
        fix = "timedatectl set-ntp true, or install chrony"
        found.append(Finding("clock", "warn", "the kernel's clock is not synchronised", why, fix))
    for peer in facts["peers"]:
        if abs(peer["ahead_s"]) - peer["within_s"] > SKEW_RAISED_S:
            side = "ahead of" if peer["ahead_s"] > 0 else "behind"
            what = f"this clock is {abs(peer['ahead_s']):.0f} s {side} that of {peer['address']}"
            why = "logs and curves of the two hosts do not fit together"
            found.append(Finding("clock-skew", "warn", what, why, "chronyc tracking on both: one of them is wrong"))
    if facts["peers"] and not any(finding.check == "clock-skew" for finding in found):
        found.append(ok("clock-skew", f"within {SKEW_RAISED_S:g} s of {len(facts['peers'])} other nodes"))
    if facts["silent"]:
        found.append(skipped("clock-skew", f"no answer from {', '.join(facts['silent'])}"))
    return found


def rights_findings(facts: RightsFacts, setup: Setup) -> Sequence[Finding]:
    found = []
    if setup["runtime"] == "docker" and not facts["root"]:
        why = "processes of containers are another user's, and fencing must reach them"
        what = f"runtime docker as user {facts['user']}"
        found.append(Finding("user", "fail", what, why, "run the agent, and this command, as root"))
    else:
        found.append(ok("user", f"looked at as user {facts['user']}"))
    found.append(_isolation(facts))
    found += _data_dir(facts, setup)
    if not facts["guard_pid"]:
        return [*found, skipped("guard", "no guard runs on this data directory")]
    if facts["guard_oom"] is not None and facts["guard_oom"] > -1000:
        why = "a host out of memory may kill what stops its tasks when their lease runs out"
        fix = "run it by its unit (OOMScoreAdjust=-1000), or as root"
        what = f"the guard (process {facts['guard_pid']}) may be killed for memory"
        found.append(Finding("guard", "warn", what, why, fix))
    else:
        found.append(ok("guard", f"the guard (process {facts['guard_pid']}) is safe from the out-of-memory killer"))
    if facts["delegated"] is False:
        why = "systemd may move or end processes of tasks in its groups"
        found.append(Finding("cgroup", "warn", "the unit's group is not delegated", why, "Delegate=yes in the unit"))
    elif facts["delegated"]:
        found.append(ok("cgroup", "the unit's group is delegated"))
    return found


def _isolation(facts: RightsFacts) -> Finding:
    if facts["isolation"] == "subreaper":
        why = "a task is held together by walking its processes, which one that forks fast can outrun"
        fix = "run the agent as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
        return Finding("namespaces", "warn", "no PID namespace can be made", why, fix)
    how = "a PID namespace" if facts["isolation"] == "pidns" else "a user namespace"
    return ok("namespaces", f"tasks are held together by {how}")


def _data_dir(facts: RightsFacts, setup: Setup) -> Sequence[Finding]:
    if facts["data_mode"] is None:
        return [skipped("data-dir", f"{setup['data_dir']} is not there yet")]
    if facts["data_mode"] & 0o077:
        what = f"{setup['data_dir']} is open to others (mode {facts['data_mode']:04o})"
        why = "what is in it controls this node, and on some hosts the mesh"
        return [Finding("data-dir", "warn", what, why, f"chmod 700 {setup['data_dir']}")]
    if facts["guard_user"] and facts["data_owner"] not in (facts["guard_user"], None):
        what = f"{setup['data_dir']} belongs to {facts['data_owner']}, the guard runs as {facts['guard_user']}"
        return [Finding("data-dir", "warn", what, "files of both get in each other's way", "chown -R it to one user")]
    return [ok("data-dir", f"{setup['data_dir']} belongs to {facts['data_owner']} alone")]

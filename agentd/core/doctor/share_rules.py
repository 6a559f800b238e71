"""Shares below the allowed roots: mounted, and answering."""

from collections.abc import Sequence

from agentd.core.doctor.facts import Mount, Root, ShareFacts
from agentd.core.doctor.finding import Finding, ok

NETWORK_KINDS = frozenset(
    "9p afs beegfs ceph cifs cvmfs fhgfs fuse.ceph fuse.glusterfs fuse.juicefs fuse.s3fs fuse.sshfs glusterfs gpfs "
    "lustre ncpfs nfs nfs4 orangefs pvfs2 smb3 smbfs virtiofs wekafs".split()
)


def share_findings(facts: ShareFacts) -> Sequence[Finding]:
    found = [*_not_mounted(facts), *_roots(facts["roots"]), *_answers(facts)]
    if any(finding.state == "fail" for finding in found):
        return found
    shared = [mount for mount in facts["mounts"] if matters(mount, facts["roots"])]
    if not shared:
        what = "no share is mounted at, above or below an allowed root"
        why = "other hosts do not see checkpoints that are written here, so a group cannot be resumed on them"
        fix = "mount a share there on every host, or say --allow-path for where it is"
        return [*found, Finding("shares", "warn", what, why, fix)]
    return [*found, ok("shares", "mounted and answering: " + ", ".join(mount["target"] for mount in shared))]


def matters(mount: Mount, roots: Sequence[Root]) -> bool:
    """A network file system that holds an allowed root, or lies below one."""
    return mount["kind"] in NETWORK_KINDS and any(_related(mount["target"], root["path"]) for root in roots)


def _not_mounted(facts: ShareFacts) -> Sequence[Finding]:
    mounted = {mount["target"] for mount in facts["mounts"]}
    why = "tasks would write to the disk of this host in its place, and nobody else would see it"
    return [
        Finding(
            "shares",
            "fail",
            f"{wanted['target']} ({wanted['source']}) is in /etc/fstab and not mounted",
            why,
            f"mount {wanted['target']}; with _netdev in its options it is mounted at boot, before the agent",
        )
        for wanted in facts["wanted"]
        if matters(wanted, facts["roots"]) and wanted["target"] not in mounted
    ]


def _roots(roots: Sequence[Root]) -> Sequence[Finding]:
    return [
        Finding(
            "shares",
            "fail",
            f"--allow-path {root['path']} does not exist on this host",
            "groups that use it are refused when they come here",
            "mount it, make it, or leave it out on every host",
        )
        for root in roots
        if root["said"] and not root["exists"]
    ]


def _answers(facts: ShareFacts) -> Sequence[Finding]:
    fix = "look at the server and the network; umount -f -l and mount it again"
    why = "tasks that touch it hang, and cannot even be killed while it does not answer"
    return [
        Finding("shares", "fail", f"{target}: {trouble}", why, fix)
        for target, trouble in sorted(facts["answers"].items())
        if trouble
    ]


def _related(target: str, root: str) -> bool:
    """`*` in a root stands for one segment."""
    pairs = zip(_segments(target), _segments(root), strict=False)
    return all(here in ("*", there) or there == "*" for there, here in pairs)


def _segments(path: str) -> list[str]:
    return [part for part in path.split("/") if part]

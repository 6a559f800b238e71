"""What a claim must prove on this host before any rank may start: the steps, their deadlines and their verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

StepName = Literal[
    "cards",
    "checkpoint_path",
    "dataset_path",
    "base_checkpoint",
    "mounts",
    "disk",
    "port",
    "checkpoint_probe",
    "resume_from_checkpoint",
    "parent_checkpoint",
]

# Seconds. A step past its deadline fails the claim by its own name: a hung share must not look like a slow network.
DEADLINE_S: Mapping[StepName, float] = {
    "cards": 5.0,
    "checkpoint_path": 10.0,
    "dataset_path": 10.0,
    "base_checkpoint": 10.0,
    "mounts": 10.0,
    "disk": 5.0,
    "port": 2.0,
    "checkpoint_probe": 20.0,
    "resume_from_checkpoint": 20.0,
    "parent_checkpoint": 10.0,
}

CHECKPOINT_FREE_BYTES = 256 << 20
TASK_DIR_FREE_BYTES = 64 << 20

# Below these a missing root may be made: they lie on the system disk by nature. Any other missing root is a share that
# is not mounted, and making it would write checkpoints where no other node can see them.
_LOCAL_PREFIXES = ("/tmp/", "/home/")


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """`permanent`: the fault is the request's, another node would refuse it too."""

    code: str
    text: str
    permanent: bool = False


def check_cards(
    wanted: Sequence[str], count: int, present: Sequence[str], in_use: Mapping[str, str]
) -> ClaimRefused | None:
    """`in_use`: card uuid -> the task of this host that has it. An empty or doubtful set never means 'all cards'."""
    if len(wanted) != count:
        return ClaimRefused(
            "cards_count", f"the order names {len(wanted)} cards, the group asks for {count} on each node"
        )
    if len(set(wanted)) != len(wanted):
        return ClaimRefused("cards_repeated", "the order names a card twice")
    if missing := sorted(set(wanted) - set(present)):
        return ClaimRefused("cards_missing", f"this host has no card {', '.join(missing)} (any more)")
    if taken := sorted(card for card in wanted if card in in_use):
        return ClaimRefused("cards_busy", f"card {taken[0]} is still used by {in_use[taken[0]]}")
    return None


def allowed_root(path: str, roots: Sequence[str]) -> str | None:
    """The allow-list root that holds `path`, compared segment by segment; `*` stands for one segment."""
    segments = path.strip("/").split("/")
    if not path.startswith("/") or any(part in ("", ".", "..") for part in segments):
        return None
    for root in roots:
        pattern = root.strip("/").split("/")
        head = segments[: len(pattern)]
        if len(head) == len(pattern) and all(p in ("*", s) for p, s in zip(pattern, head, strict=True)):
            return "/" + "/".join(head)
    return None


def may_create_root(root: str) -> bool:
    return (root + "/").startswith(_LOCAL_PREFIXES)


def path_refusal(what: str, path: str, real: str, roots: Sequence[str]) -> ClaimRefused | None:
    """`real`: the path with links resolved on this host."""
    if allowed_root(path, roots) is None:
        return ClaimRefused(
            "path_not_allowed",
            f"{what} {path} is not below an allowed directory of this host ({', '.join(roots)})",
            True,
        )
    if real != path.rstrip("/") and allowed_root(real, roots) is None:
        return ClaimRefused(
            "path_leaves_allowed", f"{what} {path} leads through a link to {real}, outside what is allowed", True
        )
    return None


def disk_refusal(what: str, path: str, free_bytes: int, need_bytes: int) -> ClaimRefused | None:
    if free_bytes >= need_bytes:
        return None
    return ClaimRefused(
        "disk_full",
        f"{what} {path} has {free_bytes >> 20} MiB free, at least {need_bytes >> 20} MiB are needed to start",
    )


def too_slow(step: StepName) -> ClaimRefused:
    return ClaimRefused(
        f"{step}_timeout",
        f"the check of {step.replace('_', ' ')} did not answer within {DEADLINE_S[step]:.0f} s; a share of this host "
        f"may hang",
    )


def sight_refusal(sees: Mapping[str, Any] | None, views: Sequence[Mapping[str, Any]]) -> ClaimRefused | None:
    """views: what the ranks said that they see, one entry for each different sight, on which the start was decided. A
    claim that is made again, since its agent was started anew, is told to nobody: what it saw is compared here. Else a
    share that went away meanwhile would let this rank begin at zero, and the others at the checkpoint."""
    if sees is None or not views or any(view["digest"] == sees["digest"] for view in views):
        return None
    agreed, now = views[0]["pick"] or "none that is complete", sees["pick"] or "none that is complete"
    return ClaimRefused(
        "checkpoints_changed",
        f"the checkpoints are not as they were when the start was decided: then it was {agreed}, now this host sees "
        f"{now} ({sees['text'][:300]})",
    )

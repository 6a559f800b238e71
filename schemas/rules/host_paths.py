"""Directories of a host that no task is given, whatever the allow-list says."""

from collections.abc import Sequence

# The kernel's and the engine's doors, the keys of the host, and what an engine keeps of all its containers.
FORBIDDEN_SOURCES = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/boot",
    "/etc",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/heteroflow",
)


def host_path_refusal(path: str, private: Sequence[str] = ()) -> str | None:
    """path: absolute and normalised. private: files and directories of this host that belong to the agent or its
    engine: neither they, nor what is in them, nor what they lie in is given away. The reason, or None."""
    if path == "/":
        return "is the whole host"
    if path.endswith(".sock"):
        return f"is {path}, by its name a socket of the host"
    for root in FORBIDDEN_SOURCES:
        if _within(path, root):
            return f"is {path}, and {root} leads to the host itself"
        if _within(root, path):
            return f"is {path}, which holds {root}, and that leads to the host itself"
    for own in private:
        if _within(path, own) or _within(own, path):
            return f"is {path}, where the agent of this host keeps what is its own ({own})"
    return None


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")

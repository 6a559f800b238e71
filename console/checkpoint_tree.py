"""Checkpoints of a path on this host, behind the fence of the rules."""

import ctypes
import os

from schemas.rules.checkpoints.fence import Kernel, open_root
from schemas.rules.checkpoints.probe import Probe, probe

_libc = ctypes.CDLL(None, use_errno=True)


def probe_path(path: str, framework: str, world: int | None = None) -> Probe:
    """Raises OSError if the directory itself cannot be opened."""
    with open_root(Kernel(os, _libc.syscall, ctypes.get_errno), path) as root:
        return probe(root, framework, world)

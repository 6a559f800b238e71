"""The kernel's calls for the fence: `os`, and openat2 by ctypes."""

import ctypes
import os

from schemas.rules.checkpoints.fence import FencedDirectory, Kernel, open_without_links

_libc = ctypes.CDLL(None, use_errno=True)


def kernel() -> Kernel:
    return Kernel(os, _libc.syscall, ctypes.get_errno)


def open_fenced(path: str) -> FencedDirectory:
    """`path` absolute, its links resolved by the caller; one that appears in it later is an error. Raises OSError."""
    return open_without_links(kernel(), path)

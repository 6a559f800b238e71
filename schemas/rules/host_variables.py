"""Variables that are heard outside of the program: by the loader, the container engine, or hooks that run on the host.

A hook of the container runtime is started with the container's environment, as root and outside of it: LD_PRELOAD was
enough to run code on the host (CVE-2025-23266). So neither a document nor an image hands such a variable on.
"""

import posixpath
from collections.abc import Iterable, Mapping

from schemas.rules.environment import PLATFORM_NAMES, reserved_refusal

_LOADER = "is read by the loader, also in programs of the host that start a container; set it within task.command"
_ENGINE = "points programs at a container engine, and no task is given one"
_CARDS = "tells the NVIDIA container runtime which cards or drivers to hand over, and the platform decides that"

_NAMES: dict[str, str] = {
    **dict.fromkeys(("GLIBC_TUNABLES", "GCONV_PATH"), _LOADER),
    **dict.fromkeys(("CONTAINER_HOST", "CONTAINER_SSHKEY", "BUILDKIT_HOST"), _ENGINE),
    **dict.fromkeys(("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_GDRCOPY", "NVIDIA_GDS"), _CARDS),
    **dict.fromkeys(("NVIDIA_MOFED", "NVIDIA_NVSWITCH"), _CARDS),
}
_PREFIXES: dict[str, str] = {
    "LD_": _LOADER,
    "DOCKER_": _ENGINE,
    "CONTAINERD_": _ENGINE,
    **dict.fromkeys(
        ("NVIDIA_REQUIRE_", "NVIDIA_MIG_", "NVIDIA_IMEX_", "NVIDIA_CTK_", "NVIDIA_CONTAINER_", "NVIDIA_VISIBLE_"),
        _CARDS,
    ),
}
# What an image needs them for is legitimate, and the cards are named by the platform all the same.
_IMAGE_MAY = ("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_")
# Where images keep libraries, and where no task can have written on the host; anything else, such as /proc/self/cwd or
# a relative path, could lead a hook of the host to a library that came with the image.
_LIBRARY_ROOTS = ("/usr", "/lib", "/lib32", "/lib64", "/opt")
_LIBRARY_PATH = "LD_LIBRARY_PATH"


def host_variable_refusal(name: str) -> str | None:
    """The reason why a document may not set a variable, or None."""
    if name in _NAMES:
        return _NAMES[name]
    return next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), None)


def image_variables(image: Iterable[str], ours: Mapping[str, str]) -> dict[str, str | None]:
    """What to change of an image's environment (`NAME=value` each): None removes the variable. ours: what is set
    anyway, and therefore wins."""
    changed: dict[str, str | None] = {}
    for entry in image:
        name, _, value = entry.partition("=")
        if name in ours or name.startswith(_IMAGE_MAY):
            continue
        if name == _LIBRARY_PATH:
            kept = ":".join(path for path in value.split(":") if _is_library_path(path))
            if kept != value:
                changed[name] = kept or None
        elif name in PLATFORM_NAMES or reserved_refusal(name) or host_variable_refusal(name):
            changed[name] = None
    return changed


def _is_library_path(path: str) -> bool:
    below = any(path == root or path.startswith(root + "/") for root in _LIBRARY_ROOTS)
    return below and path.rstrip("/") == posixpath.normpath(path)

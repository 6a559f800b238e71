"""Directories of a task on this host: resolved, compared with the allow-list, made without following planted links."""

import contextlib
import os
from collections.abc import Sequence

from agentd.core.claim import ClaimRefused, allowed_root, disk_refusal, may_create_root, path_refusal
from agentd.logs.writer import reserved_bytes
from schemas.lexemes import sayable
from schemas.limits import TEXT_MAX
from schemas.rules.host_paths import host_path_refusal

_LINKS_MAX = 40  # as the kernel has it
# O_PATH: passing through a directory needs no right to list it.
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare_checkpoint_path(path: str, roots: Sequence[str], private: Sequence[str] = ()) -> ClaimRefused | None:
    """Makes what is missing below the allowed root and proves that this user can write there."""
    real = os.path.realpath(path)
    if (refusal := _source_refusal("checkpoint_path", path, real, roots, private)) is not None:
        return refusal
    root = allowed_root(real, roots) or allowed_root(path, roots)
    assert root is not None
    if not os.path.isdir(root) and not may_create_root(root):
        return ClaimRefused(
            "share_missing",
            f"{root}, which holds checkpoint_path {path}, does not exist on this host: is the share mounted?",
        )
    try:
        directory = _open_below("/", real.strip("/").split("/"))
    except NotADirectoryError:
        return ClaimRefused(
            "path_not_directory", f"checkpoint_path {path} is (or passes through) a file, not a directory", True
        )
    except OSError as error:
        return ClaimRefused("path_refused", f"checkpoint_path {path} cannot be opened on this host: {error.strerror}")
    try:
        return _prove_writable(directory, path)
    finally:
        os.close(directory)


def linked_to(path: str) -> str | None:
    """The directory that `path` is by another name, as the mesh can be told; None where there is no link in it."""
    real = sayable(os.path.realpath(path))
    return real if real != os.path.normpath(path) and len(real) <= TEXT_MAX else None


def _open_below(start: str, segments: Sequence[str]) -> int:
    """One segment at a time, so that a link swapped in meanwhile is an error and not a way out."""
    descriptor = os.open(start, _DIRECTORY)
    for segment in segments:
        try:
            try:
                deeper = os.open(segment, _DIRECTORY, dir_fd=descriptor)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another rank of the group made it at the same moment
                    os.mkdir(segment, 0o755, dir_fd=descriptor)
                deeper = os.open(segment, _DIRECTORY, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def _prove_writable(directory: int, path: str) -> ClaimRefused | None:
    name = f".heteroflow-probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        probe = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
        )
        os.close(probe)
        os.unlink(name, dir_fd=directory)
    except OSError as error:
        return ClaimRefused(
            "path_not_writable", f"checkpoint_path {path} cannot be written by this agent: {error.strerror}"
        )
    return None


def check_dataset_path(path: str, roots: Sequence[str], private: Sequence[str] = ()) -> ClaimRefused | None:
    return _check_source("dataset_path", "dataset", path, roots, private)


def check_base(path: str, roots: Sequence[str], private: Sequence[str] = ()) -> ClaimRefused | None:
    return _check_source("base_checkpoint", "base", path, roots, private)


def check_parent(directory: str, path: str, roots: Sequence[str], private: Sequence[str] = ()) -> ClaimRefused | None:
    """path: the checkpoint in the directory. Of TensorFlow it is the beginning of its files' names."""
    if refusal := _check_source("the parent's checkpoint_path", "parent", directory, roots, private):
        return refusal
    if not os.path.lexists(path) and not os.path.lexists(f"{path}.index"):
        return ClaimRefused("parent_missing", f"parent_checkpoint {path} is not there (any more) on this host")
    return None


def check_mounts(sources: Sequence[str], roots: Sequence[str], private: Sequence[str] = ()) -> ClaimRefused | None:
    """A missing one is never made: it would be on the system disk, where a share should have been."""
    for path in sources:
        if refusal := _check_source("mount", "mount", path, roots, private):
            return refusal
        if not os.path.isdir(path) and not os.path.isfile(path):
            # A socket or a device is a door to the host.
            return ClaimRefused("mount_refused", f"mount {path} is neither a directory nor a file on this host", True)
    return None


def source_refusal(what: str, path: str, roots: Sequence[str], private: Sequence[str]) -> ClaimRefused | None:
    """Whether `path` may be shown to a task, by where it leads on this host now."""
    return _source_refusal(what, path, os.path.realpath(path), roots, private)


def shown_refusal(
    what: str, path: str, source: str, roots: Sequence[str], private: Sequence[str]
) -> ClaimRefused | None:
    """Whether a container to which `source` is mounted finds `path` below it: links it follows by itself, and out of
    the mount there is nothing."""
    if refusal := source_refusal(what, source, roots, private):
        return refusal
    if (link := _link_out(source.rstrip("/"), path)) is not None:
        said = f"{what} {path} leads through the link {link}, which a container cannot follow"
        return ClaimRefused("resume_refused", f"{said}: name {os.path.realpath(path)}", True)
    return None


def _link_out(source: str, path: str) -> str | None:
    """The link between the two that is absolute, leaves `source`, or goes round."""
    at, left = source, path[len(source) :].split("/")
    for _ in range(_LINKS_MAX):
        while left and not os.path.islink(f"{at}/{left[0]}"):
            name, *left = left
            if name == "..":
                at = os.path.dirname(at)
            elif name not in ("", "."):
                at = f"{at}/{name}"
            if not f"{at}/".startswith(f"{source}/"):
                return path
        if not left:
            return None
        link, *left = left
        target = os.readlink(f"{at}/{link}")
        if target.startswith("/"):
            return f"{at}/{link}"
        left = [*target.split("/"), *left]
    return path


def _source_refusal(
    what: str, path: str, real: str, roots: Sequence[str], private: Sequence[str]
) -> ClaimRefused | None:
    if (refusal := path_refusal(what, path, real, roots)) is not None:
        return refusal
    own = [os.path.realpath(one) for one in private]
    for place in (path, real):
        if why := host_path_refusal(place, own):
            return ClaimRefused("host_path", f"{what} {path} {why}; nothing of a host is given to a task", True)
    return None


def _check_source(what: str, code: str, path: str, roots: Sequence[str], private: Sequence[str]) -> ClaimRefused | None:
    if (refusal := source_refusal(what, path, roots, private)) is not None:
        return refusal
    if not os.path.exists(path):
        return ClaimRefused(f"{code}_missing", f"{what} {path} does not exist on this host: is the share mounted?")
    if not os.access(path, os.R_OK):
        return ClaimRefused(f"{code}_unreadable", f"{what} {path} cannot be read by this agent's user")
    return None


def check_free_space(what: str, path: str, need_bytes: int, reserve: bool = False) -> ClaimRefused | None:
    """reserve: beside what logs of tasks leave free there."""
    found = os.statvfs(path)
    kept = reserved_bytes(found.f_blocks * found.f_frsize) if reserve else 0
    return disk_refusal(what, path, found.f_bavail * found.f_frsize, need_bytes + kept)

"""What one node sees of a checkpoint directory, so small that it can be compared with what the others see."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from schemas.rules.checkpoints.manifest import DIRECTORY
from schemas.rules.checkpoints.names import shown
from schemas.rules.checkpoints.probe import Probe
from schemas.rules.checkpoints.saved import saved_of
from schemas.rules.checkpoints.view import Directory, Unreadable, opened

# Looked into, of one directory. Bytes are compared and no times: caches of network file systems tell these late.
_FILES = 64
# Behind it: the table of contents of a torch file with a checksum of each tensor, or the last tensor itself.
_TAIL = 4096
# A checkpoint has a few; a directory that holds many checkpoints may be named as one.
_DIRECTORIES = 256
_REJECTED = 20
_REJECTED_TOLD = 3
_NAME_TOLD = 300
TEXT_MAX = 600


@dataclass(frozen=True, slots=True)
class Sight:
    """pick: below the directory, "" where nothing is complete; digest: equal where two nodes see the same; text: for
    people, with what was passed over and why, which is also in `rejected`; mark: of this save of it, or ""."""

    pick: str
    digest: str
    text: str
    mark: str = ""
    rejected: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "pick": shown(self.pick),
            "digest": self.digest,
            "text": self.text,
            "mark": self.mark,
            "rejected": [{"name": name, "why": why} for name, why in self.rejected],
        }


def sight_of(root: Directory, found: Probe) -> Sight:
    """Two disks that are not one differ in their files, or in what is wrong with these: that rank 0 alone sees a
    checkpoint, or half of one, must not look like a directory where nothing was saved yet."""
    digest = blake2b(digest_size=16)
    parts = [found.pick or "", found.tracker or ""]
    parts += [f"{name}: {why}" for name, why in sorted(found.rejected)[:_REJECTED]]
    for part in parts:
        digest.update(_framed(part.encode("utf-8", "surrogateescape")))
    if found.pick is not None:
        for piece in _pieces(root, found.pick):
            digest.update(_framed(piece))
    told = tuple((name[:_NAME_TOLD], why[:TEXT_MAX]) for name, why in found.rejected[-_REJECTED_TOLD:])
    return Sight(found.pick or "", digest.hexdigest(), _text(found), _mark(root, found.pick), told)


def digest_of(root: Directory, name: str, words: str) -> str:
    """Of one entry of `root` and of what is said about it. No times: see above."""
    digest = blake2b(digest_size=16)
    for piece in (words.encode("utf-8", "surrogateescape"), *_pieces(root, name)):
        digest.update(_framed(piece))
    return digest.hexdigest()


def _mark(root: Directory, pick: str | None) -> str:
    try:
        return saved_of(root, pick).mark if pick is not None else ""
    except Unreadable:
        return ""


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _text(found: Probe) -> str:
    told = [f"{name}: {why}" for name, why in found.rejected[-_REJECTED_TOLD:]]
    return "; ".join([found.reason, *told])[:TEXT_MAX]


def _pieces(root: Directory, pick: str) -> Iterator[bytes]:
    """Of the files of one checkpoint. What cannot be read is a piece too: it is as unreadable elsewhere."""
    place, _, name = pick.rpartition("/")
    try:
        with opened(root, place) as below:
            yield from _of_pick(below, name)
    except Unreadable as why:
        yield str(why).encode()


def _of_pick(place: Directory, name: str) -> Iterator[bytes]:
    names = place.names()
    if names.get(name) == "directory":
        with place.open(name) as directory:
            yield from _of_directory(directory, [*directory.names()], nested=True)
    else:
        # One file, or the stem of several as TensorFlow names them.
        yield from _of_directory(place, [one for one in names if one == name or one.startswith(f"{name}.")])


def _of_directory(directory: Directory, names: list[str], nested: bool = False) -> Iterator[bytes]:
    kinds = directory.names()
    # What an agent puts there while others look says nothing about a checkpoint.
    names = sorted(name for name in names if not name.startswith(DIRECTORY))
    for name in names:
        yield f"{kinds[name]} {name}".encode("utf-8", "surrogateescape")
    files = [name for name in names if kinds[name] == "file"]
    for name in files[:: -(-len(files) // _FILES) or 1]:
        try:
            yield b"%d" % directory.stat(name).size
            yield directory.read(name, -_TAIL, _TAIL)
        except Unreadable as why:
            yield str(why).encode()
    if not nested:
        return
    directories = [name for name in names if kinds[name] == "directory"]
    for name in directories[:: -(-len(directories) // _DIRECTORIES) or 1]:
        try:
            with directory.open(name) as below:
                yield from _of_directory(below, [*below.names()])
        except Unreadable as why:
            yield str(why).encode()

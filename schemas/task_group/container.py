"""Fields of a task that only a container can have."""

import re
from dataclasses import dataclass
from typing import Any

from schemas.errors import Finding
from schemas.lexemes import Plain
from schemas.rules.byte_size import byte_size
from schemas.task_group import readers
from schemas.task_group.readers import ABSENT, Reader, Schema, refuse, schema_of_reader, shaped, shown
from schemas.task_group.record import Record

# The grammar of the registries: a host with a dot or a port, lower-case path, tag, digest.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
_CPUS = re.compile(r"(?:0|[1-9][0-9]{0,3})(?:\.[0-9]{1,3})?\Z")
_CPUS_MAX = 4096
_USER = re.compile(r"(?:[a-z_][a-z0-9_-]{0,31}|[0-9]{1,10})(?::(?:[a-z_][a-z0-9_-]{0,31}|[0-9]{1,10}))?\Z")
_ID_MAX = 2**31 - 1
ULIMITS = (
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
)
_ULIMIT_NAME = re.compile("|".join(ULIMITS) + r"\Z")
# What the engine, the kernel and the image need there; `/dev/shm` has a field of its own.
_OWN_TARGETS = ("/proc", "/sys", "/dev", "/run", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/usr")
MOUNTS_MAX = 32
PULL_POLICIES = ("missing", "always", "never")


@shaped({"type": "string", "pattern": _IMAGE.pattern.replace(r"\Z", "$"), "maxLength": 512})
def image(value: object, path: str, found: list[Finding]) -> Any:
    words = readers.text(512)(value, path, found)
    if words is ABSENT or _IMAGE.match(words):
        return words
    hint = "Write NAME, NAME:TAG or REGISTRY/NAME:TAG, the name in lower case, or end it with @sha256:DIGEST."
    return refuse(found, path, f"is {shown(words)}, which no registry could have", hint)


@shaped({"type": ["string", "number"]})
def cpus(value: object, path: str, found: list[Finding]) -> Any:
    """As written, so that 1.50 stays 1.50."""
    words = readers.scalar_as_written(32)(value, path, found)
    if words is ABSENT:
        return ABSENT
    if not _CPUS.match(words) or not 0 < float(words) <= _CPUS_MAX:
        hint = f"Write the number of cores, such as 8 or 2.5: 0.001 to {_CPUS_MAX}."
        return refuse(found, path, f"is {shown(words)}, which is no number of cores", hint)
    return words


@dataclass(frozen=True, slots=True)
class ByteSize:
    """Text such as 64g, kept as written. low: bytes; example: a usual value."""

    low: int
    example: str
    high: int = 64 << 40

    @property
    def schema(self) -> Schema:
        return {"type": ["string", "integer"], "examples": [self.example]}

    def __call__(self, value: object, path: str, found: list[Finding]) -> Any:
        words = readers.scalar_as_written(32)(value, path, found)
        if words is ABSENT:
            return ABSENT
        size = byte_size(words)
        rule = (
            f"Write a whole number with k, m, g or t (powers of 1024), such as {self.example}; without one it is bytes."
        )
        if size is None:
            return refuse(found, path, f"is {shown(words)}, which is no amount of memory", rule)
        if not self.low <= size <= self.high:
            span = f"{self.low >> 20} MiB to {self.high >> 40} TiB"
            return refuse(found, path, f"is {shown(words)}, that is {size} bytes, outside {span}", rule)
        return words


@shaped({"type": ["string", "integer"]})
def user(value: object, path: str, found: list[Finding]) -> Any:
    words = readers.scalar_as_written(80)(value, path, found)
    if words is ABSENT:
        return ABSENT
    if not _USER.match(words) or any(part.isdigit() and int(part) > _ID_MAX for part in words.split(":")):
        hint = "Write USER or USER:GROUP, each a name that the image knows or a number, such as 1000:1000."
        return refuse(found, path, f"is {shown(words)}, which is no user of an image", hint)
    return words


def spelled(inner: Reader) -> Reader:
    """Below a field, what YAML left unquoted arrives as text, and cannot be told from text in quotes."""

    @shaped(schema_of_reader(inner))
    def read(value: object, path: str, found: list[Finding]) -> Any:
        return inner(Plain(value) if type(value) is str else value, path, found)

    return read


ulimits = readers.mapped(
    _ULIMIT_NAME, f"limits are {' '.join(ULIMITS)}", spelled(readers.WholeNumber(-1, 2**53)), len(ULIMITS)
)

_MOUNT = Record(
    {"source": readers.absolute_path, "target": readers.absolute_path, "read_only": spelled(readers.truth)},
    ("source", "target"),
    "Write source (a directory of the nodes), target (where the task sees it) and read_only: true or false.",
)


@shaped(schema_of_reader(_MOUNT))
def _mount(value: object, path: str, found: list[Finding]) -> Any:
    read = _MOUNT(value, path, found)
    if read is ABSENT:
        return ABSENT
    target = read["target"]
    if target == "/" or any(target == own or target.startswith(own + "/") for own in _OWN_TARGETS):
        return refuse(found, f"{path}.target", f"is {target}, which belongs to the image", "Choose another directory.")
    # Data is read more often than it is written, and what is not written cannot be spoilt.
    return {**read, "read_only": read.get("read_only", True)}


@shaped({"type": "array", "minItems": 1, "maxItems": MOUNTS_MAX, "items": schema_of_reader(_mount)})
def mounts(value: object, path: str, found: list[Finding]) -> Any:
    read = readers.listed(_mount, MOUNTS_MAX)(value, path, found)
    if read is ABSENT:
        return ABSENT
    targets = [mount["target"] for mount in read]
    twice = [at for at, target in enumerate(targets) if target in targets[:at]]
    for at in twice:
        refuse(found, f"{path}[{at}].target", f"is {targets[at]} a second time", "Mount each place once.")
    return ABSENT if twice else read

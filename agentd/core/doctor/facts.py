"""What the probes see, as they send it: plain values that JSON can carry. None is what could not be seen."""

from typing import TypedDict


class Setup(TypedDict):
    """Of the configuration. allow_paths: beside the default ones."""

    data_dir: str
    runtime: str
    gpus: str
    docker_socket: str
    api: str
    voter: str
    allow_paths: list[str]


class EngineFacts(TypedDict):
    """error: why it does not answer. components: what it is made of -> version. packages: name -> distribution's
    version. toolkit: what the NVIDIA toolkit says of its version. socket_mode: permission bits."""

    error: str
    version: str
    live_restore: bool
    components: dict[str, str]
    runtimes: list[str]
    packages: dict[str, str]
    release: list[str]
    toolkit: str
    socket_mode: int | None


class Card(TypedDict):
    uuid: str
    type: str
    index: int


class CardFacts(TypedDict):
    """pci: NVIDIA cards on the bus. state, faults: as the adapter says them."""

    pci: int
    state: str
    cards: list[Card]
    faults: dict[str, str]


class CudaDevice(TypedDict):
    """error: empty where memory of the card was taken, written and read back."""

    index: int
    error: str


class CudaFacts(TypedDict):
    error: str
    devices: list[CudaDevice]


class DiskFacts(TypedDict):
    """fsync_ms: one number a write of 4 KiB, in order of time."""

    path: str
    kind: str
    free_bytes: int
    error: str
    fsync_ms: list[float]


class ShmFacts(TypedDict):
    kind: str
    bytes: int
    free_bytes: int


class PortFacts(TypedDict):
    """state: free, ours, taken, absent (no such address here), refused. holder: the process, for people."""

    flag: str
    address: str
    state: str
    holder: str


class ReachFacts(TypedDict):
    """ephemeral: the range from which the kernel gives ports to outgoing connections. engine_tcp: addresses on which
    something listens on the engine's plain port."""

    ports: list[PortFacts]
    ephemeral: list[int] | None
    engine_tcp: list[str]


class PeerClock(TypedDict):
    """ahead_s: of our clock; negative where it is behind."""

    address: str
    ahead_s: float
    within_s: float


class ClockFacts(TypedDict):
    """synchronised: as the kernel is told by whatever keeps its time."""

    synchronised: bool | None
    peers: list[PeerClock]
    silent: list[str]


class Mount(TypedDict):
    source: str
    target: str
    kind: str


class Root(TypedDict):
    """said: by the configuration, so it must be there. within: where the file system that holds it is mounted."""

    path: str
    said: bool
    exists: bool
    within: str


class ShareFacts(TypedDict):
    """wanted: what fstab says is to be mounted. answers: of the network mounts that matter, mount point -> what is
    wrong with it, empty where it answers."""

    wanted: list[Mount]
    mounts: list[Mount]
    roots: list[Root]
    answers: dict[str, str]


class Nic(TypedDict):
    name: str
    up: bool
    mtu: int
    mbit: int | None
    numa: int | None
    default: bool


class RdmaPort(TypedDict):
    device: str
    port: int
    state: str
    rate: str
    numa: int | None


class NetworkFacts(TypedDict):
    """cards_numa: NUMA node of each NVIDIA card, by bus address. memlock: bytes, None for no limit."""

    nics: list[Nic]
    rdma: list[RdmaPort]
    cards_numa: dict[str, int]
    peermem: bool
    memlock: int | None


class RightsFacts(TypedDict):
    """isolation: how tasks can be held together: pidns, userns, subreaper. guard_*: of the running guard. delegated:
    whether its control group was given to it."""

    user: str
    root: bool
    isolation: str
    data_owner: str | None
    data_mode: int | None
    guard_pid: int
    guard_oom: int | None
    guard_user: str
    delegated: bool | None

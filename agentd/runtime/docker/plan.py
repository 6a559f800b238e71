"""What is asked of the engine for one task: pure, so that every hardened default can be seen in one place."""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentd.runtime.base import ContainerOptions, RuntimeRefused, TaskSpec
from agentd.shim.record import MARK
from schemas.rules.environment import PLATFORM_NAMES
from schemas.rules.frameworks.placement import FILES_IN_CONTAINER
from schemas.rules.host_paths import host_path_refusal
from schemas.rules.host_variables import host_variable_refusal, image_variables

LABEL = "io.heteroflow."
# Four files of 32 MB are what a shim that was held up may fall behind before output is lost: some seconds of a program
# that does nothing but print, and a disk holds it for every card of a host.
LOG_FILE_BYTES, LOG_FILES = 32_000_000, 4
_PIDS_MAX = 65536
_PYTHON_PATH = f"PYTHONPATH={FILES_IN_CONTAINER}"
_REAL_CARDS = ("GPU-", "MIG-")
# Compilers of kernels run what they write there.
_TMP = "rw,exec,nosuid,nodev"


class Owner(NamedTuple):
    """Whose containers these are: every list and every kill is filtered by both."""

    cluster: str
    node: str

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL + "cluster": self.cluster, LABEL + "node": self.node}


def task_labels(owner: Owner, group_id: str, attempt: int, rank: int) -> dict[str, str]:
    return owner.labels | {
        LABEL + "group": group_id,
        LABEL + "attempt": str(attempt),
        LABEL + "rank": str(rank),
    }


def label_filter(labels: Mapping[str, str]) -> dict[str, list[str]]:
    return {"label": [f"{name}={value}" for name, value in labels.items()]}


def container_name(spec: TaskSpec) -> str:
    """A retry never meets the container of an earlier attempt."""
    return f"hf-{spec.id.group_id}-{spec.id.attempt}-{spec.id.rank}"


def container_body(
    spec: TaskSpec,
    options: ContainerOptions,
    owner: Owner,
    directory: str,
    shm_bytes: int,
    propagation: Callable[[str], str],
) -> dict[str, Any]:
    """The engine's create request. directory: of the task, as the mark of its processes. propagation: of a mount's
    source. Raises RuntimeRefused."""
    return {
        "Image": options.image,
        # The whole program, so that an entry point of the image cannot change what runs.
        "Entrypoint": ["/bin/sh", "-c", spec.shell] if spec.shell else list(spec.argv),
        "Env": _environment(spec, directory),
        "WorkingDir": spec.cwd,
        "User": options.user,
        "Labels": task_labels(owner, spec.id.group_id, spec.id.attempt, spec.id.rank)
        | {LABEL + "token": str(spec.token)},
        "HostConfig": {
            "NetworkMode": "host",
            "IpcMode": "private",
            # Said although they are the engine's own defaults: a daemon.json may have others.
            "CgroupnsMode": "private",
            "Mounts": _mounts(spec, propagation),
            "ReadonlyRootfs": options.read_only_root,
            "Tmpfs": {"/tmp": _TMP} if options.read_only_root else {},
            "DeviceRequests": _device_requests(spec),
            "ShmSize": options.shm_bytes or shm_bytes,
            "Memory": options.memory_bytes,
            # The same: swapping would only hide that memory ran out.
            "MemorySwap": options.memory_bytes,
            "NanoCpus": round(options.cpus * 1e9),
            "PidsLimit": _PIDS_MAX,
            "Ulimits": [
                {"Name": name, "Soft": limit, "Hard": limit} for name, limit in _ulimits(spec, options).items()
            ],
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            # PID 1 without a handler hears no SIGTERM, and reaps nobody.
            "Init": True,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {
                "Type": "json-file",
                # All of it, since what is left out comes from the daemon's own settings; a compressed file is not read.
                "Config": {
                    "max-size": str(LOG_FILE_BYTES),
                    "max-file": str(LOG_FILES),
                    "mode": "blocking",
                    "compress": "false",
                },
            },
        },
    }


def over_image(body: dict[str, Any], image_env: Sequence[str]) -> dict[str, Any]:
    """The create request, with what its image must not say taken out. image_env: `NAME=value` each, of the image."""
    ours = {entry.partition("=")[0]: "" for entry in body["Env"]}
    changed = image_variables(image_env, ours)
    # A name alone takes an image's variable away.
    said = [name if value is None else f"{name}={value}" for name, value in sorted(changed.items())]
    return {**body, "Env": [_with_image_path(entry, image_env) for entry in [*body["Env"], *said]]}


def _with_image_path(entry: str, image_env: Sequence[str]) -> str:
    """What an image finds its own modules by comes behind ours, where the document says nothing of it."""
    if entry != _PYTHON_PATH:
        return entry
    own = next((value for value in image_env if value.startswith("PYTHONPATH=")), "")
    return f"{entry}:{own.partition('=')[2]}" if own.partition("=")[2] else entry


def _environment(spec: TaskSpec, directory: str) -> list[str]:
    env = dict(spec.env)
    for name in env.keys() - PLATFORM_NAMES.keys():
        if why := host_variable_refusal(name):
            raise RuntimeRefused(f"{name} is not given to a container: it {why}")
    # Always said: where it is missing, the image's own value or every card of the host is taken.
    env["NVIDIA_VISIBLE_DEVICES"] = ",".join(_real_cards(spec)) or "void"
    env[MARK] = directory
    return [f"{name}={value}" for name, value in env.items()]


def _real_cards(spec: TaskSpec) -> list[str]:
    return [uuid for uuid in spec.gpus if uuid.startswith(_REAL_CARDS)]


def _device_requests(spec: TaskSpec) -> list[dict[str, Any]]:
    cards = _real_cards(spec)
    return [{"Driver": "nvidia", "DeviceIDs": cards, "Capabilities": [["gpu"]]}] if cards else []


def _mounts(spec: TaskSpec, propagation: Callable[[str], str]) -> list[dict[str, Any]]:
    """Mounts and never binds: a bind makes a missing directory, on the system disk where a share should have been."""
    mounts = []
    for mount in spec.mounts:
        source = "/" + posixpath.normpath(mount.source).lstrip("/")
        if not mount.own and (why := host_path_refusal(source)):
            raise RuntimeRefused(f"{mount.source} is not given to a container: it {why}")
        mounts.append(
            {
                "Type": "bind",
                "Source": source,
                "Target": mount.target,
                "ReadOnly": mount.read_only,
                "BindOptions": {"Propagation": propagation(source)},
            }
        )
    return mounts


def _ulimits(spec: TaskSpec, options: ContainerOptions) -> dict[str, int]:
    # Cards register memory with the network adapter only where locking it is not limited. An engine that is itself
    # limited may not lift limits, so they are left alone where no card asks for it.
    lifted = {"memlock": -1, "stack": 64 << 20} if _real_cards(spec) else {}
    return lifted | dict(options.ulimits)

"""All that one rank is started with. The agent starts it by this, and `heteroflow render` prints it."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from schemas.rules.allowed_paths import IN_TASK_PATHS, PARENT_IN_TASK, RESUME_IN_TASK
from schemas.rules.environment import rank_environment
from schemas.rules.frameworks import given_to
from schemas.rules.frameworks.placement import FILES_IN_CONTAINER, Placement
from schemas.rules.hyper_params import FILE_NAME, as_json, needs_file
from schemas.task_types import part_of

CHECKPOINT_IN_TASK, DATASET_IN_TASK, BASE_IN_TASK = IN_TASK_PATHS
# Of a program on the host: not the agent's own environment, which is none of a task's business.
HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# What the agent puts beside the files, for every task.
REPORT_PIPE, REPORT_MODULE = "report", "heteroflow_report.py"


class MountPoint(NamedTuple):
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class RankStart:
    """argv empty where shell is a text for /bin/sh -c. files: text by name, in the placement's files_dir; a container
    sees that directory at FILES_IN_CONTAINER, which is no part of mounts. cwd "" where the document names none."""

    argv: tuple[str, ...]
    shell: str
    env: dict[str, str]
    mounts: tuple[MountPoint, ...]
    files: dict[str, str]
    cwd: str

    @staticmethod
    def given_mount(source: str) -> MountPoint:
        """How a container sees its files. source: their directory on the host."""
        return MountPoint(source, FILES_IN_CONTAINER, True)


def mount_points(document: Mapping[str, Any], checkpoint_path: str | None) -> tuple[MountPoint, ...]:
    """checkpoint_path: of the host, None where the group has none."""
    body = part_of(document)
    sources = {"checkpoint_path": checkpoint_path} | {
        field: body.get(field) for field in ("dataset_path", "base_checkpoint")
    }
    own = [
        MountPoint(source, target, field != "checkpoint_path")
        for target, field in IN_TASK_PATHS.items()
        if (source := sources[field])
    ]
    return (*own, *(MountPoint(m["source"], m["target"], m["read_only"]) for m in document["task"].get("mounts", ())))


def in_task(path: str | None, mounts: tuple[MountPoint, ...]) -> str | None:
    """A path of the host as a container sees it; as it is where no mount shows it."""
    mount = shows(path, mounts) if path is not None else None
    return path if path is None or mount is None else _below(mount, path)


def shows(path: str, mounts: tuple[MountPoint, ...]) -> MountPoint | None:
    for mount in mounts:
        if _holds(mount.source, path):
            # Another mount may lie over that part of this one.
            over = (other for other in mounts if _holds(other.target, _below(mount, path)))
            if max(over, key=lambda other: len(other.target)) == mount:
                return mount
    return None


def _below(mount: MountPoint, path: str) -> str:
    return mount.target.rstrip("/") + path[len(mount.source.rstrip("/")) :]


def _holds(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def resume_mount(document: Mapping[str, Any], path: str) -> MountPoint:
    """Of a path that lies in none of the others. It keeps its name, since trainers read steps and formats out of names;
    TensorFlow's is the beginning of the names of several files, so there it is the directory that holds them."""
    if part_of(document).get("framework") == "tensorflow":
        return MountPoint(posixpath.dirname(path), RESUME_IN_TASK, True)
    return MountPoint(path, f"{RESUME_IN_TASK}/{posixpath.basename(path)}", True)


def rank_start(
    document: Mapping[str, Any], placement: Placement, host_paths: bool, host: Mapping[str, str]
) -> RankStart:
    """document: normalised; placement: its paths are those of the host, and come out as the task sees them; host:
    variables of a program on the host, beneath all others. Raises PlacementIncomplete."""
    task = document["task"]
    mounts = mount_points(document, placement.checkpoint_path)
    if placement.parent_path is not None:
        mounts = (*mounts, MountPoint(placement.parent_path, PARENT_IN_TASK, True))
    # Before placement a placeholder stands there.
    if placement.resume is not None and placement.resume.startswith("/") and shows(placement.resume, mounts) is None:
        mounts = (*mounts, resume_mount(document, placement.resume))
    seen = placement if host_paths else _inside(placement, mounts)
    given = given_to(document, seen)
    hyper_params: Mapping[str, str] = (document.get("training") or {}).get("hyper_params") or {}
    files = dict(given.files)
    if needs_file(hyper_params, task.get("env") or {}):
        files[FILE_NAME] = as_json(hyper_params) + "\n"
    env = rank_environment(
        document,
        group_id=seen.group_id,
        attempt=seen.attempt,
        rank=seen.rank,
        n_nodes=seen.nodes,
        per_node_gpu=seen.cards,
        master_addr=seen.master_addr,
        master_port=seen.port(0),
        checkpoint_path_in_task=seen.checkpoint_path,
        dataset_path_in_task=seen.dataset_path,
        resume=seen.resume,
        gpus=seen.gpus,
        simulated_gpus=seen.simulated_gpus,
        given=given,
        files_dir=seen.files_dir,
        address=seen.own_address,
        base_checkpoint_in_task=seen.base_checkpoint,
    )
    env["HETEROFLOW_REPORT"] = f"{seen.files_dir}/{REPORT_PIPE}"
    env["PYTHONPATH"] = ":".join(filter(None, (seen.files_dir, env.get("PYTHONPATH"))))
    command = task["command"]
    return RankStart(
        argv=() if isinstance(command, str) else tuple(command),
        shell=command if isinstance(command, str) else "",
        # A container has its image's beneath.
        env={**host, **env} if host_paths else env,
        mounts=mounts,
        files=files,
        cwd=task.get("working_dir") or "",
    )


def _inside(placement: Placement, mounts: tuple[MountPoint, ...]) -> Placement:
    return replace(
        placement,
        checkpoint_path=CHECKPOINT_IN_TASK if placement.checkpoint_path else None,
        dataset_path=DATASET_IN_TASK if placement.dataset_path else None,
        base_checkpoint=BASE_IN_TASK if placement.base_checkpoint else None,
        resume=in_task(placement.resume, mounts),
        files_dir=FILES_IN_CONTAINER,
    )

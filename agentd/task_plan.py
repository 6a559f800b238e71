"""From rows to what this host needs to know: what a claim must prove, and how a task is started."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from agentd import heteroflow_report
from agentd.claims.claimer import ClaimRequest
from agentd.claims.reach import MeetingPoint
from agentd.interfaces import leading_to
from agentd.node_feed import Row, task_id_of
from agentd.runtime.base import ContainerOptions, Mount, Runtime, RuntimeRefused, TaskId, TaskSpec
from schemas.rules.byte_size import byte_size
from schemas.rules.frameworks import LISTEN_EVERYWHERE, Placement, PlacementIncomplete
from schemas.rules.frameworks.placement import port_of
from schemas.rules.frameworks.rank import (
    HOST_PATH,
    REPORT_MODULE,
    REPORT_PIPE,
    RankStart,
    mount_points,
    rank_start,
    resume_mount,
    shows,
)
from schemas.rules.rendezvous_address import crosses_networks
from schemas.states import PARENT_CHECKPOINT, RESUME_FROM_CHECKPOINT
from schemas.task_group import task_findings
from schemas.task_types import CONTAINER, part_of

_FINDINGS_SAID = 5
# In the directory of a task: what the platform wrote for it.
GIVEN = "given"


class TaskPlan:
    def __init__(self, runtime: Runtime, simulated_gpus: bool, cluster_id: str = "") -> None:
        self._runtime, self._simulated_gpus, self._cluster_id = runtime, simulated_gpus, cluster_id

    def claim_request(self, row: Row, group: Row) -> ClaimRequest:
        body, parent = part_of(group["document"]), group.get("parent")
        return ClaimRequest(
            name=f"{row['group_id']}/{row['attempt']}/{row['rank']}",
            cards=tuple(row["gpus"]),
            cards_wanted=_cards_a_node(group),
            port=_port_held(row, group),
            ports=tuple((group["document"]["task"].get("ports") or {}).values()),
            checkpoint_path=group["checkpoint_path"],
            dataset_path=body.get("dataset_path"),
            base_checkpoint=body.get("base_checkpoint"),
            resume_from_checkpoint=body.get(RESUME_FROM_CHECKPOINT),
            resume_shown_from=_shown_from(group),
            mounts=tuple(mount["source"] for mount in group["document"]["task"].get("mounts", ())),
            container=container_options(group["document"]["task"]),
            framework=body.get("framework"),
            meeting=self._meeting(row, group),
            parent=(parent["checkpoint_path"], parent["path"]) if parent else None,
            refused="; ".join(finding.message for finding in task_findings(group["document"])[:_FINDINGS_SAID]),
        )

    def _meeting(self, row: Row, group: Row) -> MeetingPoint | None:
        reach = group.get("reach")
        if reach is None:
            return None
        return MeetingPoint(
            cluster_id=self._cluster_id,
            group_id=str(group["group_id"]),
            attempt=int(row["attempt"]),
            node=str(group["nodes"][0]),
            addresses=tuple(reach["offered"]),
            port=int(group["master"]["port"]),
            rank=int(row["rank"]),
            world=len(group["nodes"]),
        )

    def task_spec(self, row: Row, group: Row) -> TaskSpec:
        """Called once per start; makes the working directory where the document names none."""
        task_id, task = task_id_of(row), group["document"]["task"]
        files_dir = Path(self._runtime.log_dir(task_id)).parent / GIVEN
        start = self._rank_start(row, group, task_id, str(files_dir))
        _write_files(files_dir, start.files)
        mounts = [Mount(*mount) for mount in start.mounts]
        if not self._runtime.host_paths:
            mounts.append(Mount(*start.given_mount(str(files_dir)), own=True))
        return TaskSpec(
            id=task_id,
            token=int(row["token"]),
            argv=start.argv,
            shell=start.shell,
            env=start.env,
            cwd=start.cwd or (self._work_dir(task_id) if self._runtime.host_paths else ""),
            gpus=tuple(row["gpus"]),
            stop_grace_s=float(task["stop_grace_s"]),
            on_isolation=group["on_isolation"],
            mounts=tuple(mounts),
            container=_claimed(container_options(task)),
        )

    def _rank_start(self, row: Row, group: Row, task_id: TaskId, files_dir: str) -> RankStart:
        placement = Placement(
            group_id=task_id.group_id,
            attempt=task_id.attempt,
            rank=task_id.rank,
            nodes=len(group["nodes"]),
            cards=_cards_a_node(group),
            master_addr=group["master"]["addr"],
            master_port=int(group["master"]["port"]),
            addresses=tuple(group.get("addresses") or ()),
            gpus=tuple(row["gpus"]),
            simulated_gpus=self._simulated_gpus,
            checkpoint_path=group["checkpoint_path"],
            dataset_path=part_of(group["document"]).get("dataset_path"),
            base_checkpoint=part_of(group["document"]).get("base_checkpoint"),
            resume=group["resume"]["path"] if group["resume"] else None,
            parent_path=_parent_path(group),
            files_dir=files_dir,
            crosses_networks=crosses_networks((group.get("reach") or {}).get("offered", ()), group["master"]["addr"]),
            interface=leading_to(str(group["master"]["addr"]), int(group["master"]["port"])) or "",
        )
        try:
            return rank_start(group["document"], placement, self._runtime.host_paths, _plain_environment())
        except PlacementIncomplete as error:
            raise RuntimeRefused(str(error)) from error

    def _work_dir(self, task_id: Any) -> str:
        work = Path(self._runtime.log_dir(task_id)).parent / "work"
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(work)


def container_options(task: Row) -> ContainerOptions | None:
    """task: of a normalised document, also of an older version's. None where it names no image."""
    if not task.get("image"):
        return None
    return ContainerOptions(
        image=str(task["image"]),
        pull=task.get("pull", "missing"),
        shm_bytes=byte_size(str(task.get("shm_size", "0"))) or 0,
        memory_bytes=byte_size(str(task.get("memory", "0"))) or 0,
        cpus=float(task.get("cpus", 0)),
        user=str(task.get("user", "")),
        ulimits=task.get("ulimits", {}),
        read_only_root=bool(task.get("read_only_root", False)),
    )


def _claimed(options: ContainerOptions | None) -> ContainerOptions | None:
    """The claim has asked the registry; to ask again at the start could give ranks of one attempt different images."""
    return replace(options, pull="missing") if options is not None and options.pull == "always" else options


@cache
def _reporter() -> str:
    """The module as it was installed: a task may have another Python than the agent."""
    return Path(heteroflow_report.__file__).read_text(encoding="utf-8")


def _shown_from(group: Row) -> str | None:
    """The source of the mount by which a container sees the path that its document resumes from."""
    document, path = group["document"], part_of(group["document"]).get(RESUME_FROM_CHECKPOINT)
    if path is None or not document["task"].get("image"):
        return None
    mount = shows(path, mount_points(document, group["checkpoint_path"]))
    return (mount or resume_mount(document, path)).source


def _parent_path(group: Row) -> str | None:
    """What the ranks are to see of the parent's, while they begin from it."""
    parent, resume = group.get("parent"), group["resume"] or {}
    return str(parent["checkpoint_path"]) if parent and resume.get("source") == PARENT_CHECKPOINT else None


def _port_held(row: Row, group: Row) -> int:
    """Rank 0's master port; where a framework listens on every node, each rank's own; 0 where ranks do not meet."""
    if group["task_type"] == CONTAINER:
        return 0
    if part_of(group["document"]).get("framework") in LISTEN_EVERYWHERE:
        return port_of(int(group["master"]["port"]), int(row["rank"]))
    return int(row["port"])


def _cards_a_node(group: Row) -> int:
    return int(part_of(group["document"]).get("per_node_gpu", group["document"]["task"].get("gpu_required", 0)))


def _write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Again where an agent was ended between this and the start. Readable by whomever an image runs as."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    pipe = directory / REPORT_PIPE
    if not pipe.is_fifo():
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        pipe.chmod(0o622)
    for name, text in {**files, REPORT_MODULE: _reporter()}.items():
        path = directory / name
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o444)


def _plain_environment() -> dict[str, str]:
    user = pwd.getpwuid(os.getuid())
    return {"PATH": HOST_PATH, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "LANG": "C.UTF-8"}

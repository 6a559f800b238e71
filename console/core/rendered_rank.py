"""What a rank of a document would be started with, before anything is placed.

What only placement decides stands as a placeholder in angle brackets; everything else is what the agent starts, made by
the same functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.rules.frameworks.placement import FILES_IN_CONTAINER, Placement
from schemas.rules.frameworks.rank import HOST_PATH, REPORT_MODULE, REPORT_PIPE, RankStart, rank_start
from schemas.task_types import shown_shape

TASK_DIR = "<directory of the task on its node>"
INTERFACE = "<interface of the node>"
RESUME = "<newest complete checkpoint; unset where there is none>"
PLACEHOLDERS: dict[str, str] = {
    "<group id>": "given when the group is submitted",
    "<attempt>": "counts from 1",
    "<address of rank K's node>": "known when the group is placed",
    "<port of rank K>": "free port on that node, new in every attempt",
    "<card I of rank K>": "UUID of a card; simulated: CUDA_VISIBLE_DEVICES empty, NVIDIA_VISIBLE_DEVICES void",
    INTERFACE: "the one that leads to rank 0's address",
    TASK_DIR: "made by the agent, removed with the task",
    RESUME: "one decision for all ranks, made when the group is started",
    "<user of the agent>": "without an image a task runs as the agent does",
    "<home of that user>": "",
    "<the image's>": "what the image says",
}


@dataclass(frozen=True, slots=True)
class RenderedRank:
    """start.env holds what the runtime adds too. container: whether it runs from an image."""

    rank: int
    start: RankStart
    container: bool

    @property
    def argv(self) -> tuple[str, ...]:
        return ("/bin/sh", "-c", self.start.shell) if self.start.shell else self.start.argv

    def to_dict(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "argv": list(self.argv),
            "cwd": self.start.cwd,
            "env": dict(sorted(self.start.env.items())),
            "mounts": [mount._asdict() for mount in self.start.mounts],
            "files": {self._path(name): text for name, text in sorted(self.start.files.items())},
            "beside": {
                self._path(REPORT_MODULE): "the module heteroflow_report, as the agent has it",
                self._path(REPORT_PIPE): "the pipe it tells progress through",
            },
            "placeholders": self._placeholders(),
        }

    def _path(self, name: str) -> str:
        return f"{files_dir(self.container)}/{name}"

    def _placeholders(self) -> dict[str, str]:
        """Those that stand somewhere in it."""
        said = " ".join(
            [*self.start.env.values(), *self.start.files, self.start.cwd, *(m.source for m in self.start.mounts)]
        )
        return {name: why for name, why in PLACEHOLDERS.items() if _beginning(name) in said}


def files_dir(container: bool) -> str:
    return FILES_IN_CONTAINER if container else f"{TASK_DIR}/given"


def render(document: Mapping[str, Any], rank: int) -> RenderedRank:
    """document: normalised; rank: below its n_nodes."""
    training, task = document.get("training") or {}, document["task"]
    container = "image" in task
    shape = shown_shape(document)
    nodes, cards = shape["n_nodes"], shape["per_node_gpu"]
    checkpoint = training.get("checkpoint_path")
    placement = Placement(
        group_id="<group id>",
        attempt="<attempt>",
        rank=rank,
        nodes=nodes,
        cards=cards,
        master_addr=_address(0),
        master_port=None,
        addresses=tuple(_address(number) for number in range(nodes)),
        gpus=tuple(f"<card {index} of rank {rank}>" for index in range(cards)),
        checkpoint_path=checkpoint,
        dataset_path=training.get("dataset_path"),
        base_checkpoint=training.get("base_checkpoint"),
        resume=training.get("resume_from_checkpoint") or (RESUME if checkpoint else None),
        files_dir=files_dir(container),
        interface=INTERFACE,
    )
    user = "<user of the agent>"
    host = {"PATH": HOST_PATH, "HOME": "<home of that user>", "USER": user, "LOGNAME": user, "LANG": "C.UTF-8"}
    start = rank_start(document, placement, not container, host)
    cwd = start.cwd or ("<the image's>" if container else f"{TASK_DIR}/work")
    mounts = start.mounts if container else ()
    if container:
        mounts = (*mounts, start.given_mount(f"{TASK_DIR}/given"))
    env = {**start.env, "HETEROFLOW_TASK_DIR": TASK_DIR}
    return RenderedRank(rank, RankStart(start.argv, start.shell, env, mounts, start.files, cwd), container)


def _address(rank: int) -> str:
    return f"<address of rank {rank}'s node>"


def _beginning(placeholder: str) -> str:
    """Without the number in it."""
    return placeholder.partition(" K")[0].partition(" I ")[0]

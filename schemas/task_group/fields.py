"""Every field of the task-group document, as data: where it stands, how it is read, or why it is refused.

A field whose machinery comes in a later version is refused, because a job that silently ran without it would mislead
(a sweep nobody runs, a quota of memory nobody sets). Those that only describe the job are kept and shown.
"""

import re
from dataclasses import dataclass, field

from schemas.errors import Finding
from schemas.limits import GPUS_PER_NODE_MAX, KEEP_LAST_MAX, NODES_MAX
from schemas.rules.frameworks import FRAMEWORKS
from schemas.rules.guards import LAUNCHERS
from schemas.rules.hyper_params import KEY, KEY_MAX, KEYS_MAX, VALUE_MAX
from schemas.states import ISOLATION_KEEP, ISOLATION_STOP, PRIORITIES
from schemas.task_group import container, readers
from schemas.task_group.parent import parent_checkpoint
from schemas.task_group.ports import ports
from schemas.task_group.readers import Reader, shaped
from schemas.task_group.recovery import recovery
from schemas.task_types import CONTAINER, INFERENCE, TASK_TYPES, TRAINING

YEAR_S = 366 * 86_400
DEFAULT_STOP_GRACE_S = 60
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LABEL_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?\Z")
_GROUP_ID_LIKE = re.compile(r"tg-[0-9a-z]{20}\Z")

NAME_MAX_CHARACTERS = 128


@shaped({"type": "string", "minLength": 1, "maxLength": NAME_MAX_CHARACTERS})
def name(value: object, path: str, found: list[Finding]) -> object:
    """Any printable characters, for people: what names containers, hosts and directories is the id."""
    words = readers.text(4 * NAME_MAX_CHARACTERS)(value, path, found)
    if words is readers.ABSENT:
        return words
    if len(words) > NAME_MAX_CHARACTERS:
        return readers.refuse(
            found, path, f"has {len(words)} characters; at most {NAME_MAX_CHARACTERS} fit", "Shorten it."
        )
    if words != words.strip():
        return readers.refuse(found, path, "begins or ends with a space", "Remove it.")
    if _GROUP_ID_LIKE.match(words):
        return readers.refuse(
            found, path, "looks like a group id, so commands could not tell them apart", "Choose another name."
        )
    return words


def harmless(value: str) -> Reader:
    """A field of a later version whose one value means what this version does anyway."""

    @shaped({"enum": [value]})
    def read(given: object, path: str, found: list[Finding]) -> object:
        if isinstance(given, str) and str(given) == value:
            return value
        if given is None:
            return readers.refuse(found, path, "is null", "Remove the key.")
        return readers.refuse(
            found,
            path,
            f"{readers.shown(given)} is not supported yet in this version",
            f"Remove it or use {value}.",
            "not_supported_yet",
        )

    return read


@dataclass(frozen=True, slots=True)
class Later:
    """Known, but its machinery is not in this version. instead: what to do meanwhile."""

    instead: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Never taken. why: message; instead: the field to use."""

    why: str
    instead: str


@dataclass(frozen=True, slots=True)
class Section:
    """fields: in the order of the normalised document. elsewhere: other systems' names of one field, with ours.
    advice: other systems' names that are no single field here, with what to do."""

    fields: dict[str, Reader | Later | Refused]
    required: tuple[str, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)


_REMOVE = "Remove it for now."
_GPU_TYPE = readers.listed(readers.text(128), 16, one_alone=True)
_OTHER_FRAMEWORKS = {
    **dict.fromkeys(("pytorch", "torch", "torchrun", "accelerate", "huggingface", "mpi", "openmpi", "openmp"), "ddp"),
    **dict.fromkeys(("tf", "keras", "tensorflow2"), "tensorflow"),
    **dict.fromkeys(("zero", "zero2", "zero3"), "deepspeed"),
    **dict.fromkeys(("flax", "maxtext"), "jax"),
}
_IN_SCRIPT = "Do it in the script or its command for now."

TOP = Section(
    required=("name", "task_type", "task"),
    fields={
        "name": name,
        "task_type": readers.choice(*TASK_TYPES),
        "priority": readers.choice(*PRIORITIES),
        "tenant": readers.text(64),
        "on_isolation": readers.choice(ISOLATION_STOP, ISOLATION_KEEP),
        "preflight": harmless("off"),
        "labels": readers.mapped(
            _LABEL_KEY,
            "label keys are letters, digits and . _ / - inside, at most 64 characters",
            readers.scalar_as_written(256),
            64,
        ),
        "notes": readers.text(4096, lines=True),
        "max_retries": readers.WholeNumber(0, 1_000_000),
        "preemptible": readers.truth,
    },
    elsewhere={"type": "task_type", "job_type": "task_type", "queue": "priority", "title": "name"},
    advice={
        "experiment": "this document has no such level: write its fields at the top level, in training and in task",
        "compute": "use training.n_nodes, training.per_node_gpu and training.gpu_type",
        "checkpoint": "use training.checkpoint_path, training.checkpoint_interval (seconds) and training.keep_last_n",
        "hyperparameters": "use training.hyper_params",
        "hyperparams": "use training.hyper_params",
        "resources": "use training.n_nodes, training.per_node_gpu and training.gpu_type",
        "spec": "this document has no such level: write training and task at the top level",
        "metadata": "use name and labels at the top level",
        **dict.fromkeys(("kind", "apiVersion"), "write task_type: training, inference or container"),
        **dict.fromkeys(("run", "script"), "use task.command"),
        "setup": "put it into task.command before what it runs, or into the image",
        **dict.fromkeys(("envs", "environment"), "use task.env"),
        "workdir": "use task.working_dir",
        **dict.fromkeys(
            ("gpus", "gpu", "num_gpus", "gpu_count", "accelerators", "gres"),
            "use training.per_node_gpu and task.gpu_required, both the cards of one node",
        ),
        **dict.fromkeys(("partition", "datacenters"), "groups go where they fit; training.gpu_type chooses the cards"),
        **dict.fromkeys(("time", "timeout", "time_limit", "walltime"), "use training.deadline_s, in seconds"),
    },
)

TRAINING_PART = Section(
    required=("framework", "n_nodes", "per_node_gpu"),
    fields={
        "framework": readers.choice(*FRAMEWORKS, other_names=_OTHER_FRAMEWORKS),
        "launcher": readers.choice(*LAUNCHERS),
        "world_size": readers.WholeNumber(1, NODES_MAX * GPUS_PER_NODE_MAX),
        "n_nodes": readers.WholeNumber(1, NODES_MAX),
        "per_node_gpu": readers.WholeNumber(1, GPUS_PER_NODE_MAX),
        "gpu_type": _GPU_TYPE,
        "topology": Later("Placement packs nodes by itself. " + _REMOVE),
        "checkpoint_path": readers.absolute_path,
        "checkpoint_interval": readers.WholeNumber(1, 30 * 86_400, "seconds"),
        "keep_last_n": readers.WholeNumber(1, KEEP_LAST_MAX),
        "dataset_path": readers.absolute_path,
        "dataset": Later("Use dataset_path; record a version in labels."),
        "base_checkpoint": readers.absolute_path,
        "resume_from_checkpoint": readers.absolute_path,
        "parent_checkpoint": parent_checkpoint,
        "hyper_params": readers.mapped(
            KEY,
            f"keys begin with a letter or _, hold letters, digits, _ . -, and have at most {KEY_MAX} characters",
            readers.scalar_as_written(VALUE_MAX),
            KEYS_MAX,
            KEY_MAX,
        ),
        "loss_tag": readers.text(256),
        "recovery": recovery,
        "deadline_s": readers.WholeNumber(1, YEAR_S, "seconds"),
        "max_wait_s": readers.WholeNumber(1, YEAR_S, "seconds"),
        "sla": harmless("standard"),
        "sweep": Later("Submit one group per combination."),
        "evaluation": Later(_IN_SCRIPT),
        "profile": Later(_IN_SCRIPT),
        "code": Later("Put the code under an allowed path on every node and name it in task.command."),
        "seed": readers.scalar_as_written(64),
        "model": readers.text(256),
        "max_retries": readers.WholeNumber(0, 1_000_000),
        "preemptible": readers.truth,
    },
    elsewhere={
        **dict.fromkeys(("num_nodes", "nnodes", "nodes", "num_workers", "replicas"), "n_nodes"),
        **dict.fromkeys(("gpu_per_node", "gpus_per_node", "nproc_per_node"), "per_node_gpu"),
        **dict.fromkeys(("hyperparams", "hyperparameters", "hparams"), "hyper_params"),
        **dict.fromkeys(("checkpoint_dir", "ckpt_path", "output_dir"), "checkpoint_path"),
        **dict.fromkeys(("timeout", "timeout_s", "walltime", "time_limit", "deadline"), "deadline_s"),
        **dict.fromkeys(("max_wait", "queue_timeout"), "max_wait_s"),
    },
    advice={
        "compute": "use n_nodes, per_node_gpu and gpu_type",
        **dict.fromkeys(
            ("gpus", "gpu", "num_gpus", "gpu_count"), "use per_node_gpu, the cards of one node, and n_nodes"
        ),
        "checkpoint": "use checkpoint_path, checkpoint_interval (seconds) and keep_last_n",
        "interval_steps": "use checkpoint_interval, in seconds; pass a step interval to the script in hyper_params",
        **{
            key: f"use hyper_params.{key}"
            for key in ("lr", "learning_rate", "epochs", "batch_size", "global_batch_size")
        },
    },
)

TASK = Section(
    required=("command", "gpu_required"),
    fields={
        "image": container.image,
        "command": readers.command,
        "env": readers.mapped(
            _ENV_NAME,
            "names are letters, digits and _, not beginning with a digit, at most 128 characters",
            readers.scalar_as_written(32 * 1024),
            256,
            128,
        ),
        "gpu_required": readers.WholeNumber(0, GPUS_PER_NODE_MAX),
        "working_dir": readers.absolute_path,
        "stop_grace_s": readers.WholeNumber(0, 3600, "seconds"),
        "cpus": container.cpus,
        "memory": container.ByteSize(6 << 20, "64g"),
        "shm_size": container.ByteSize(1 << 20, "16g"),
        "hugepages": Later("Containers use what the nodes have configured. " + _REMOVE),
        "ulimits": container.ulimits,
        "image_pull_credential": Later(
            "Never send a password that a document would keep: log in on the nodes, `docker login` as the agent's user."
        ),
        "pull": readers.choice(*container.PULL_POLICIES),
        "mounts": container.mounts,
        "user": container.user,
        "read_only_root": readers.truth,
        "ports": ports,
        "max_retries": readers.WholeNumber(0, 1_000_000),
        "preemptible": readers.truth,
        "entry_point": Refused(
            "is never turned into a command: the task would do nothing and exit 0", "Use task.command."
        ),
    },
    elsewhere={
        **dict.fromkeys(("entrypoint", "cmd", "args", "script"), "command"),
        **dict.fromkeys(("environment", "envs"), "env"),
        **dict.fromkeys(("gpus", "gpu", "num_gpus"), "gpu_required"),
        **dict.fromkeys(("workdir", "cwd"), "working_dir"),
        "stop_grace": "stop_grace_s",
        "docker_image": "image",
        **dict.fromkeys(("cpu", "cpu_limit"), "cpus"),
        **dict.fromkeys(("mem", "memory_limit", "mem_limit"), "memory"),
        **dict.fromkeys(("shm", "shared_memory"), "shm_size"),
        **dict.fromkeys(("image_pull_policy", "pull_policy"), "pull"),
        **dict.fromkeys(("volumes", "binds"), "mounts"),
    },
    advice={
        **dict.fromkeys(
            ("privileged", "cap_add", "capabilities", "security_opt", "apparmor", "seccomp"),
            "containers get no capabilities and no new privileges; what needs them belongs into the image",
        ),
        **dict.fromkeys(
            ("devices", "device_requests", "device_cgroup_rules", "runtime"),
            "a task has exactly its own cards, training.per_node_gpu of them, and no other device",
        ),
        **dict.fromkeys(
            ("pid", "pid_mode", "ipc", "ipc_mode", "uts", "userns_mode", "cgroup_parent"),
            "containers have namespaces of their own, whatever they would share with the host",
        ),
        **dict.fromkeys(
            ("network", "network_mode", "net"), "containers use the network of their node; there is nothing to choose"
        ),
    },
)

# Without an image there is no container that could have them.
CONTAINER_FIELDS = ("cpus", "memory", "shm_size", "ulimits", "pull", "mounts", "user", "read_only_root")

_SHAPE: dict[str, Reader | Later | Refused] = {"n_nodes": readers.WholeNumber(1, NODES_MAX), "gpu_type": _GPU_TYPE}
_CARDS = "use task.gpu_required: the cards of one node"
INFERENCE_PART = Section(
    fields={
        **_SHAPE,
        "model": readers.text(256),
        "autoscale": Later("Submit one group per replica."),
        "sleep": Later("Stop the group where its cards are needed. " + _REMOVE),
        "health": Later("End the program where it is not healthy: the group is built again then."),
    },
    elsewhere=dict.fromkeys(("num_nodes", "nnodes", "nodes"), "n_nodes"),
    advice={
        **dict.fromkeys(("per_node_gpu", "gpu_per_node", "gpus_per_node", "gpus"), _CARDS),
        "ports": "use task.ports",
        "port": "use task.ports",
        **dict.fromkeys(("replicas", "num_replicas", "min_replicas", "max_replicas"), "submit one group per replica"),
    },
)
CONTAINER_PART = Section(
    fields=_SHAPE,
    elsewhere=dict.fromkeys(("num_nodes", "nnodes", "nodes", "replicas"), "n_nodes"),
    advice={
        **dict.fromkeys(("per_node_gpu", "gpu_per_node", "gpus_per_node", "gpus"), _CARDS),
        **dict.fromkeys(("image", "command", "env"), "it belongs in task"),
    },
)

SECTIONS: dict[str, Section] = {
    "": TOP,
    TRAINING: TRAINING_PART,
    INFERENCE: INFERENCE_PART,
    CONTAINER: CONTAINER_PART,
    "task": TASK,
}
REQUIRED_PARTS = frozenset((TRAINING,))
# A rank of a training without cards would train nothing.
OF_TRAINING: dict[str, Reader] = {"task.gpu_required": readers.WholeNumber(1, GPUS_PER_NODE_MAX)}

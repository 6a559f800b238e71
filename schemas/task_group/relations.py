"""What fields must agree on, and what is worth a warning.

Reads the normalised parts; a part that was refused is simply not there.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import Finding
from schemas.rules.allowed_paths import IN_TASK_PATHS, PARENT_IN_TASK, RESUME_IN_TASK, host_path, path_refusal
from schemas.rules.environment import reserved_refusal
from schemas.rules.frameworks.placement import FILES_IN_CONTAINER
from schemas.rules.host_paths import host_path_refusal
from schemas.rules.host_variables import host_variable_refusal
from schemas.rules.hyper_params import ENVIRONMENT_MAX, collisions, environment_bytes, variable_name
from schemas.task_group.fields import CONTAINER_FIELDS
from schemas.task_types import CONTAINER, INFERENCE, TRAINING, type_of

_ALLOW_HINT = "Choose a directory under one of them; an operator adds more with --allow-path."
_HOST_HINT = "Mount a directory of data or code; nothing of the host itself is given to a task."
_UNASKED = {
    INFERENCE: "Remove it: an inference group is built again by itself.",
    CONTAINER: "Remove it: a container runs once; repeat it with heteroflow resubmit.",
}
_PATHS = ("checkpoint_path", "dataset_path", "base_checkpoint", "resume_from_checkpoint")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{?\s*[A-Za-z_][\w.]*\s*\}?\}|%[a-zA-Z]\b|\$\(")
_SAYS_NOTHING = frozenset("train training test job run exp experiment final new tmp model".split())


def contradictions(document: Mapping[str, Any], allowed_paths: Sequence[str], kind: str) -> list[Finding]:
    training, task = document.get("training", {}), document.get("task", {})
    return [
        *_shape(training, task),
        *_paths(training, allowed_paths),
        *_lineage(training),
        *_container(training, task, allowed_paths),
        *_variables(training, task),
        *_preemption(document, kind),
    ]


def host_findings(training: Mapping[str, Any], task: Mapping[str, Any]) -> list[Finding]:
    """Of a task, what reaches for the host or for what the platform decides."""
    return [*_container(training, task, ("/",)), *_variables(training, task)]


def _shape(training: Mapping[str, Any], task: Mapping[str, Any]) -> list[Finding]:
    nodes, cards = training.get("n_nodes"), training.get("per_node_gpu")
    required, world = task.get("gpu_required"), training.get("world_size")
    found = []
    if cards is not None and required is not None and cards != required:
        message = (
            f"task.gpu_required is {required}, but training.per_node_gpu is {cards}; both count the cards of one node"
        )
        found.append(Finding("shape_mismatch", "task.gpu_required", message, f"Set task.gpu_required to {cards}."))
    if nodes is not None and cards is not None and world is not None and world != nodes * cards:
        message = f"training.world_size is {world}, but n_nodes {nodes} x per_node_gpu {cards} is {nodes * cards}"
        found.append(Finding("shape_mismatch", "training.world_size", message, "Remove world_size: it is worked out."))
    return found


def _paths(training: Mapping[str, Any], allowed: Sequence[str]) -> list[Finding]:
    found = []
    for name in _PATHS:
        if name not in training:
            continue
        field = f"training.{name}"
        path = host_path(training[name], training) if name == "resume_from_checkpoint" else training[name]
        if refusal := path_refusal(path, allowed):
            missing = IN_TASK_PATHS.get("/" + path.split("/")[1])
            hint = f"Give training.{missing}: it is what the task sees there." if missing else _ALLOW_HINT
            found.append(Finding("path_not_allowed", field, f"{field} {refusal}", hint))
        elif refusal := host_path_refusal(path):
            found.append(Finding("host_path", field, f"{field} {refusal}", _HOST_HINT))
    return found


def _lineage(training: Mapping[str, Any]) -> list[Finding]:
    field, found = "training.parent_checkpoint", []
    if "parent_checkpoint" not in training:
        return []
    if "resume_from_checkpoint" in training:
        message = f"{field} and training.resume_from_checkpoint both say where to begin"
        found.append(Finding("begins_twice", field, message, "Remove one of them."))
    if "checkpoint_path" not in training:
        message = "training.checkpoint_path is missing: the parent's is not inherited, since it holds its checkpoints"
        found.append(
            Finding("missing_field", "training.checkpoint_path", message, "Name a directory of this group's own.")
        )
    return found


def _container(training: Mapping[str, Any], task: Mapping[str, Any], allowed: Sequence[str]) -> list[Finding]:
    found = []
    for name in CONTAINER_FIELDS:
        if name in task and "image" not in task:
            message = f"task.{name} is of a container, and without task.image there is none"
            found.append(Finding("needs_image", f"task.{name}", message, f"Name an image, or remove {name}."))
    for at, mount in enumerate(task.get("mounts", ())):
        place = f"task.mounts[{at}]"
        # First what no allow-list could open.
        if refusal := host_path_refusal(mount["source"]):
            found.append(Finding("host_path", f"{place}.source", f"{place}.source {refusal}", _HOST_HINT))
        elif refusal := path_refusal(mount["source"], allowed):
            found.append(Finding("path_not_allowed", f"{place}.source", f"{place}.source {refusal}", _ALLOW_HINT))
        root = "/" + mount["target"].split("/")[1]
        if root == FILES_IN_CONTAINER:
            message = f"{place}.target is {mount['target']}, where the task sees what the platform wrote for it"
            found.append(Finding("mount_twice", f"{place}.target", message, "Choose another target."))
        if root == PARENT_IN_TASK and "parent_checkpoint" in training:
            message = f"{place}.target is {mount['target']}, where the task sees the checkpoints of its parent"
            found.append(Finding("mount_twice", f"{place}.target", message, "Choose another target."))
        if root == RESUME_IN_TASK and "resume_from_checkpoint" in training:
            message = f"{place}.target is {mount['target']}, where the task sees training.resume_from_checkpoint"
            found.append(Finding("mount_twice", f"{place}.target", message, "Choose another target."))
        if (field := IN_TASK_PATHS.get(root)) in training:
            message = f"{place}.target is {mount['target']}, where the task sees training.{field}"
            found.append(Finding("mount_twice", f"{place}.target", message, "Choose another target."))
    return found


def _variables(training: Mapping[str, Any], task: Mapping[str, Any]) -> list[Finding]:
    hyper_params, env = training.get("hyper_params", {}), task.get("env", {})
    found = collisions(hyper_params, "training.hyper_params")
    generated = {variable_name(key): key for key in hyper_params}
    for name in sorted(env):
        if name in generated:
            reason = f"is made from training.hyper_params.{generated[name]}"
        else:
            reason = reserved_refusal(name) or host_variable_refusal(name) or ""
        if reason:
            message = f"task.env.{name} {reason}"
            found.append(
                Finding(
                    "reserved_variable", f"task.env.{name}", message, "Remove it, or use another name in the script."
                )
            )
    # Hyper-parameters have a file to go to.
    if not found and (size := environment_bytes({}, env)) > ENVIRONMENT_MAX:
        message = f"task.env fills {size} bytes of environment; {ENVIRONMENT_MAX} fit"
        hint = "Put long values into a file and pass its path."
        found.append(Finding("environment_too_large", "task.env", message, hint))
    return found


def _preemption(document: Mapping[str, Any], kind: str) -> list[Finding]:
    found = []
    for path, holder in _everywhere(document):
        if kind != TRAINING:
            # Who asks for retries or preemption of these means something by it, and would wait for it in vain.
            for name in ("preemptible", "max_retries"):
                if holder.get(name):
                    message = f"{path}{name} of {kind} is not supported yet in this version"
                    found.append(Finding("not_supported_yet", f"{path}{name}", message, _UNASKED[kind]))
            continue
        if holder.get("preemptible") is True:
            message = f"{path}preemptible: training is never preempted and never preempts"
            found.append(Finding("not_for_training", f"{path}preemptible", message, "Remove it."))
    return found


def _everywhere(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [("", document), ("training.", document.get("training", {})), ("task.", document.get("task", {}))]


def warnings_of(document: Mapping[str, Any]) -> list[Finding]:
    """What was refused is not there: a warning about a field that is missing may be about one that is wrong."""
    training, task = document.get("training", {}), document.get("task", {})
    found = []

    def warn(code: str, path: str, message: str, hint: str) -> None:
        found.append(Finding(code, path, message, hint))

    for path, holder in _everywhere(document):
        if "max_retries" in holder and type_of(document) == TRAINING:
            warn(
                "no_effect",
                f"{path}max_retries",
                f"{path}max_retries has no effect: a restarted rank cannot rejoin its world",
                "Remove it.",
            )
    if training and "checkpoint_path" not in training:
        hint = "Set training.checkpoint_path."
        warn(
            "no_checkpoint_path",
            "training.checkpoint_path",
            "without checkpoint_path a lost node costs the whole run",
            hint,
        )
    elif "checkpoint_path" in training and training.get("n_nodes", 1) > 1:
        path, nodes = training["checkpoint_path"], training["n_nodes"]
        message = f"{path} must be the same shared directory on all {nodes} nodes; nothing has proved that it is"
        warn(
            "shared_storage_unproved",
            "training.checkpoint_path",
            message,
            "Use a network file system mounted on every node.",
        )
    if "keep_last_n" in training and ("checkpoint_path" not in training or training.get("framework") == "tensorflow"):
        why = "the files of one are no directory" if "checkpoint_path" in training else "there is no checkpoint_path"
        hint = "Remove it, or use max_to_keep in the script." if "checkpoint_path" in training else "Remove it."
        message = f"keep_last_n removes nothing here: {why}"
        warn("no_effect", "training.keep_last_n", message, hint)
    for name in _PATHS:
        if left := _VARIABLE.search(str(training.get(name, ""))):
            path = f"training.{name}"
            message = f"{path} is {training[name]}, and nothing expands {left.group()} there: it is part of the name"
            warn("not_expanded", path, message, "Write the whole path; each group's own directory has its own name.")
    if "image" in task and _mutable(task["image"]):
        warn(
            "mutable_image",
            "task.image",
            f"{task['image']} can change between attempts",
            "Name a version tag or a digest.",
        )
    if "name" in document and _is_vague(document["name"]):
        warn(
            "vague_name",
            "name",
            f"the name {document['name']} will not tell anyone what this was",
            "Name model, data and purpose.",
        )
    return found


def _is_vague(name: str) -> bool:
    words = [word for word in re.split(r"[\s_.-]+", name.lower()) if word]
    return all(word in _SAYS_NOTHING or re.fullmatch(r"v?[0-9]+", word) for word in words)


def _mutable(image: str) -> bool:
    if "@sha256:" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest", "main", "master", "dev", "nightly", "stable")

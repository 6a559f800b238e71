"""What a verb is, and the list of them."""

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from console.cli.terminal import Terminal

VERBS: dict[str, str] = {
    "console": "look at the mesh and steer it by keys (the default on a terminal)",
    "submit": "submit a task group from a YAML or JSON file",
    "lint": "judge a document as it would be judged when it is submitted, without a mesh",
    "render": "print what a rank of a document gets: argv, environment, mounts, files; without a mesh",
    "template": "list documents to begin with, print one, or fill what a document leaves open",
    "ls": "list task groups",
    "show": "show one group: shape, ranks, warnings",
    "why": "say why a group waits, failed, or is where it is",
    "logs": "print or follow the logs of a group",
    "events": "show the timeline of a group",
    "files": "list, fetch and bring files of a group: checkpoints, data, mounts",
    "exec": "run a program, or a shell, beside a running rank",
    "stop": "stop a group; its ranks get time to save",
    "pause": "let running groups save and give their cards back; they keep their place",
    "resume": "put paused groups back into the queue, at their old place",
    "resubmit": "submit a finished group again",
    "clone": "print the document of a group, or edit it and submit the copy",
    "delete": "remove finished groups from the records",
    "nodes": "list nodes and their cards",
    "cordon": "keep new groups away from nodes",
    "uncordon": "let groups on nodes again, and call off a drain",
    "give-up": "say that a lost node is off for good, so that nothing waits for its ranks",
    "drain": "empty a node: groups finish by a deadline, or move with their checkpoints",
    "maintenance": "take a node out of service for a time, and back by itself",
    "mesh": "show voters and leader; pause and resume scheduling, hold nodes for planned work",
    "queue": "show what waits, in the order in which it is considered",
    "top": "show what runs: step, loss, age, utilisation of the cards",
    "alerts": "show what stands: stalls, split worlds, wrong clocks, certificates",
    "watch": "print every change as it happens",
    "debug": "gather what is needed to find a fault into one file, without secrets",
    "curves": "show the curves of a group, or of TensorBoard event files of this host",
    "checkpoint": "list what a group has saved, or say which checkpoint of a directory is the newest complete one",
    "login": "remember a mesh and the API key for it",
    "context": "list the meshes known here, and choose the current one",
    "whoami": "say who the mesh takes you for, and what you may do",
    "key": "make, list and revoke API keys",
    "audit": "show who changed what",
    "completion": "print a script by which a shell completes verbs and options",
    "version": "print the version",
}


@dataclass(frozen=True, slots=True)
class Verb:
    """run(args, terminal, client) -> exit code; the client is None only where needs_client(args) is False.

    outputs: what -o may say; what is said as json can be said as yaml too, and a table can be wide. raw: texts come
    unchanged, and the verb itself makes them safe for a terminal. program: what stands behind `--` belongs to `program`
    of its arguments.

    A verb's file loads nothing of the network at its top: aiohttp costs more than all the rest, --help shall not wait.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: "Callable[[argparse.Namespace, Terminal, Any], Awaitable[int]]"
    needs_client: Callable[[argparse.Namespace], bool] = lambda args: True
    outputs: tuple[str, ...] = ("table", "json")
    raw: bool = False
    program: bool = False


def verb_named(name: str) -> Verb:
    """One of VERBS, from its file."""
    verb: Verb = import_module(f"console.cli.{name.replace('-', '_')}").VERB
    return verb

"""heteroflow nodes"""

import argparse
from typing import TYPE_CHECKING

from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, age, coarse, moment_ms, number, text_or_dash
from console.core.service_text import service_notes, service_state
from schemas.api import Node

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    answer = await client.read("/api/v1/nodes")
    nodes = answer.value["nodes"]
    # An agent of an older version does not gossip.
    differences = answer.value.get("differences", [])
    if args.output == "json":
        terminal.json({"nodes": nodes, "differences": differences})
    elif not nodes:
        terminal.note("no node has joined yet")
    else:
        head = (
            "NODE",
            "STATE",
            "GOSSIP",
            "FREE",
            "GPU",
            "TYPE",
            "CPU",
            "MEM GB",
            "VOTER",
            "ADDRESS",
            "VERSION",
            "NOTE",
        )
        terminal.table(head, [_row(node, answer.now_ms) for node in nodes], right=("FREE", "GPU", "CPU", "MEM GB"))
    if args.output != "json":
        # The log decides, and gossip is a hint; where they differ it is worth a look.
        for difference in differences:
            terminal.note(f"{difference['node_id']}: {difference['text']}")
    return 0


def _row(node: Node, now_ms: int) -> tuple[str, ...]:
    lost = node["state"] == "lost"
    types = list(dict.fromkeys(str(gpu["type"]) for gpu in node.get("gpus") or []))
    memory = node.get("memory_mb")
    return (
        node["node_id"],
        f"lost {age(moment_ms(node.get('lost_at')), now_ms)}" if lost else _state(node),
        _gossip(node),
        UNKNOWN if lost else number(node.get("gpus_free")),
        number(node.get("gpus_total")),
        (",".join(types) or UNKNOWN) + (" (simulated)" if node.get("gpu_backend") == "simulated" else ""),
        number(node.get("cpus")),
        number(memory // 1024) if isinstance(memory, int) else UNKNOWN,
        "yes" if node.get("voter") else "no",
        text_or_dash(node.get("api_addr")),
        text_or_dash(node.get("version")),
        _note(node),
    )


def _gossip(node: Node) -> str:
    """How long only where it is not alive: that is what people ask then."""
    seen = node.get("gossip")
    if not seen:
        return UNKNOWN
    if seen["state"] == "alive":
        return "alive"
    return f"{seen['state']} {coarse(int(seen['since_s'] * 1000))}"


def _state(node: Node) -> str:
    return service_state(node) if node["state"] == "ready" else text_or_dash(node["state"])


def _note(node: Node) -> str:
    releasing = node.get("gpus_releasing")
    notes = [str(node["reason"])] if node.get("reason") else []
    notes += service_notes(node)
    notes += [f"{releasing} cards releasing"] if releasing else []
    return " · ".join(notes)


VERB = Verb(_add_arguments, _run)

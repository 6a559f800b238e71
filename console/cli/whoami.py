"""heteroflow whoami"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import utc_text
from schemas.rules.permissions import MESH

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    who = (await client.read("/api/v1/whoami")).value
    if args.output == "json":
        terminal.json(who)
        return 0
    terminal.line(person_text(who))
    terminal.line(f"may: {', '.join(who['permissions'])}")
    return 0


def person_text(who: Mapping[str, Any]) -> str:
    if who["kind"] == MESH:
        return "the holder of the mesh token, an administrator"
    of = "sees every tenant" if who["sees_all_tenants"] else f"sees tenant {who['tenant']}"
    ends = f", until {utc_text(who['expires_at'])}" if who["expires_at"] else ""
    return f"{who['name']}, {who['role']} of tenant {who['tenant']}, {of} (key {who['key_id']}{ends})"


VERB = Verb(_add_arguments, _run)

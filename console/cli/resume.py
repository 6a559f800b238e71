"""heteroflow resume GROUP..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_order import add_groups, order_each
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    await order_each("resume", args, terminal, client)
    return 0


VERB = Verb(add_groups, _run)

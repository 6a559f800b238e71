"""Options that every verb shares; they may stand before or after the verb."""

import argparse
import contextlib
from collections.abc import Callable
from typing import Any


def add_connection_options(parser: argparse.ArgumentParser, again: bool = False) -> None:
    """again: the same options once more on a verb's own parser, which must not overwrite what stood before the verb."""
    group = parser.add_argument_group("connection and output")
    unset = argparse.SUPPRESS

    def add(*names: str, default: object, **options: Any) -> None:
        group.add_argument(*names, default=unset if again else default, **options)

    add(
        "--node",
        action="append",
        metavar="HOST:PORT",
        default=None,
        help="a node of the mesh; may be repeated (also HETEROFLOW_NODES)",
    )
    add(
        "--data-dir",
        metavar="D",
        default=None,
        help="data directory of an agent on this host: its address and token are used",
    )
    add(
        "--token-file",
        metavar="F",
        default=None,
        help="file with an API key or the mesh token (also HETEROFLOW_TOKEN_FILE, HETEROFLOW_TOKEN)",
    )
    add(
        "--ca-file",
        metavar="F",
        default=None,
        help="certificate of the mesh CA, for a mesh with TLS (also HETEROFLOW_CA_FILE)",
    )
    add(
        "--context",
        metavar="NAME",
        default=None,
        help="a mesh known from `heteroflow login` (also HETEROFLOW_CONTEXT)",
    )
    add("--timeout", metavar="S", type=seconds, default=20.0, help="how long to try before giving up (20)")
    add(
        "-o",
        "--output",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help="table and wide (nothing is cut) for people, json and yaml for programs",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Of verbs whose answer programs read more often than people."""
    parser.add_argument(
        "--json",
        action="store_const",
        dest="output",
        const="json",
        default=argparse.SUPPRESS,
        help="the same as -o json",
    )


def seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) <= 86_400:
            return value
    raise argparse.ArgumentTypeError("must be a number of seconds above 0, up to 86400")


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read

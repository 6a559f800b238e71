"""Options that every verb shares; they may stand before or after the verb."""

import argparse
from collections.abc import Callable


def add_connection_options(parser: argparse.ArgumentParser, again: bool = False) -> None:
    """again: the same options once more on a verb's own parser, which must not overwrite what stood before the verb."""
    group = parser.add_argument_group("connection and output")
    unset = argparse.SUPPRESS

    def add(*names: str, default: object, **options: object) -> None:
        group.add_argument(*names, default=unset if again else default, **options)  # type: ignore[arg-type]

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
        choices=("table", "json", "yaml"),
        default="table",
        help="table for people, json for programs; yaml of clone",
    )


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be between 0 and 86400 seconds")
    return value


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read

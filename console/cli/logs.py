"""heteroflow logs GROUP"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.sanitize import sanitize

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the group has ended")
    parser.add_argument("--rank", type=whole(0, 1_000_000), help="one rank (all)")
    parser.add_argument("--attempt", type=whole(1, 9999), help="one attempt (the newest, and with -f those after it)")
    parser.add_argument("--tail", type=whole(0, 100_000), help="begin with the last N lines of each rank (all)")
    parser.add_argument(
        "--raw", action="store_true", help="bytes as the job wrote them, without rank and without protection"
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    await print_logs(
        terminal,
        client,
        group_id,
        rank=args.rank,
        attempt=args.attempt,
        tail=args.tail,
        follow=args.follow,
        raw=args.raw,
        as_json=args.output == "json",
    )
    return 0


async def print_logs(
    terminal: Terminal,
    client: "MeshClient",
    group_id: str,
    *,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    follow: bool = False,
    raw: bool = False,
    as_json: bool = False,
) -> None:
    """Job lines go to stdout, the platform's own to stderr. A terminal is protected; a pipe gets text as written."""
    from console.log_stream import LogStream

    painter = _Painter(terminal, with_rank=rank is None and not raw, raw=raw or not terminal.is_tty)
    said = False
    async for item in LogStream(client, group_id, rank, attempt, tail, follow).items():
        if as_json:
            terminal.json(item)
        elif "text" in item:
            painter.line(item)
            said = True
        elif note := _note(item):
            terminal.note(note)
            said = True
        elif item.get("end") and not said:
            terminal.note(f"no log lines; the group is {sanitize(str(item.get('status')))}")
        if follow:
            terminal.out.flush()


class _Painter:
    def __init__(self, terminal: Terminal, with_rank: bool, raw: bool) -> None:
        self._terminal, self._with_rank, self._raw = terminal, with_rank, raw
        self._attempt: int | None = None

    def line(self, item: dict[str, Any]) -> None:
        attempt = item.get("attempt")
        if self._attempt not in (None, attempt):
            self._terminal.note(f"attempt {attempt}")
        self._attempt = attempt
        text = str(item["text"])
        if not self._raw:
            text = sanitize(text, colours=self._terminal.colours, lines=True)
        end = item.get("line_end", "\n") if self._raw and not self._with_rank else "\n"
        prefix = f"{item.get('rank')}│ " if self._with_rank else ""
        self._terminal.out.write(f"{prefix}{text}{end}")


def _note(item: dict[str, Any]) -> str:
    who = f"rank {item['rank']}: " if "rank" in item else ""
    if "problem" in item:
        return who + sanitize(str(item["problem"]))
    if "dropped" in item:
        return f"{who}{item['dropped']} bytes of the log are gone ({sanitize(str(item.get('why', '')))})"
    if "moved" in item:
        return f"node {item['moved']} went away ({item['why']}); another one goes on without a gap"
    if item.get("missing"):
        return "the log files of this rank are gone from its node"
    return ""


VERB = Verb(_add_arguments, _run)

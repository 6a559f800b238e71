"""heteroflow watch [GROUP]"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import status_text
from console.core.sanitize import sanitize, sanitize_all
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", nargs="?", help="only this group: id, or a name only one group has")
    parser.add_argument(
        "--all", action="store_true", dest="everything", help="every row, nodes and finished groups too"
    )
    parser.add_argument("--since", metavar="TOKEN", help="go on after this token of an earlier `watch -o json`")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    from console.watch_stream import WatchStream

    group_id = await group_id_of(client, args.group) if args.group else None
    if group_id:
        # A feed of nothing is silent for ever; a group that is not there should be said.
        await client.read(f"/api/v1/task-groups/{group_id}")
    picture = _Picture()
    async for frame in WatchStream(client, group_id, args.everything, args.since).frames():
        if args.output == "json":
            terminal.json(frame)
        else:
            if frame.get("compacted"):
                terminal.note("the feed was trimmed meanwhile; what follows is the state as it is now")
            terminal.lines(picture.lines_of(sanitize_all(frame)))
        terminal.out.flush()
    return 0


class _Picture:
    """What was last printed, so that a row written again without news prints nothing."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def lines_of(self, frame: dict[str, Any]) -> list[str]:
        snapshot = "snapshot" in frame
        lines = []
        for entity, key, row in frame["snapshot"] if snapshot else frame.get("changes", ()):
            text = self._text(entity, key, row, snapshot)
            if text is None or self._shown.get((entity, key)) == text:
                continue
            if entity != "event":
                self._shown[entity, key] = text
            lines.append(text)
        return lines

    def _text(self, entity: str, key: str, row: dict[str, Any] | None, snapshot: bool) -> str | None:
        if row is None:
            return f"{self._name(key)}  deleted" if entity == "group" else None
        if entity == "group":
            self._names[key] = str(row.get("name", ""))
            reason = row.get("pending_reason") if row["status"] == "pending" else row.get("failure")
            why = f"  {reason['text']}" if isinstance(reason, dict) and reason.get("text") else ""
            return f"{self._name(key)}  {status_text(row['status'])}  attempt {row['attempt']}{why}"
        if entity == "event" and not snapshot:
            who = f"rank {row['rank']}  " if row.get("rank") is not None else ""
            at = iso_utc(row["at_ms"]) if isinstance(row.get("at_ms"), int) else ""
            return f"{at[11:23]}  {self._name(key.partition('/')[0])}  {who}{row.get('text') or row.get('kind')}"
        if entity == "node":
            reason = f"  {row['reason']}" if row.get("reason") else ""
            return f"node {sanitize(key)}  {row['state']}{reason}"
        return None

    def _name(self, group_id: str) -> str:
        name = self._names.get(group_id)
        return f"{name} ({group_id})" if name else group_id


VERB = Verb(_add_arguments, _run)

"""heteroflow files ls|get|put GROUP ..."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.exit_codes import NO_NODE
from console.core.format import UNKNOWN, byte_text, clipped
from console.core.sanitize import sanitize
from schemas.errors import Conflict, InvalidInput
from schemas.rules.target_path import new_name_refusal

if TYPE_CHECKING:
    from console.client import MeshClient
    from console.file_transfer import Remote

_HEAD, _MOUNTS = ("TYPE", "SIZE", "MODIFIED", "NAME"), ("MOUNT", "ACCESS", "ON THE HOST")
_PAGE = 1000
_SAY_EVERY_S = 0.2


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("ls", "get", "put"))
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        default=[],
        help="ls [PATH] | get PATH [FILE] | put FILE PATH; PATH begins with a mount of the group, as /checkpoint",
    )
    parser.add_argument("--rank", type=whole(0, 1_000_000), default=0, metavar="N", help="the node of this rank (0)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--parents", action="store_true", help="put: make directories that are missing")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    least, most = {"ls": (0, 1), "get": (1, 2), "put": (2, 2)}[args.action]
    if not least <= len(args.paths) <= most:
        raise InvalidInput("wrong_arguments", f"files {args.action} takes other arguments", "See heteroflow files -h.")
    group_id = await group_id_of(client, args.group)
    if args.action == "ls":
        return await _list(args, terminal, client, group_id)
    from console.file_transfer import Remote

    if args.action == "get":
        return await _get(args, terminal, Remote(client, group_id, args.rank, args.paths[0]))
    target = args.paths[1] + (Path(args.paths[0]).name if args.paths[1].endswith("/") else "")
    return await _put(args, terminal, Remote(client, group_id, args.rank, target))


async def _list(args: argparse.Namespace, terminal: Terminal, client: "MeshClient", group_id: str) -> int:
    params = {"rank": str(args.rank), "limit": str(_PAGE)} | ({"target_path": args.paths[0]} if args.paths else {})
    found: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    while True:
        page = (await client.read(f"/api/v1/task-groups/{group_id}/files", params)).value
        found, entries = found or page, entries + page["entries"]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    if args.output == "json":
        terminal.json({**found, "entries": entries, "cursor": None})
    elif not args.paths and not found["mounts"]:
        terminal.note("the group has no mounts: no checkpoint_path, dataset_path, base_checkpoint or task.mounts")
    elif not args.paths:
        rows = [(m["target"], "read" if m["read_only"] else "read, write", m["source"]) for m in found["mounts"]]
        terminal.table(_MOUNTS, rows)
    else:
        terminal.table(_HEAD, [_row(entry) for entry in entries], right=("SIZE",))
    if found["cut"]:
        terminal.note(f"{found['target_path']} has more names than are looked at")
    return 0


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    size = byte_text(entry["size"]) if entry["size"] is not None else UNKNOWN
    name = entry["name"] + ("/" if entry["type"] == "directory" else "")
    return entry["type"], size, entry["modified_at"][:19].replace("T", " "), name


async def _get(args: argparse.Namespace, terminal: Terminal, remote: "Remote") -> int:
    from console.file_transfer import TransferCut, download, file_exists

    name = remote.target_path.rstrip("/").rpartition("/")[2]
    out = Path(args.paths[1]) if len(args.paths) == 2 else Path(name)
    if len(args.paths) == 2 and out.is_dir():
        out /= name
    if out.name == name and (refusal := new_name_refusal(name)) is not None:
        raise InvalidInput("odd_name", f"{sanitize(name)!r} {refusal}", "Say under which name to keep it.")
    if (out.exists() or out.is_symlink()) and not args.force:
        raise file_exists(out)
    entry = await remote.entry()
    said = _Said(terminal)
    try:
        began = await download(remote, entry, out, args.force, said)
    except TransferCut as error:
        said.end()
        terminal.note(sanitize(str(error)))
        return NO_NODE
    except OSError as error:
        raise Conflict("not_written", f"{out} cannot be written: {error.strerror}", "name another file") from error
    finally:
        said.end()
    _done(args, terminal, {"file": str(out), "bytes": int(entry["size"]), "resumed_at": began}, sanitize(str(out)))
    return 0


async def _put(args: argparse.Namespace, terminal: Terminal, remote: "Remote") -> int:
    from console.file_transfer import upload

    source = Path(args.paths[0])
    said = _Said(terminal)
    try:
        answer, began = await upload(remote, source, args.force, args.parents, said)
    except OSError as error:
        raise InvalidInput("not_read", f"{source} cannot be read: {error.strerror}", "check the path") from error
    finally:
        said.end()
    shown = {**answer, "bytes": answer["received"], "resumed_at": began}
    _done(args, terminal, shown, f"{sanitize(answer['target_path'])} on {sanitize(answer['node_id'])}")
    return 0


def _done(args: argparse.Namespace, terminal: Terminal, shown: dict[str, Any], text: str) -> None:
    if args.output == "json":
        terminal.json(shown)
        return
    terminal.line(text)
    went_on = f", {byte_text(shown['resumed_at'])} of it from an earlier run" if shown["resumed_at"] else ""
    terminal.note(f"{byte_text(shown['bytes'])}{went_on}")


class _Said:
    """How far it is, on a terminal alone, over and over on one line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._shown = terminal.err.isatty()
        self._began: tuple[float, int] | None = None
        self._next_s = 0.0
        self._width = 0

    def __call__(self, at: int, total: int) -> None:
        now_s = time.monotonic()
        if self._began is None:
            self._began = (now_s, at)
        if not self._shown or (now_s < self._next_s and at < total):
            return
        self._next_s = now_s + _SAY_EVERY_S
        since_s, began = now_s - self._began[0], self._began[1]
        rate = byte_text(int((at - began) / since_s)) if since_s > _SAY_EVERY_S else UNKNOWN
        percent = 100 * at // total if total else 100
        text = clipped(f"{percent:3d} %  {byte_text(at)} of {byte_text(total)}  {rate}/s", 78)
        self._terminal.err.write("\r" + text.ljust(self._width))
        self._terminal.err.flush()
        self._width = len(text)

    def end(self) -> None:
        if self._width:
            self._terminal.err.write("\r" + " " * self._width + "\r")
            self._terminal.err.flush()
            self._width = 0


VERB = Verb(_add_arguments, _run)

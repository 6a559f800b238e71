"""heteroflow key create|ls|revoke"""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.times import duration_s
from console.cli.verb import Verb
from console.contexts import write_private
from console.core.format import age, moment_ms, utc_text
from schemas.errors import Finding, InvalidInput, NotFound
from schemas.rules.permissions import ROLES, SCOPES

if TYPE_CHECKING:
    from console.client import MeshClient

_HEAD = ("KEY", "NAME", "ROLE", "TENANT", "SCOPES", "STATE", "AGE", "UNTIL")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("create", "ls", "revoke"), help="create prints the key, this once")
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; for revoke the key's id, or a name one has")
    parser.add_argument("--role", choices=ROLES, help="what it may: viewer looks, member submits, operator, admin")
    parser.add_argument("--tenant", metavar="T", help="whose groups a viewer or member sees (default)")
    parser.add_argument(
        "--scope", action="append", choices=SCOPES, metavar="S", help=f"narrows the role: {', '.join(SCOPES)}"
    )
    parser.add_argument("--expires", type=duration_s, metavar="90d", help="how long it is good; for ever if not given")
    parser.add_argument("--out", metavar="F", help="write the key into this new file, 0600, instead of printing it")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    if args.action == "ls":
        return await _list(args, terminal, client)
    if not args.name:
        raise InvalidInput("no_name", f"key {args.action} needs a name", "See heteroflow key --help.")
    return await (_create if args.action == "create" else _revoke)(args, terminal, client)


async def _create(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    if args.role is None:
        raise InvalidInput("no_role", "a key needs a role", f"Give --role {'|'.join(ROLES)}.")
    if args.out and os.path.lexists(args.out):
        raise InvalidInput("file_exists", f"{args.out} exists already", "Name a new file.")
    given = {"name": args.name, "role": args.role, "tenant": args.tenant, "scopes": args.scope}
    body = {name: value for name, value in {**given, "expires_in_s": args.expires}.items() if value is not None}
    made = (await client.write("/api/v1/keys", new_request_id(), json.dumps(body).encode())).value
    if args.out:
        write_private(Path(args.out), made.pop("key") + "\n")
    if args.output == "json":
        terminal.json(made)
        return 0
    until = f", until {utc_text(made['expires_at'])}" if made["expires_at"] else ""
    terminal.note(f"key {made['key_id']} for {made['name']}: {made['role']} of tenant {made['tenant']}{until}")
    if args.out:
        terminal.note(f"it is in {args.out}: heteroflow login NAME --token-file {args.out}")
    else:
        terminal.note("it is shown this once; its owner runs: heteroflow login")
        terminal.line(made["key"])
    return 0


async def _list(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    keys, now_ms = await _keys(client)
    if args.output == "json":
        terminal.json({"keys": keys})
        return 0
    if not keys:
        terminal.note("no API key has been made yet; `heteroflow key create NAME --role member` makes one")
        return 0
    rows = [
        (
            key["key_id"],
            key["name"],
            key["role"],
            key["tenant"],
            ",".join(key["scopes"]) if key["scopes"] is not None else "all",
            key["state"],
            age(moment_ms(key["made_at"]), now_ms),
            utc_text(key["expires_at"]),
        )
        for key in keys
    ]
    terminal.table(_HEAD, rows)
    return 0


async def _revoke(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    keys, _ = await _keys(client)
    found = [key for key in keys if key["key_id"] == args.name] or [
        key for key in keys if key["name"] == args.name and key["state"] != "revoked"
    ]
    if not found:
        raise NotFound("no_such_key", f"there is no API key {args.name[:80]!r}", "`heteroflow key ls` lists them.")
    if len(found) > 1:
        listed = [Finding("candidate", key["key_id"], f"{key['key_id']} ({key['role']})") for key in found]
        message = f"{len(found)} keys are named {args.name[:80]!r}"
        raise InvalidInput("ambiguous_name", message, "Give the id of one.", findings=listed)
    answer = await client.write(f"/api/v1/keys/{found[0]['key_id']}", new_request_id(), method="DELETE")
    if args.output == "json":
        terminal.json(answer.value)
    else:
        terminal.line(f"key {found[0]['key_id']} of {found[0]['name']} is revoked")
    return 0


async def _keys(client: "MeshClient") -> tuple[list[dict[str, Any]], int]:
    keys: list[dict[str, Any]] = []
    params: dict[str, str] = {}
    while True:
        answer = await client.read("/api/v1/keys", params)
        keys += answer.value["keys"]
        if answer.value["cursor"] is None:
            return keys, answer.now_ms
        params["cursor"] = str(answer.value["cursor"])


VERB = Verb(_add_arguments, _run)

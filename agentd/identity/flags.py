"""The command line of join tokens and certificates. Read at each start of an agent, so the standard library alone."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from agentd.config import ConfigError

_SPAN = re.compile(r"(\d{1,6})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_verbs(verbs: Any) -> None:
    token = verbs.add_parser("token", help="join tokens: what lets further hosts into the mesh")
    tokens = token.add_subparsers(dest="action", required=True)
    create = _with_data_dir(tokens.add_parser("create", help="print a new one"))
    create.add_argument("--uses", type=int, default=1, metavar="N", help="how many hosts it lets in (1)")
    create.add_argument("--for", dest="life", default="1h", metavar="TIME", help="how long: 30m, 1h, 2d (1h)")
    create.add_argument("--out", type=Path, metavar="FILE", help="write it there, mode 0600, instead of printing it")
    _with_data_dir(tokens.add_parser("list", help="those given out, without their secrets"))
    _with_data_dir(tokens.add_parser("revoke", help="one lets nobody in any more")).add_argument("id", metavar="ID")
    cert = verbs.add_parser("cert", help="the certificate of this node, and those of others")
    certs = cert.add_subparsers(dest="action", required=True)
    _with_data_dir(certs.add_parser("show", help="whom it names and how long it is good"))
    _with_data_dir(certs.add_parser("renew", help="a new key and certificate now; a running agent takes it up"))
    _with_data_dir(certs.add_parser("revoke", help="a node is not of the mesh any more")).add_argument("node")
    ca = verbs.add_parser("ca", help="the mesh CA: replace it, move it, keep a copy")
    cas = ca.add_subparsers(dest="action", required=True)
    _with_data_dir(cas.add_parser("show", help="which one signs, where its key is, how far a replacement is"))
    _with_data_dir(cas.add_parser("rotate", help="replace it by a new one, under a running mesh"))
    export = _with_data_dir(cas.add_parser("export", help="a copy of it with its key: a backup, or to move it"))
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="written with mode 0600")
    _with_data_dir(cas.add_parser("import", help="this host has the CA from now on")).add_argument("file", type=Path)


def _with_data_dir(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--data-dir", required=True, type=Path, help="of the agent of this host")
    return parser


def parse_span(text: str) -> int:
    """Seconds. Raises ConfigError."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigError(f"--for {text!r} is no time; write for example 30m, 1h or 2d")
    return int(found[1]) * _UNIT_S[found[2]]

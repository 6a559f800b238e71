"""Where the mesh is, and the token that opens it: flags, then the environment, then the current context.

A token is read from a file or the environment, never from an argument, which the whole host can read. A context that is
named takes nothing from the environment: the key of one mesh is not shown to another.
"""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.contexts import Context, config_dir, load_contexts
from console.core.format import reason_of
from schemas.errors import InvalidInput
from schemas.loopback import is_loopback

DEFAULT_NODE = "127.0.0.1:7460"


@dataclass(frozen=True, slots=True)
class Target:
    """nodes: HOST:PORT, in the order in which they are tried. ca_file: certificate of the mesh CA, "" of a mesh
    without TLS."""

    nodes: tuple[str, ...]
    token: str
    ca_file: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.ca_file else "http"


def find_target(
    nodes: Sequence[str] = (),
    data_dir: str | None = None,
    token_file: str | None = None,
    environment: Mapping[str, str] | None = None,
    context: str | None = None,
    ca_file: str | None = None,
) -> Target:
    """context: a name that was given. Raises InvalidInput, NotFound, saying what is missing and the ways to give it."""
    env = os.environ if environment is None else environment
    chosen, env = _chosen(env, context)
    given = tuple(nodes) or _data_dir_nodes(data_dir) or listed(env.get("HETEROFLOW_NODES", ""))
    found_nodes = given or chosen.nodes
    has_key = bool(token_file or env.get("HETEROFLOW_TOKEN_FILE") or env.get("HETEROFLOW_TOKEN"))
    # Who says where and with which key means a mesh of this host that the current context may know nothing of.
    another = data_dir is not None or (has_key and bool(given) and all(map(_is_local, given)))
    trusted = find_ca_file(ca_file, data_dir, env) or ("" if another else chosen.ca_file)
    addresses = tuple(address(node, trusted) for node in found_nodes or (DEFAULT_NODE,))
    return Target(addresses, _token(data_dir, token_file, env, chosen), trusted)


def _is_local(node: str) -> bool:
    return not node.startswith("https://") and is_loopback(node.rpartition(":")[0])


def find_ca_file(given: str | None, data_dir: str | None, env: Mapping[str, str]) -> str:
    """ "" where there is none: then the mesh has no TLS, or a context knows it."""
    if given is None and data_dir is not None:
        beside = Path(data_dir) / "tls" / "ca.pem"
        return str(beside) if beside.exists() else ""
    found = given or env.get("HETEROFLOW_CA_FILE", "")
    return str(Path(found).expanduser().absolute()) if found else ""


def _chosen(env: Mapping[str, str], name: str | None) -> tuple[Context, Mapping[str, str]]:
    """The context that is meant, and what of the environment counts beside it."""
    if named := name or env.get("HETEROFLOW_CONTEXT"):
        return load_contexts(env).of(named), {}
    contexts = load_contexts(env)
    return (contexts.of(contexts.current) if contexts.current else _older(env)), env


def _older(env: Mapping[str, str]) -> Context:
    """`context.json`, which knew one mesh."""
    path = config_dir(env) / "context.json"
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Context(())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "bad_context",
            f"{path} cannot be read: {reason_of(error)}",
            'It holds {"nodes": [...], "token_file": "..."}.',
        ) from error
    nodes = raw.get("nodes") if isinstance(raw, dict) else None
    token_file = raw.get("token_file", "") if isinstance(raw, dict) else None
    if (
        not isinstance(nodes, list)
        or not all(isinstance(node, str) for node in nodes)
        or not isinstance(token_file, str)
    ):
        raise InvalidInput(
            "bad_context", f"{path} is no context file", 'It holds {"nodes": [...], "token_file": "..."}.'
        )
    return Context(tuple(nodes), token_file)


def _data_dir_nodes(data_dir: str | None) -> tuple[str, ...]:
    """That agent first, then, on a voter, the other voters: they answer when this agent is down."""
    if data_dir is None:
        return ()
    path = Path(data_dir) / "node.json"
    try:
        facts: Any = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        hint = "Give the data directory of an agent that has joined, or --node."
        raise InvalidInput("bad_data_dir", f"{path} cannot be read: {reason_of(error)}", hint) from error
    address = facts.get("api_addr") if isinstance(facts, dict) else None
    if not isinstance(address, str) or not address:
        raise InvalidInput(
            "bad_data_dir", f"{path} names no api_addr: the agent has not started yet", "Start it, or give --node."
        )
    try:
        voters = json.loads((Path(data_dir) / "voter" / "roster.json").read_bytes())["voters"]
        others = [str(voter["api_addr"]) for voter in voters if voter.get("api_addr")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        others = []
    return (address, *(other for other in others if other != address))


def listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.replace(",", " ").split() if part)


def address(text: str, ca_file: str = "") -> str:
    """HOST:PORT; of a mesh with TLS also https://HOST:PORT. Raises InvalidInput."""
    if text.strip().startswith("https://"):
        if not ca_file:
            hint = "Give --ca-file F or HETEROFLOW_CA_FILE: a copy of D/tls/ca.pem of any agent."
            raise InvalidInput("no_ca_file", f"{text[:80]!r} is a mesh with TLS, and its CA is not known", hint, "node")
        text = text.strip().removeprefix("https://").rstrip("/")
    host, colon, port = text.strip().rpartition(":")
    if (
        not colon
        or not host
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port[:6]) < 65536
        or "/" in host
        or "@" in host
    ):
        raise InvalidInput(
            "bad_address", f"{text[:80]!r} is no node address", "Write HOST:PORT, for example 127.0.0.1:7460.", "node"
        )
    if not ca_file and not is_loopback(host):
        raise InvalidInput(
            "no_ca_file",
            f"{host} is another host, and without the mesh's CA your key would cross the network for all to read",
            "Give --ca-file F or HETEROFLOW_CA_FILE: a copy of D/tls/ca.pem of any agent; or go through a tunnel.",
            "node",
        )
    return f"{host}:{port}"


def _token(data_dir: str | None, token_file: str | None, env: Mapping[str, str], context: Context) -> str:
    if token_file is None and data_dir is not None:
        token_file = str(Path(data_dir) / "token")
    if token_file is None and not env.get("HETEROFLOW_TOKEN_FILE") and env.get("HETEROFLOW_TOKEN"):
        return checked_secret(env["HETEROFLOW_TOKEN"], "HETEROFLOW_TOKEN")
    name = token_file or env.get("HETEROFLOW_TOKEN_FILE") or context.key_file
    if not name:
        raise InvalidInput(
            "no_token",
            "no API key and no mesh token is given",
            "Run heteroflow login, or give --data-dir D of an agent on this host, --token-file F, "
            "HETEROFLOW_TOKEN_FILE or HETEROFLOW_TOKEN.",
        )
    return read_secret(Path(name).expanduser())


def read_secret(path: Path) -> str:
    """Of a file that is its owner's alone. Raises InvalidInput(no_token)."""
    try:
        with path.open(encoding="ascii") as file:
            info = os.fstat(file.fileno())
            if stat.S_ISREG(info.st_mode) and info.st_mode & 0o077:
                mode = stat.S_IMODE(info.st_mode)
                raise InvalidInput(
                    "no_token",
                    f"{path} can be read by others (mode {mode:04o}), and whoever reads it acts as you",
                    f"Run chmod 600 {path}, and ask for a new key if it may have been seen.",
                )
            text = file.read(4096)
    except (OSError, ValueError) as error:
        hint = "Ask an admin of the mesh for an API key, or run as the agent's user."
        raise InvalidInput("no_token", f"the token file {path} cannot be read: {reason_of(error)}", hint) from error
    return checked_secret(text, str(path))


def checked_secret(text: str, source: str) -> str:
    """Raises InvalidInput(no_token)."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput(
            "no_token", f"{source} holds no token", "It holds one word: an API key, or the mesh token of D/token."
        )
    return token

"""`heteroflow-agentd token|cert|ca ...`: on a host of the mesh, by its data directory, agent running or not.

On the host that has the mesh CA its files are changed under their lock; another voter's host asks that host's agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from agentd.core.founding import Founding
from agentd.data_dir import DataDirRefused, read_json, write_durably
from agentd.identity.ca_backup import restore
from agentd.identity.ca_desk import CaDesk
from agentd.identity.flags import parse_span
from agentd.identity.paths import REVOKE_PATH, TOKENS_PATH
from agentd.identity.service import ask_for_renewal
from agentd.identity.trust import Trust
from agentd.join import connection_fault
from mesh.security.certificates import new_key, signing_request, split, utc_now
from mesh.security.mesh_tls import IdentityDamaged, MeshTls
from mesh.security.node_certificate import NodeCertificate
from schemas.errors import HeteroFlowError, Problem, error_for
from schemas.instants import iso_utc

T = TypeVar("T")
_CALL_S = 10.0


class Refused(Exception):
    """The mesh says no, or cannot be asked: why, and what to do (exit code 1)."""


def run_verb(flags: argparse.Namespace) -> None:
    """Raises ConfigError, DataDirRefused, Refused."""
    place = _Place(flags.data_dir.expanduser().absolute())
    try:
        _VERBS[flags.verb, flags.action](place, flags)
    except HeteroFlowError as error:
        raise Refused(str(error.problem)) from error
    except PermissionError as error:
        raise DataDirRefused(f"{error.filename} cannot be used: run this as the agent's user") from error


class _Place:
    """A data directory of a mesh with TLS, as its files say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if not (root / "tls" / "node.pem").exists():
            raise DataDirRefused(
                f"{root} has no certificate: give the directory of an agent that is in a mesh with TLS"
            )
        try:
            self.tls = MeshTls(root / "tls")
        except IdentityDamaged as error:
            raise DataDirRefused(str(error)) from error

    @property
    def own(self) -> NodeCertificate:
        assert self.tls.own is not None
        return self.tls.own

    @property
    def ca(self) -> CaDesk | None:
        return CaDesk(self.root / "ca") if CaDesk.exists(self.root / "ca") else None

    @property
    def ca_at(self) -> tuple[str, str]:
        """The node that has it, and its agent."""
        if (said := Trust(self.root / "tls").statement) is not None:
            return said.node, said.address
        try:
            founder = Founding.from_dict(read_json(self.root / "founding.json") or {}).seats[0]
        except (KeyError, TypeError, ValueError) as error:
            raise DataDirRefused(f"{self.root}/founding.json does not say where the mesh CA is ({error})") from error
        return founder.node, founder.api_addr

    def ask_ca(self, ask: Callable[[aiohttp.ClientSession, str], Awaitable[T]]) -> T:
        """At the agent of the host that has it."""
        address = self.ca_at[1]

        async def run() -> T:
            timeout = aiohttp.ClientTimeout(total=_CALL_S, sock_connect=3.0)
            async with self.tls.session(timeout=timeout) as session:
                return await ask(session, address)

        try:
            return asyncio.run(run())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Refused(
                f"the agent with the mesh CA does not answer: {connection_fault(error, address)}; try again, or do "
                f"this on that host"
            ) from error

    def call_ca(self, method: str, path: str, body: Any = None) -> Any:
        async def ask(session: aiohttp.ClientSession, address: str) -> Any:
            async with session.request(method, f"http://{address}{path}", json=body) as response:
                value = await response.json()
                if response.status >= 400:
                    problem = Problem.from_dict(value)
                    raise error_for(problem.code, problem.message, problem.hint)
                return value

        return self.ask_ca(ask)


def _create(place: _Place, flags: argparse.Namespace) -> None:
    life_s = parse_span(flags.life)
    if (ca := place.ca) is not None:
        token = str(ca.new_token(flags.uses, life_s))
    else:
        token = str(place.call_ca("POST", TOKENS_PATH, {"uses": flags.uses, "life_s": life_s})["token"])
    if flags.out is None:
        print(token)
    else:
        write_durably(flags.out, token + "\n")
        print(f"{flags.out} lets {flags.uses} host{'s' if flags.uses != 1 else ''} in for {flags.life}")


def _list(place: _Place, flags: argparse.Namespace) -> None:
    ca = place.ca
    listed = ca.tokens() if ca is not None else place.call_ca("GET", TOKENS_PATH)["tokens"]
    print(f"{'ID':<14}{'STATE':<10}{'USED':<8}EXPIRES")
    for token in listed:
        used = f"{token['used']}/{token['uses']}"
        print(f"{token['id']:<14}{token['state']:<10}{used:<8}{token['expires']}")


def _revoke_token(place: _Place, flags: argparse.Namespace) -> None:
    if (ca := place.ca) is not None:
        ca.revoke_token(flags.id)
    else:
        place.call_ca("DELETE", f"{TOKENS_PATH}/{flags.id}")
    print(f"join token {flags.id} lets nobody in any more; hosts that it let in stay")


def _show(place: _Place, flags: argparse.Namespace) -> None:
    own = place.own
    left = own.not_after - utc_now()
    until = iso_utc(int(own.not_after.timestamp() * 1000))
    print(f"node         {own.name.node} ({'voter' if own.name.voter else 'member'})")
    print(f"mesh         {own.name.cluster_id}")
    print(f"valid until  {until} ({'expired' if left.total_seconds() <= 0 else f'{left.days} days left'})")
    print(f"addresses    {', '.join(own.hosts)}")
    print(f"serial       {own.serial}{' (revoked)' if own.serial in place.tls.revoked.serials else ''}")
    print(f"mesh CA      {place.tls.authority}{' (its key is on this host)' if place.ca is not None else ''}")


def _renew(place: _Place, flags: argparse.Namespace) -> None:
    own, key = place.own, new_key()
    request = signing_request(key, own.name.node)
    if (ca := place.ca) is not None:
        pem = ca.renew(own, request, own.hosts)
    else:
        pem = place.ask_ca(lambda session, address: ask_for_renewal(session, address, request, own.hosts))
    write_durably(place.root / "tls" / "node.pem", (key + pem).decode())
    place.tls.refresh()
    _show(place, flags)


def _revoke(place: _Place, flags: argparse.Namespace) -> None:
    if (ca := place.ca) is not None:
        ca.revoke(flags.node, place.own.name.node)
    else:
        place.call_ca("POST", REVOKE_PATH, {"node": flags.node})
    print(f"{flags.node} is not of the mesh any more: nodes refuse it within a minute; its tasks end with its lease")


def _ca_show(place: _Place, flags: argparse.Namespace) -> None:
    node, address = place.ca_at
    ca = place.ca
    signs = ca.fingerprint if ca is not None else (Trust(place.root / "tls").issuer or place.tls.authority)
    print(f"signs        {signs}")
    for other in split(place.tls.ca):
        if other != signs:
            print(f"believed too {other}")
    print(f"its key      on {node}, {address}{' (this host)' if ca is not None else ''}")
    step, nodes = ca.progress() if ca is not None else (0, ())
    if step:
        what = "believe the new one" if step == 1 else "show a certificate of the new one"
        print(f"replacement  step {step} of 2: all are to {what}; waiting for {', '.join(nodes) or 'the agent here'}")


def _here(place: _Place) -> CaDesk:
    if (ca := place.ca) is None:
        node, address = place.ca_at
        raise Refused(f"the mesh CA is not on this host but on {node}, {address}; do this there")
    return ca


def _ca_rotate(place: _Place, flags: argparse.Namespace) -> None:
    _here(place).rotate()
    print(
        "a new CA is made. The agents take it up by themselves: first all believe it, then all renew with it, then the "
        "old one is given up. A node that is away holds this up: `ca show` names it"
    )


def _ca_export(place: _Place, flags: argparse.Namespace) -> None:
    write_durably(flags.out, json.dumps(_here(place).export(), indent=1) + "\n")
    print(f"{flags.out} holds the key of the mesh CA: whoever has it can make himself a node. Keep it offline")


def _ca_import(place: _Place, flags: argparse.Namespace) -> None:
    identity, exported = read_json(place.root / "node.json"), read_json(flags.file)
    if identity is None or exported is None:
        raise Refused(f"{flags.file if identity is not None else place.root} is not there; give an export of the CA")
    if not place.own.name.voter:
        raise Refused(f"{place.own.name.node} is no voter: a host that only works is not given the mesh CA")
    holder = (place.own.name.node, str(identity["api_addr"]))
    restore(place.root / "ca", exported, place.own.name.cluster_id, place.tls.ca, place.tls.revoked, holder)
    print(f"{place.own.name.node} has the mesh CA from now on: its agent tells the others. Remove {flags.file}")


_VERBS: dict[tuple[str, str], Callable[[_Place, argparse.Namespace], None]] = {
    ("token", "create"): _create,
    ("token", "list"): _list,
    ("token", "revoke"): _revoke_token,
    ("cert", "show"): _show,
    ("cert", "renew"): _renew,
    ("cert", "revoke"): _revoke,
    ("ca", "show"): _ca_show,
    ("ca", "rotate"): _ca_rotate,
    ("ca", "export"): _ca_export,
    ("ca", "import"): _ca_import,
}

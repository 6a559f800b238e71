"""`heteroflow-agentd token ...` and `cert ...`: on a host of the mesh, by its data directory, agent running or not.

On the host that has the mesh CA its files are changed under their lock; another voter's host asks that host's agent.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from agentd.core.founding import Founding
from agentd.data_dir import DataDirRefused, read_json, write_durably
from agentd.http.identity import REVOKE_PATH, TOKENS_PATH
from agentd.identity.ca_desk import CaDesk
from agentd.identity.flags import parse_span
from agentd.identity.service import ask_for_renewal
from agentd.join import connection_fault
from mesh.security.certificates import NodeCertificate, fingerprint, new_key, signing_request, utc_now
from mesh.security.mesh_tls import IdentityDamaged, MeshTls
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

    def ask_ca(self, ask: Callable[[aiohttp.ClientSession, str], Awaitable[T]]) -> T:
        """At the agent of the host that has it."""
        try:
            address = Founding.from_dict(read_json(self.root / "founding.json") or {}).seats[0].api_addr
        except (KeyError, TypeError, ValueError) as error:
            raise DataDirRefused(f"{self.root}/founding.json does not say where the mesh CA is ({error})") from error

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
    print(f"mesh CA      {fingerprint(place.tls.ca)}{' (its key is on this host)' if place.ca is not None else ''}")


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


_VERBS: dict[tuple[str, str], Callable[[_Place, argparse.Namespace], None]] = {
    ("token", "create"): _create,
    ("token", "list"): _list,
    ("token", "revoke"): _revoke_token,
    ("cert", "show"): _show,
    ("cert", "renew"): _renew,
    ("cert", "revoke"): _revoke,
}

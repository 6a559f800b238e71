"""Which CAs this host believes, and where the mesh CA is: `D/tls/ca.pem`, and the newest statement in `trust.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentd.data_dir import read_json, write_durably
from mesh.core.identity.authorities import Authorities
from mesh.security.certificates import ca_cluster, fingerprint, signature_is_valid, signed_by, split
from mesh.security.node_certificate import BadCertificate


class Trust:
    """directory: D/tls"""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "trust.json"
        raw = read_json(self._path)
        try:
            self.statement = None if raw is None else Authorities.from_dict(raw)
        except (KeyError, TypeError, ValueError, AttributeError):
            # It is asked for again; what is believed stands in ca.pem.
            self.statement = None

    @property
    def number(self) -> int:
        return self.statement.number if self.statement is not None else 0

    @property
    def issuer(self) -> str:
        """The fingerprint of the CA that signs, empty where there was never another."""
        return self.statement.issuer if self.statement is not None else ""

    @property
    def unsettled(self) -> bool:
        """Whether the CA is being replaced."""
        return self.statement is not None and len(self.statement.believed) > 1

    def take(self, raw: Any) -> bool:
        """Whether anything changed; not by an older statement, nor by one after which this node's own certificate
        would be believed by nobody: it has to be renewed first. Raises BadCertificate for what no CA that is believed
        here has signed."""
        believed = (self._directory / "ca.pem").read_bytes()
        said = checked(raw, believed)
        if said.number <= self.number:
            return False
        if not signed_by((self._directory / "node.pem").read_bytes(), said.bundle):
            return False
        keep(self._directory, said)
        self.statement = said
        return True


def keep(directory: Path, said: Authorities) -> None:
    """What is believed first: a statement that was not written is asked for again."""
    write_durably(directory / "ca.pem", said.bundle.decode("ascii"), 0o644)
    write_durably(directory / "trust.json", json.dumps(said.to_dict(), indent=1) + "\n", 0o644)


def checked(raw: Any, believed: bytes) -> Authorities:
    """A statement that one of these CAs has signed, about CAs of the same mesh. Raises BadCertificate."""
    try:
        said = Authorities.from_dict(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadCertificate(f"no statement of the CAs of a mesh: {error}") from error
    known = split(believed)
    mesh = {ca_cluster(pem) for pem in known.values()}
    named = {fingerprint(pem.encode("ascii")): ca_cluster(pem.encode("ascii")) for pem in said.believed}
    if set(named.values()) != mesh or said.issuer not in named:
        raise BadCertificate("the statement is about CAs of another mesh")
    if not any(signature_is_valid(said.signatures.get(one, ""), said.text(), pem) for one, pem in known.items()):
        raise BadCertificate("no CA that is believed here has signed the statement")
    return said

"""What certificates and revocation lists say, for whoever only asks that. To read and sign them takes a library of 8 MB
(certificates.py), which a mesh without TLS does without."""

from dataclasses import dataclass
from datetime import datetime

from mesh.core.identity.node_name import NodeName


class BadCertificate(ValueError):
    """Raised for what is no certificate, request, key or list of the kind that is expected: says why."""


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """What one certificate says. serial: in hex. hosts: names and addresses under which the node may be reached."""

    name: NodeName
    serial: str
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...]

    def left(self, now: datetime) -> float:
        """How much of its life is left, 1 to 0; below 0 it has expired."""
        return (self.not_after - now) / (self.not_after - self.not_before)


@dataclass(frozen=True, slots=True)
class Revoked:
    """A revocation list as the CA signed it."""

    number: int
    serials: frozenset[str]

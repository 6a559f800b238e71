"""Which CAs a mesh believes, which of them signs, and which host has their keys.

A mesh that has neither changed nor moved its CA has no such statement: then it is the one CA, on the founder's host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BELIEVED_MAX = 4
_CONTEXT = "heteroflow authorities 1"
"""So that a signature made for anything else is none for this."""


@dataclass(frozen=True, slots=True)
class Authorities:
    """number: grows with each statement. believed: certificates in PEM, the oldest first. issuer: the fingerprint of
    the one that signs. node, address: the host with the keys, and its agent. signatures: in hex, by fingerprint."""

    number: int
    believed: tuple[str, ...]
    issuer: str
    node: str
    address: str
    signatures: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> bytes:
        """What is signed."""
        said = [_CONTEXT, self.number, list(self.believed), self.issuer, self.node, self.address]
        return json.dumps(said, separators=(",", ":")).encode()

    @property
    def bundle(self) -> bytes:
        """The certificates, as one PEM file."""
        return "".join(self.believed).encode("ascii")

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "believed": list(self.believed),
            "issuer": self.issuer,
            "node": self.node,
            "address": self.address,
            "signatures": dict(self.signatures),
        }

    @staticmethod
    def from_dict(raw: Any) -> Authorities:
        """Raises KeyError, TypeError or ValueError for what is no statement."""
        believed = tuple(str(pem) for pem in raw["believed"])
        if not 1 <= len(believed) <= BELIEVED_MAX or not all(pem.isascii() for pem in believed):
            raise ValueError(f"a mesh believes 1 to {BELIEVED_MAX} CAs, as PEM")
        number = int(raw["number"])
        if not 0 < number < 1 << 53:
            raise ValueError("the number of a statement is above 0")
        signatures = {str(by): str(signature) for by, signature in raw["signatures"].items()}
        return Authorities(number, believed, str(raw["issuer"]), str(raw["node"]), str(raw["address"]), signatures)

"""What lets a host into a mesh: `hfjoin.ID.SECRET.FINGERPRINT`, good for a while and for a counted number of hosts.

The fingerprint (SHA-256 of the CA's certificate) lets the joiner know the mesh before it says the secret to anyone.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

PREFIX = "hfjoin."
_SHAPE = re.compile(r"hfjoin\.([0-9a-f]{12})\.([A-Za-z0-9_-]{43})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class JoinToken:
    id: str
    secret: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}.{self.secret}.{self.fingerprint}"

    def __repr__(self) -> str:
        return f"JoinToken({self.id})"

    @property
    def secret_hash(self) -> str:
        """What the mesh keeps. The secret has 256 random bits, so a plain hash cannot be searched."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def matches(self, secret_hash: str) -> bool:
        return hmac.compare_digest(self.secret_hash, secret_hash)

    @staticmethod
    def parse(text: str) -> JoinToken | None:
        """None for what is no join token."""
        found = _SHAPE.fullmatch(text)
        return JoinToken(*found.groups()) if found is not None else None

"""What the mesh CA has given out: join tokens with their uses, certificates with their holders, and what is revoked.

Every step answers the ledger after it; `now_s` is Unix seconds by the clock of the CA's host, which alone keeps one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mesh.core.identity.join_token import JoinToken
from schemas.errors import Conflict, InvalidInput, NotAuthorised, NotFound

USES_MAX = 10_000
LIFE_MIN_S, LIFE_MAX_S = 60, 30 * 86_400
"""A token that lives longer is a key that somebody forgot in a file."""
TOKENS_MAX = 1_000
_KEPT_S = 7 * 86_400
"""Spent and expired tokens are listed for a week, so that a refusal can be explained."""
_ASK = "make a new one: heteroflow-agentd token create --data-dir D on a voter's host"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """used: the installation id of each host it let in, with the hash of the key it came with."""

    id: str
    secret_hash: str
    uses: int
    made_s: int
    expires_s: int
    revoked: bool = False
    used: Mapping[str, str] = field(default_factory=dict)

    def state(self, now_s: int) -> str:
        """valid, used up, expired or revoked"""
        if self.revoked:
            return "revoked"
        if now_s >= self.expires_s:
            return "expired"
        return "valid" if len(self.used) < self.uses else "used up"


@dataclass(frozen=True, slots=True)
class Certificate:
    """serial: in hex. uid: the installation id of the host it was given to, empty where a restored ledger had to learn
    of it. authority: the fingerprint of the CA that signed, empty for the first one of a mesh."""

    serial: str
    node: str
    uid: str
    expires_s: int
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Revocation:
    serial: str
    node: str
    at_s: int
    expires_s: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """number: of the revocation list, growing with each change. authorities: the fingerprints of the CAs that are
    believed, the oldest first; issuer: of the one that signs. trust: the number of the statement of them, 0 without
    one. holder: the node that has the keys, and its agent's address. heard: the newest statement each node said to
    believe, and whose certificate it showed. restored_s: when this was taken from a backup; what was given out between
    the two is not in it."""

    tokens: Mapping[str, TokenRecord] = field(default_factory=dict)
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    revocations: Mapping[str, Revocation] = field(default_factory=dict)
    number: int = 0
    authorities: tuple[str, ...] = ()
    issuer: str = ""
    trust: int = 0
    holder: tuple[str, str] = ("", "")
    heard: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    restored_s: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "tokens": [asdict(token) | {"used": dict(token.used)} for token in self.tokens.values()],
            "certificates": [asdict(certificate) for certificate in self.certificates.values()],
            "revocations": [asdict(revocation) for revocation in self.revocations.values()],
            "number": self.number,
            "authorities": list(self.authorities),
            "issuer": self.issuer,
            "trust": self.trust,
            "holder": list(self.holder),
            "heard": {node: list(said) for node, said in self.heard.items()},
            "restored_s": self.restored_s,
        }

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> Ledger:
        """Raises KeyError, TypeError or ValueError for what is no ledger."""
        return Ledger(
            {str(t["id"]): TokenRecord(**t) for t in raw["tokens"]},
            {str(c["serial"]): Certificate(**c) for c in raw["certificates"]},
            {str(r["serial"]): Revocation(**r) for r in raw["revocations"]},
            int(raw["number"]),
            tuple(map(str, raw.get("authorities", ()))),
            str(raw.get("issuer", "")),
            int(raw.get("trust", 0)),
            (str((raw.get("holder") or ("", ""))[0]), str((raw.get("holder") or ("", ""))[1])),
            {str(node): (int(said[0]), str(said[1])) for node, said in raw.get("heard", {}).items()},
            int(raw.get("restored_s", 0)),
        )

    # -- tokens

    def with_token(self, token: JoinToken, uses: int, life_s: int, now_s: int) -> Ledger:
        """Raises InvalidInput, Conflict."""
        if not 1 <= uses <= USES_MAX:
            raise InvalidInput("invalid_uses", f"a join token is good for 1 to {USES_MAX} hosts, not {uses}")
        if not LIFE_MIN_S <= life_s <= LIFE_MAX_S:
            raise InvalidInput(
                "invalid_life", f"a join token lives {LIFE_MIN_S} s to {LIFE_MAX_S // 86_400} days, not {life_s} s"
            )
        kept = {key: old for key, old in self.tokens.items() if now_s < old.expires_s + _KEPT_S}
        if len(kept) >= TOKENS_MAX:
            raise Conflict("too_many_tokens", f"there are {len(kept)} join tokens already", "use one of them again")
        record = TokenRecord(token.id, token.secret_hash, uses, now_s, now_s + life_s)
        return replace(self, tokens={**kept, token.id: record})

    def without_token(self, token_id: str) -> Ledger:
        """Raises NotFound."""
        record = self.tokens.get(token_id)
        if record is None:
            raise NotFound("no_such_token", f"there is no join token {token_id[:80]!r}", "list them: token list")
        return replace(self, tokens={**self.tokens, token_id: replace(record, revoked=True)})

    def check_token(self, token: JoinToken, uid: str, key_hash: str, now_s: int) -> TokenRecord:
        """The record of a token that lets this host in; again, too, where it already did and the answer was lost.

        Raises NotAuthorised, which says the state of a token only to someone who knows its secret."""
        record = self.tokens.get(token.id)
        if record is None or not token.matches(record.secret_hash):
            raise NotAuthorised("unknown_join_token", "this mesh gave out no such join token", _ASK)
        state = record.state(now_s)
        if state == "used up" and record.used.get(uid) == key_hash:
            state = "valid"
        if state != "valid":
            raise NotAuthorised(f"join_token_{state.replace(' ', '_')}", f"join token {record.id} is {state}", _ASK)
        return record

    # -- certificates

    def check_name(self, node: str, uid: str, now_s: int) -> None:
        """Raises Conflict where another host holds the name."""
        for certificate in self.certificates.values():
            if (
                certificate.node == node
                and certificate.uid != uid
                and certificate.expires_s > now_s
                and certificate.serial not in self.revocations
            ):
                raise Conflict(
                    "node_name_taken",
                    f"another host of this mesh has a certificate for the name {node}",
                    f"start this agent with another --name; if that host is gone for good: "
                    f"heteroflow-agentd cert revoke {node}",
                )

    def admit(self, token: JoinToken, key_hash: str, certificate: Certificate, now_s: int) -> Ledger:
        """A certificate for a host that came with a token. Raises NotAuthorised, Conflict."""
        record = self.check_token(token, certificate.uid, key_hash, now_s)
        self.check_name(certificate.node, certificate.uid, now_s)
        used = {**record.used, certificate.uid: key_hash}
        if len(used) > record.uses:
            raise NotAuthorised("join_token_used_up", f"join token {record.id} is used up", _ASK)
        tokens = {**self.tokens, record.id: replace(record, used=used)}
        return replace(self.with_certificate(certificate, now_s), tokens=tokens)

    def with_certificate(self, certificate: Certificate, now_s: int) -> Ledger:
        """Expired ones are forgotten, and their revocations: they open nothing."""
        kept = {key: old for key, old in self.certificates.items() if old.expires_s > now_s}
        revoked = {key: old for key, old in self.revocations.items() if old.expires_s > now_s}
        return replace(self, certificates={**kept, certificate.serial: certificate}, revocations=revoked)

    def holder_of(self, node: str, serial: str, made_s: int) -> Certificate:
        """Of a certificate that is in force. made_s: when it was made. Raises NotAuthorised."""
        certificate = self.certificates.get(serial)
        if certificate is None and made_s < self.restored_s:
            certificate = Certificate(serial, node, "", 0)
        if certificate is None or certificate.node != node or serial in self.revocations:
            raise NotAuthorised(
                "certificate_revoked",
                f"the certificate of {node} is not in force any more",
                "join again with a join token: --join HOST:PORT --token-file F",
            )
        return certificate

    def revoke(self, node: str, now_s: int) -> Ledger:
        """All certificates of a node. Raises NotFound."""
        found = [c for c in self.certificates.values() if c.node == node and c.serial not in self.revocations]
        if not found:
            raise NotFound("no_such_node", f"no certificate in force names {node[:80]!r}", "see heteroflow nodes")
        revoked = {c.serial: Revocation(c.serial, node, now_s, c.expires_s) for c in found}
        return replace(self, revocations={**self.revocations, **revoked}, number=self.number + 1)

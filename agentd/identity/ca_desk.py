"""The mesh CA, in the data directory of one host, at first of the founder: `ca/ca.key`, `ca/ca.pem`, `ca/ledger.json`.

One that came by rotation is `ca-FINGERPRINT.key` and `.pem`. Which of them are believed and which one signs is said by
the ledger alone, so that each step of a rotation is one file written whole. Each step is read, changed and written
under a lock, so that the agent and the command line may both use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentd.data_dir import DataDirRefused, write_durably
from mesh.core.identity.authorities import Authorities
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.ledger import Certificate, Ledger
from mesh.core.identity.node_name import NodeName
from mesh.core.identity.rotation import advanced, begin, turned, waiting_for
from mesh.security.certificates import (
    NODE_LIFE,
    ca_cluster,
    fingerprint,
    issue,
    new_ca,
    new_key,
    read_certificate,
    request_key_hash,
    revocation_list,
    signature,
    utc_now,
)
from mesh.security.node_certificate import BadCertificate, NodeCertificate
from schemas.errors import Conflict, InvalidInput
from schemas.instants import iso_utc

EXPORT_FORMAT = 1


class CaDesk:
    """life: of the certificates it gives out."""

    def __init__(self, root: Path, life: timedelta = NODE_LIFE) -> None:
        """Raises DataDirRefused where the files are damaged."""
        self._root, self._life = root, life
        self._pairs()
        first = root / "ca.pem"
        self._first = fingerprint(first.read_bytes()) if first.exists() else ""
        self.cluster_id = ca_cluster(self.certificate)

    @staticmethod
    def exists(root: Path) -> bool:
        return any(root.glob("ca*.pem"))

    @property
    def certificate(self) -> bytes:
        """Of the CA that signs, as PEM."""
        return self._pairs()[self.fingerprint].pem

    @property
    def fingerprint(self) -> str:
        return self._issuer(self._read())

    @property
    def bundle(self) -> bytes:
        """The certificates of those that are believed, as one PEM file."""
        ledger, pairs = self._read(), self._pairs()
        return b"".join(pairs[one].pem for one in ledger.authorities or (self._issuer(ledger),))

    @classmethod
    def found(cls, root: Path, cluster_id: str) -> CaDesk:
        """Made once, and taken up again after a crash on the way."""
        root.mkdir(mode=0o700, exist_ok=True)
        key_path, ledger_path = root / "ca.key", root / "ledger.json"
        if not key_path.exists():
            write_durably(key_path, new_key().decode())
        if not ledger_path.exists():
            write_durably(ledger_path, json.dumps(Ledger().to_dict()) + "\n")
        if not cls.exists(root):
            write_durably(root / "ca.pem", new_ca(key_path.read_bytes(), cluster_id, utc_now()).decode(), 0o644)
        return cls(root)

    # -- tokens

    def new_token(self, uses: int, life_s: int) -> JoinToken:
        """Raises InvalidInput, Conflict."""
        token = JoinToken(secrets.token_hex(6), secrets.token_urlsafe(32), self.fingerprint)
        with self._changing() as change:
            change.ledger = change.ledger.with_token(token, uses, life_s, change.now_s)
        return token

    def revoke_token(self, token_id: str) -> None:
        """Raises NotFound."""
        with self._changing() as change:
            change.ledger = change.ledger.without_token(token_id)

    def tokens(self) -> list[dict[str, Any]]:
        """`{id, state, uses, used, made, expires}`, newest first."""
        now_s = int(time.time())
        listed = sorted(self._read().tokens.values(), key=lambda token: -token.made_s)
        return [
            {
                "id": token.id,
                "state": token.state(now_s),
                "uses": token.uses,
                "used": len(token.used),
                "made": iso_utc(token.made_s * 1000),
                "expires": iso_utc(token.expires_s * 1000),
            }
            for token in listed
        ]

    # -- certificates

    def check(self, token: JoinToken, node: str, uid: str, request: bytes) -> None:
        """Whether `admit` would let it in. Raises NotAuthorised, Conflict, InvalidInput."""
        ledger, now_s = self._read(), int(time.time())
        ledger.check_token(token, uid, _key_hash(request), now_s)
        ledger.check_name(node, uid, now_s)

    def admit(self, token: JoinToken, request: bytes, name: NodeName, uid: str, hosts: Iterable[str]) -> bytes:
        """A certificate for a host that came with a token. Raises NotAuthorised, Conflict, InvalidInput."""
        key_hash = _key_hash(request)
        with self._changing() as change:
            pem, record = self._issue(change.ledger, request, name, uid, hosts)
            change.ledger = change.ledger.admit(token, key_hash, record, change.now_s)
        return pem

    def own(self, request: bytes, name: NodeName, uid: str, hosts: Iterable[str]) -> bytes:
        """For the host that has the CA."""
        with self._changing() as change:
            pem, record = self._issue(change.ledger, request, name, uid, hosts)
            change.ledger = change.ledger.with_certificate(record, change.now_s)
        return pem

    def renew(self, held: NodeCertificate, request: bytes, hosts: Iterable[str]) -> bytes:
        """Raises NotAuthorised, InvalidInput."""
        with self._changing() as change:
            made_s = int(held.not_before.timestamp())
            holder = change.ledger.holder_of(held.name.node, held.serial, made_s)
            pem, record = self._issue(change.ledger, request, held.name, holder.uid, hosts)
            change.ledger = change.ledger.with_certificate(record, change.now_s)
        return pem

    def revoke(self, node: str, own_node: str) -> None:
        """Raises NotFound, Conflict."""
        if node == own_node:
            raise Conflict("ca_host", f"{node} has the mesh CA: revoking it would end all renewals", "found a new mesh")
        with self._changing() as change:
            change.ledger = change.ledger.revoke(node, change.now_s)

    @property
    def revocations_number(self) -> int:
        return self._read().number

    def revocations(self) -> bytes:
        """As PEM."""
        ledger = self._read()
        listed = [(r.serial, datetime.fromtimestamp(r.at_s, UTC)) for r in ledger.revocations.values()]
        signs = self._pairs()[self._issuer(ledger)]
        return revocation_list(signs.key, signs.pem, listed, ledger.number, utc_now())

    # -- which CA, and where

    def rotate(self) -> None:
        """Begin to replace the CA. Raises Conflict."""
        key = new_key()
        pem = new_ca(key, self.cluster_id, utc_now())
        new = fingerprint(pem)
        with self._changing() as change:
            change.ledger = begin(change.ledger, self._issuer(change.ledger), new)
            write_durably(self._root / f"ca-{new[:16]}.key", key.decode())
            write_durably(self._root / f"ca-{new[:16]}.pem", pem.decode(), 0o644)

    def advance(self, node: str, address: str) -> None:
        """Take what step of a rotation can be taken. node, address: of the host that this is on."""
        ledger = self._read()
        if not ledger.trust or (ledger.holder == (node, address) and advanced(ledger, int(time.time())) is ledger):
            return
        with self._changing() as change:
            ledger = change.ledger
            if ledger.holder != (node, address):
                ledger = replace(ledger, holder=(node, address), trust=ledger.trust + 1)
            change.ledger = advanced(ledger, change.now_s)
        self._forget()

    def heard(self, held: NodeCertificate, number: int) -> None:
        """A node says which statement it believes, and shows this certificate."""
        ledger = self._read()
        record = ledger.certificates.get(held.serial)
        said = (number, record.authority if record is not None else "")
        if len(ledger.authorities) < 2 or ledger.heard.get(held.name.node) == said:
            return
        with self._changing() as change:
            change.ledger = replace(change.ledger, heard={**change.ledger.heard, held.name.node: said})

    @property
    def trust_number(self) -> int:
        return self._read().trust

    def statement(self) -> Authorities | None:
        """Signed by each CA in it, so that whoever believes one of them believes it."""
        ledger = self._read()
        if not ledger.trust or not ledger.holder[0]:
            return None
        pairs = self._pairs()
        signs = [pairs[one] for one in ledger.authorities or (self._issuer(ledger),)]
        said = Authorities(
            ledger.trust, tuple(p.pem.decode("ascii") for p in signs), self._issuer(ledger), *ledger.holder
        )
        return replace(said, signatures={fingerprint(p.pem): signature(p.key, said.text()) for p in signs})

    def progress(self) -> tuple[int, tuple[str, ...]]:
        """The step of a rotation, 1 or 2 (0: there is none), and the nodes that it waits for."""
        ledger = self._read()
        step = 0 if len(ledger.authorities) < 2 else 2 if turned(ledger) else 1
        return step, waiting_for(ledger, int(time.time()))

    def export(self) -> dict[str, Any]:
        """All of it, keys too: a backup, and the way to another host (`ca_backup.py`)."""
        ledger, pairs = self._read(), self._pairs()
        ledger = replace(ledger, issuer=self._issuer(ledger))
        believed = [pairs[one] for one in ledger.authorities or (ledger.issuer,)]
        return {
            "format": EXPORT_FORMAT,
            "ledger": ledger.to_dict(),
            "authorities": [{"key": p.key.decode(), "certificate": p.pem.decode()} for p in believed],
        }

    def moved_away(self) -> Path:
        """Another host has the CA: what is here is kept under another name, and never used again."""
        aside = self._root.with_name(f"{self._root.name}.moved-{int(time.time())}")
        os.replace(self._root, aside)
        return aside

    # -- files

    def _issuer(self, ledger: Ledger) -> str:
        return ledger.issuer or self._first

    def _pairs(self) -> dict[str, _Pair]:
        """By fingerprint. Raises DataDirRefused."""
        pairs: dict[str, _Pair] = {}
        try:
            for path in sorted(self._root.glob("ca*.pem")):
                pem = path.read_bytes()
                pairs[fingerprint(pem)] = _Pair(path.with_suffix(".key"), pem)
            if not pairs:
                raise FileNotFoundError(f"{self._root}/ca.pem is not there")
        except (OSError, BadCertificate) as error:
            raise DataDirRefused(
                f"{self._root}: the mesh CA cannot be read ({error}); restore the directory from a backup"
            ) from error
        return pairs

    def _forget(self) -> None:
        """Keys that nobody believes any more go. One that is not in the ledger yet is being made, under the lock."""
        with self._changing() as change:
            for known, pair in self._pairs().items():
                if change.ledger.authorities and known not in change.ledger.authorities:
                    pair.key_path.unlink(missing_ok=True)
                    pair.key_path.with_suffix(".pem").unlink(missing_ok=True)

    def _issue(
        self, ledger: Ledger, request: bytes, name: NodeName, uid: str, hosts: Iterable[str]
    ) -> tuple[bytes, Certificate]:
        signer = self._issuer(ledger)
        signs = self._pairs()[signer]
        try:
            pem = issue(signs.key, signs.pem, request, name, hosts, utc_now(), self._life)
        except BadCertificate as error:
            raise InvalidInput("invalid_request", str(error), "start the agent again: it makes a new one") from error
        made = read_certificate(pem)
        return pem, Certificate(made.serial, name.node, uid, int(made.not_after.timestamp()), ledger.issuer)

    def _read(self) -> Ledger:
        path = self._root / "ledger.json"
        try:
            return Ledger.from_dict(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataDirRefused(f"{path} cannot be read ({error}); restore it from a backup") from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Change]:
        descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            change = _Change(self._read(), int(time.time()))
            yield change
            write_durably(self._root / "ledger.json", json.dumps(change.ledger.to_dict(), indent=1) + "\n")
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Pair:
    key_path: Path
    pem: bytes

    @property
    def key(self) -> bytes:
        return self.key_path.read_bytes()


class _Change:
    def __init__(self, ledger: Ledger, now_s: int) -> None:
        self.ledger, self.now_s = ledger, now_s


def _key_hash(request: bytes) -> str:
    try:
        return request_key_hash(request)
    except BadCertificate as error:
        raise InvalidInput("invalid_request", str(error), "start the agent again: it makes a new one") from error

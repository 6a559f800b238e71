"""The mesh CA, in the data directory of the host that founded the mesh: `ca/ca.key`, `ca/ca.pem`, `ca/ledger.json`.

Each step is read, changed and written under a lock, so that the agent and the command line may both use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentd.data_dir import DataDirRefused, write_durably
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.ledger import Certificate, Ledger
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import (
    NODE_LIFE,
    BadCertificate,
    NodeCertificate,
    ca_cluster,
    fingerprint,
    issue,
    new_ca,
    new_key,
    read_certificate,
    request_key_hash,
    revocation_list,
    utc_now,
)
from schemas.errors import Conflict, InvalidInput
from schemas.instants import iso_utc


class CaDesk:
    """life: of the certificates it gives out."""

    def __init__(self, root: Path, life: timedelta = NODE_LIFE) -> None:
        """Raises DataDirRefused where the files are damaged."""
        self._root, self._life = root, life
        try:
            self.certificate = (root / "ca.pem").read_bytes()
            self.cluster_id = ca_cluster(self.certificate)
            self.fingerprint = fingerprint(self.certificate)
        except (OSError, BadCertificate) as error:
            raise DataDirRefused(
                f"{root}: the mesh CA cannot be read ({error}); restore the directory from a backup"
            ) from error

    @staticmethod
    def exists(root: Path) -> bool:
        return (root / "ca.pem").exists()

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
            pem, record = self._issue(request, name, uid, hosts)
            change.ledger = change.ledger.admit(token, key_hash, record, change.now_s)
        return pem

    def own(self, request: bytes, name: NodeName, uid: str, hosts: Iterable[str]) -> bytes:
        """For the host that has the CA."""
        with self._changing() as change:
            pem, record = self._issue(request, name, uid, hosts)
            change.ledger = change.ledger.with_certificate(record, change.now_s)
        return pem

    def renew(self, held: NodeCertificate, request: bytes, hosts: Iterable[str]) -> bytes:
        """Raises NotAuthorised, InvalidInput."""
        with self._changing() as change:
            holder = change.ledger.holder(held.name.node, held.serial)
            pem, record = self._issue(request, held.name, holder.uid, hosts)
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
        return revocation_list(self._key(), self.certificate, listed, ledger.number, utc_now())

    # -- files

    def _issue(self, request: bytes, name: NodeName, uid: str, hosts: Iterable[str]) -> tuple[bytes, Certificate]:
        try:
            pem = issue(self._key(), self.certificate, request, name, hosts, utc_now(), self._life)
        except BadCertificate as error:
            raise InvalidInput("invalid_request", str(error), "start the agent again: it makes a new one") from error
        made = read_certificate(pem)
        return pem, Certificate(made.serial, name.node, uid, int(made.not_after.timestamp()))

    def _key(self) -> bytes:
        return (self._root / "ca.key").read_bytes()

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


class _Change:
    def __init__(self, ledger: Ledger, now_s: int) -> None:
        self.ledger, self.now_s = ledger, now_s


def _key_hash(request: bytes) -> str:
    try:
        return request_key_hash(request)
    except BadCertificate as error:
        raise InvalidInput("invalid_request", str(error), "start the agent again: it makes a new one") from error

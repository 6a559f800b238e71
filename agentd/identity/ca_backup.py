"""The mesh CA on another host, from what `CaDesk.export` gave."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentd.data_dir import DataDirRefused, write_durably
from agentd.identity.ca_desk import EXPORT_FORMAT, CaDesk
from mesh.core.identity.ledger import Ledger, Revocation
from mesh.security.certificates import NODE_LIFE, belongs_to, ca_cluster, fingerprint
from mesh.security.node_certificate import BadCertificate, Revoked
from schemas.errors import Conflict, InvalidInput

TRUST_STEP = 1000
"""The host that lost the CA may have said more since the backup than that knows; what is said now must be newer."""


def restore(
    root: Path, exported: Mapping[str, Any], cluster_id: str, believed: bytes, revoked: Revoked, holder: tuple[str, str]
) -> CaDesk:
    """On `holder`, a node with its agent's address, which believes those CAs and knows of those revocations, perhaps
    newer than the backup. Whole or not at all. Raises InvalidInput, Conflict."""
    if CaDesk.exists(root):
        raise Conflict("ca_here", f"{root} holds the mesh CA already", "there is nothing to do on this host")
    try:
        if exported["format"] != EXPORT_FORMAT:
            raise ValueError(f"format {exported['format']!r} is of another version")
        ledger, pairs = Ledger.from_dict(exported["ledger"]), {}
        for one in exported["authorities"]:
            key, pem = str(one["key"]).encode(), str(one["certificate"]).encode()
            if ca_cluster(pem) != cluster_id:
                raise ValueError(f"it is of mesh {ca_cluster(pem) or 'unknown'}, this host is in {cluster_id}")
            if not belongs_to(pem, key):
                raise ValueError("a key in it is not that of its certificate")
            pairs[fingerprint(pem)] = key, pem
        if ledger.issuer not in pairs or pairs[ledger.issuer][1].strip() not in believed:
            raise ValueError("this host does not believe the CA in it: it was replaced since, or it is another one")
    except (KeyError, TypeError, ValueError, AttributeError, BadCertificate) as error:
        raise InvalidInput("bad_backup", f"this is no backup of the CA of this mesh: {error}") from error
    ledger = _carried_on(ledger, revoked, holder, int(time.time()))
    making = root.with_name(root.name + ".new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(mode=0o700)
    for number, (key, pem) in pairs.items():
        write_durably(making / f"ca-{number[:16]}.key", key.decode())
        write_durably(making / f"ca-{number[:16]}.pem", pem.decode(), 0o644)
    write_durably(making / "ledger.json", json.dumps(ledger.to_dict(), indent=1) + "\n")
    try:
        os.replace(making, root)
    except OSError as error:
        raise DataDirRefused(f"{root} is in the way ({error.strerror}); move it aside, then try again") from error
    return CaDesk(root)


def _carried_on(ledger: Ledger, revoked: Revoked, holder: tuple[str, str], now_s: int) -> Ledger:
    """What was given out since the backup is not in it: such certificates are renewed for what they say, unless they
    are known to be revoked."""
    known = {one.serial: one.node for one in ledger.certificates.values()}
    until_s = now_s + int(NODE_LIFE.total_seconds())
    missing = {
        serial: Revocation(serial, known.get(serial, ""), now_s, until_s)
        for serial in sorted(revoked.serials - set(ledger.revocations))
    }
    return replace(
        ledger,
        revocations={**ledger.revocations, **missing},
        number=max(ledger.number, revoked.number) + 1,
        trust=ledger.trust + TRUST_STEP,
        holder=holder,
        heard={},
        restored_s=now_s,
    )

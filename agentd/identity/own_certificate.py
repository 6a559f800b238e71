"""The certificate of this host in `D/tls`, and the CA beside it where this host has it."""

from __future__ import annotations

import contextlib

from agentd.config import AgentConfig
from agentd.data_dir import DataDir, DataDirRefused, Identity, write_durably
from agentd.identity.ca_desk import CaDesk
from agentd.identity.settle import reachable_as
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import new_key, signing_request
from mesh.security.mesh_tls import IdentityDamaged, MeshTls


def open_tls(config: AgentConfig, data: DataDir, identity: Identity) -> tuple[MeshTls, CaDesk | None]:
    """The founder makes CA and certificate here; a joiner gets its certificate later. Raises DataDirRefused."""
    data.tls_dir.mkdir(mode=0o700, exist_ok=True)
    ca: CaDesk | None = None
    if identity.voters_wanted > 0 and not (data.tls_dir / "ca.pem").exists():
        ca = CaDesk.found(data.ca_dir, identity.cluster_id)
    elif CaDesk.exists(data.ca_dir):
        ca = CaDesk(data.ca_dir)
    if ca is not None and not (data.tls_dir / "node.pem").exists():
        write_durably(data.tls_dir / "ca.pem", ca.bundle.decode(), 0o644)
        key = new_key()
        name = NodeName(identity.cluster_id, identity.node_id, voter=True)
        pem = ca.own(signing_request(key, name.node), name, identity.uid, reachable_as(config))
        save_certificate(data, key, pem)
    try:
        return MeshTls(data.tls_dir), ca
    except IdentityDamaged as error:
        raise DataDirRefused(str(error)) from error


def pending_key(data: DataDir) -> bytes:
    """The key that a joiner asks a certificate for: the same each time, so that a lost answer can be given again."""
    path = data.tls_dir / "key.pem"
    if not path.exists():
        write_durably(path, new_key().decode())
    return path.read_bytes()


def save_certificate(data: DataDir, key: bytes, pem: bytes) -> None:
    """Key and certificate in one file: they are never seen apart."""
    write_durably(data.tls_dir / "node.pem", (key + pem).decode())
    with contextlib.suppress(FileNotFoundError):
        (data.tls_dir / "key.pem").unlink()

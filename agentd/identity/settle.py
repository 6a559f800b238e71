"""Whether this host speaks TLS, and with what: decided once at the start, before anything listens."""

from __future__ import annotations

import contextlib

from agentd.config import AgentConfig, ConfigError
from agentd.data_dir import DataDir, DataDirRefused, Identity, read_secret_file, write_durably
from agentd.identity.ca_desk import CaDesk
from mesh.core.identity.join_token import PREFIX, JoinToken
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import new_key, signing_request
from mesh.security.mesh_tls import IdentityDamaged, MeshTls


def given_join_token(config: AgentConfig, data: DataDir) -> JoinToken | None:
    """What --token-file holds, where that is a join token: who has joined needs it no more, and may have removed it.
    Raises DataDirRefused for one that is cut short."""
    if config.token_file is None or ((data.tls_dir / "node.pem").exists() and not config.token_file.exists()):
        return None
    text = read_secret_file(config.token_file)
    token = JoinToken.parse(text)
    if token is None and text.startswith(PREFIX):
        raise DataDirRefused(f"{config.token_file} holds a join token that is not whole; copy it again")
    return token


def wants_tls(config: AgentConfig, data: DataDir, join_token: JoinToken | None) -> bool:
    """Raises ConfigError, DataDirRefused."""
    if (data.tls_dir / "ca.pem").exists():
        if config.tls is False:
            raise DataDirRefused(f"{config.data_dir} belongs to a mesh with TLS; leave --tls off out")
        return True
    if data.founding() is not None or (data.token_path.exists() and join_token is None):
        if config.tls or not config.on_loopback:
            raise DataDirRefused(
                f"{config.data_dir} belongs to a mesh without TLS, which stays on loopback; choose another --data-dir "
                f"for a mesh with TLS"
            )
        return False
    wanted = config.tls if config.tls is not None else join_token is not None or not config.on_loopback
    if not wanted and join_token is not None:
        raise ConfigError("--token-file holds a join token, which is for a mesh with TLS; leave --tls off out")
    if wanted and config.join is not None and join_token is None:
        raise ConfigError(
            "--join over TLS takes a join token in --token-file; make one on a voter's host: "
            "heteroflow-agentd token create --data-dir D"
        )
    return wanted


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


def reachable_as(config: AgentConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((config.api_public.host, config.voter_public.host)))


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

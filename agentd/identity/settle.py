"""Whether this host speaks TLS, decided once at the start, before anything listens."""

from __future__ import annotations

from agentd.config import AgentConfig, ConfigError
from agentd.data_dir import DataDir, DataDirRefused, read_secret_file
from mesh.core.identity.join_token import PREFIX, JoinToken


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


def reachable_as(config: AgentConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((config.api_public.host, config.voter_public.host)))

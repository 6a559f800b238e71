"""With which name and password a registry is asked: those of the agent's user on this host.

They are read for each pull and go with that request alone. Nothing is written: a login or logout of another pull, or of
a person at a terminal, is never overwritten, and none of ours is left on the disk.
"""

from pathlib import Path

import docker.auth
import docker.utils.config

from agentd.runtime.base import ImageUnavailable


def registry_login(repository: str) -> dict[str, str] | None:
    """For one pull request; None where nobody is logged in. Never to be shown. Raises ImageUnavailable."""
    try:
        registry, _ = docker.auth.resolve_repository_name(repository)
        login: dict[str, str] | None = docker.auth.load_config().resolve_authconfig(registry)
        return login or None
    except Exception as error:
        # Whatever is wrong with the file, or with the program it names; neither says nothing of the engine.
        found = docker.utils.config.find_config_file() or Path.home() / ".docker" / "config.json"
        text = f"the registry logins of this host cannot be read from {found} ({type(error).__name__}); repair it"
        raise ImageUnavailable(text, "image_pull_transient", permanent=False) from error

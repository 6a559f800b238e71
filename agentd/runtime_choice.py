"""The runtime that --runtime names, and what of this host no task is shown."""

from collections.abc import Sequence

from agentd.claims.task_paths import source_refusal
from agentd.config import AgentConfig
from agentd.data_dir import DataDir, Identity
from agentd.runtime.base import Runtime
from agentd.runtime.memory import MemoryRuntime
from agentd.runtime.process import ProcessRuntime


def choose_runtime(config: AgentConfig, data: DataDir, identity: Identity) -> Runtime:
    if config.runtime == "memory":
        return MemoryRuntime(root=data.tasks_dir)
    if config.runtime == "docker":
        # Only here: an agent without containers does not pay for the engine's client.
        from agentd.runtime.docker.plan import Owner
        from agentd.runtime.docker.runtime import DockerRuntime

        def mount_refusal(source: str) -> str | None:
            refusal = source_refusal("mount", source, config.allowed_paths, private_paths(config, data))
            return refusal.text if refusal is not None else None

        owner = Owner(identity.cluster_id, identity.node_id)
        return DockerRuntime(data.tasks_dir, data.lease_path, owner, config.docker_socket, mount_refusal)
    return ProcessRuntime(data.tasks_dir, data.lease_path)


def private_paths(config: AgentConfig, data: DataDir) -> Sequence[str]:
    """What no task is shown, whatever the allow-list says."""
    engine = [config.docker_socket] if config.runtime == "docker" else []
    return [str(data.root), *engine]

"""The API of one agent over real HTTP, on an in-process mesh."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from agentd.data_dir import DataDir, Identity, new_token
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.http.runner import AgentRunner
from agentd.join import JoinDesk
from mesh.memory import MemoryMesh

TOKEN = new_token()
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def document(name: str = "ft-a", **training: Any) -> dict[str, Any]:
    return {
        "name": name,
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": 1,
            "per_node_gpu": 2,
            "checkpoint_path": f"/data/ckpt/{name}",
            **training,
        },
        "task": {"command": "python train.py", "gpu_required": 2},
    }


class AgentServer(TestServer):
    """As the daemon serves."""

    async def _make_runner(self, **options: Any) -> AgentRunner:
        return AgentRunner(self.app, **options)


@contextlib.asynccontextmanager
async def served(tmp_path: Any, mesh: Any = None) -> AsyncIterator[TestClient]:
    """`mesh`: a MemoryMesh of its own unless given."""
    data = DataDir.open(tmp_path / "data")
    identity = Identity("n1", "uid1", cluster_id="c", epoch=1, profile="fast", role="founder", voters_wanted=3)
    api = Api("n1", JoinDesk(data, identity, None), lambda: {"status": "ok"}, mesh or MemoryMesh())
    app = make_app(api, TOKEN, "127.0.0.1")
    try:
        async with TestClient(AgentServer(app)) as client:
            yield client
    finally:
        data.close()

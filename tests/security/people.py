"""One agent's API with a key of every role, and a group of each of two tenants."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient

from agentd.core.token_bucket import TokenBuckets
from agentd.http.callers import CALLERS
from agentd.http.rates import RATES
from mesh.memory import MemoryMesh
from schemas.rules.permissions import ROLES
from tests.integration.served_api import AUTH, document, served

TENANTS = ("red", "blue")
_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


class People:
    """keys: by role and tenant, as `member.red`. groups: by tenant, running nowhere."""

    def __init__(self, client: TestClient[web.Request, web.Application], mesh: MemoryMesh) -> None:
        self.client, self.mesh = client, mesh
        self.keys: dict[str, str] = {}
        self.groups: dict[str, str] = {}

    def auth(self, who: str) -> dict[str, str]:
        return bearer(self.keys[who])

    async def make_key(self, name: str, role: str = "member", tenant: str = "red", **over: Any) -> str:
        body = {"name": name, "role": role, "tenant": tenant, **over}
        async with self.client.post("/api/v1/keys", json=body, headers=AUTH) as response:
            assert response.status == 201, await response.text()
            key = str((await response.json())["key"])
        self.keys[name] = key
        return key

    def id_of(self, name: str) -> str:
        return self.keys[name].split("_")[1]

    async def revoke(self, name: str) -> None:
        async with self.client.delete(f"/api/v1/keys/{self.id_of(name)}", headers=AUTH) as response:
            assert response.status == 200, await response.text()

    async def login(self, name: str) -> str:
        async with self.client.post("/api/v1/login", headers=self.auth(name)) as response:
            assert response.status == 200, await response.text()
            return str((await response.json())["token"])

    async def submit(self, who: str, name: str, status: int = 201, **over: Any) -> str:
        body = document(name) | over
        async with self.client.post("/api/v1/task-groups", json=body, headers=self.auth(who)) as response:
            assert response.status == status, await response.text()
            return str((await response.json()).get("group_id"))

    async def get(self, path: str, who: str, status: int = 200) -> Any:
        async with self.client.get(path, headers=self.auth(who)) as response:
            assert response.status == status, (path, who, await response.text())
            return await response.json()

    def forget(self) -> None:
        """As if the time for which the agent trusts what it read were over."""
        assert self.client.app is not None
        self.client.app[CALLERS].book.forget()

    def routes(self) -> list[tuple[str, str, object]]:
        """(method, path, handler) of the whole table, HEAD too."""
        assert self.client.app is not None
        return sorted(
            (
                (route.method, spelled(route.resource), route.handler)
                for route in self.client.app.router.routes()
                if route.resource is not None
            ),
            key=lambda route: route[:2],
        )


def spelled(resource: web.AbstractResource) -> str:
    """The path with its parameters by name, also where the router took some words alone."""
    info = resource.get_info()
    return str(info.get("formatter") or info["path"])


def filled(path: str, group_id: str = "tg-x") -> str:
    values = {
        "group_id": group_id,
        "task": f"{group_id}.1.0",
        "attempt": "1",
        "rank": "0",
        "way": "scale",
        "order": "wake",
    }
    return _PARAMETER.sub(lambda found: values.get(found.group(1), "x"), path)


@contextlib.asynccontextmanager
async def people(tmp_path: Any) -> AsyncIterator[People]:
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:
        found = People(client, mesh)
        # Whole route tables are tried by strangers; how often one may come is in test_limits.py.
        assert client.app is not None
        client.app[RATES].strangers = TokenBuckets(1e9, 1e9)
        for role in ROLES:
            for tenant in TENANTS:
                await found.make_key(f"{role}.{tenant}", role, tenant)
        for tenant in TENANTS:
            found.groups[tenant] = await found.submit(f"member.{tenant}", f"job-{tenant}")
        yield found

"""The attached agent is killed between request and answer: no action of the console is lost, none done twice."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from console.app import Console, now_ms
from console.endpoints import Target
from console.keymap import Keymap
from console.store.session import Session
from tests.integration.mesh_fixture import MeshNode, RunningMesh, shell_group
from tests.snapshots.driven import Driven
from tests.terminal.delaying_proxy import DelayingProxy, delaying_proxy
from tests.waiting import eventually

KILLS = int(os.environ.get("HF_E2E_KILLS", "8"))
ACTIONS = ("stop", "clone", "resubmit", "submit")
WAIT_S = 30.0
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 15 * KILLS)]


class ConsoleThatKeepsSayings(Console):
    """A sentence is on the screen for seconds only, and the next one takes its place."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, Keymap({}, False))
        self.said: list[str] = []

    def say(self, text: str, tone: str = "text") -> None:
        self.said.append(text)
        super().say(text, tone)


class Round:
    """One action on one group, through a node that is killed meanwhile; `other` is asked what became of it."""

    def __init__(self, number: int, mesh: RunningMesh, console: Driven, proxies: list[DelayingProxy]) -> None:
        self.mesh, self.console = mesh, console
        self.node, self.proxy = mesh.nodes[number % 3], proxies[number % 3]
        self.other = mesh.nodes[(number + 1) % 3].number
        self.action = ACTIONS[number % len(ACTIONS)]
        self.killed_after_answer = number // len(ACTIONS) % 2 == 1
        self.name = f"round{number:02d}"
        self.makes = 2 if self.action in ("clone", "resubmit") else 1  # groups of its name there are afterwards

    async def play(self) -> None:
        await getattr(self, f"_{self.action}")()
        assert len(await self.groups(self.name)) == self.makes
        # A guard waits longer after each death of its agent, and two nodes away at once are no quorum: the next round
        # is to begin with a whole mesh.
        self.node.kill_guard()
        self.node.start()
        for node in self.mesh.nodes:
            await self._answers(node)

    # What is acted on

    def _document(self) -> dict[str, Any]:
        """Wants more cards than there are, so it waits for ever."""
        document = shell_group(self.name, self.mesh.directory, "true", 1, per_node_gpu=64, launcher="script")
        document["training"]["hyper_params"] = {"learning_rate": "3e-4", "warmup": "0755"}
        document["task"]["gpu_required"] = 64
        return document

    async def _made(self, document: dict[str, Any]) -> str:
        return await eventually(
            "a submission", lambda: self.mesh.submit(document, self.other, f"made-{self.name}"), WAIT_S
        )

    async def _ask(self, method: str, path: str) -> Any:
        async def answered() -> dict[str, Any]:
            answer = await self.mesh.nodes[self.other - 1].call(method, path)
            assert answer.status == 200, answer
            return {"value": answer.value}

        return (await eventually(f"an answer to {method} {path}", answered, WAIT_S))["value"]

    async def _shown(self, group_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = await self._ask("GET", f"/task-groups/{group_id}")
        return shown

    async def _until(self, group_id: str, status: str) -> None:
        async def reached() -> bool:
            return bool((await self._shown(group_id))["status"] == status)

        await eventually(lambda: f"{self.name} to be {status}", reached, WAIT_S)

    async def groups(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._ask("GET", f"/task-groups?limit=1000&name={name}"))["groups"]
        return found

    # The console

    async def _attach(self) -> None:
        """With this round's node, through the proxy before it."""

        await self._answers(self.node)
        client = self.console.app.session.client
        for address in client.nodes:
            if address != self.proxy.address:
                client.put_last(address)

    async def _answers(self, node: MeshNode) -> None:
        async def answered() -> bool:
            return (await node.call("GET", "/task-groups?limit=1", timeout_s=2.0)).status == 200

        await eventually(lambda: f"{node.name} to answer", answered, WAIT_S)

    async def _on_row(self, *texts: str) -> None:
        await self.console.press("slash", "ctrl+u", *self.name, "enter")

        def there() -> bool:
            rows = self.console.lines()
            return len(rows) == 1 and all(text in rows[0] for text in (self.name, *texts))

        await self.console.until(there)
        await self._attach()

    async def _killed(self, *keys: str) -> None:
        """The agent, between the request that these keys make and its answer."""
        self.proxy.hold()
        await self.console.press(*keys)
        await asyncio.to_thread(self.proxy.wait, self.killed_after_answer)
        self.node.kill_agent()

    async def _says(self, text: str) -> None:
        app = self.console.app
        assert isinstance(app, ConsoleThatKeepsSayings)
        said = app.said

        async def heard() -> bool:
            return any(text in each for each in said)

        await eventually(lambda: f"{text!r} among {said}", heard, WAIT_S)
        said.clear()

    # Actions

    async def _stop(self) -> None:
        document = shell_group(self.name, self.mesh.directory, "sleep 3600", 1)
        group_id = await self._made(document)
        await self._until(group_id, "running")
        await self._on_row("R running")
        await self.console.press("s")
        await self.console.until("Stop this group")
        await self._killed("y")
        await self._says(f"{self.name} is stopping")

        await self._until(group_id, "stopped")
        events = (await self._ask("GET", f"/task-groups/{group_id}/fault-events"))["events"]
        assert [event["kind"] for event in events].count("stopping") == 1, events

    async def _clone(self) -> None:
        group_id = await self._made(self._document())
        await self._ask("POST", f"/task-groups/{group_id}/stop")
        await self._on_row("X stopped")
        await self.console.press("c")
        await self.console.until("the same as the original")
        editor = self.console.screen.query_one("#text")
        editor.text = editor.text.replace("3e-4", "1e-4")
        await self.console.until("1 field differs")
        await self._killed("ctrl+s")
        await self._says("submitted as")
        (clone,) = [group for group in await self.groups(self.name) if group["group_id"] != group_id]
        configs = [(await self._shown(each))["config"] for each in (group_id, clone["group_id"])]
        assert configs[1].pop("training")["hyper_params"] == {"learning_rate": "1e-4", "warmup": "0755"}
        assert configs[0].pop("training")["hyper_params"]["learning_rate"] == "3e-4"
        assert configs[0] == configs[1]

    async def _resubmit(self) -> None:
        group_id = await self._made(self._document())
        await self._ask("POST", f"/task-groups/{group_id}/stop")
        await self._on_row("X stopped")
        await self.console.press("r")
        await self.console.until("Submit once more")
        await self._killed("y")
        await self._says("submitted as")
        (again,) = [group for group in await self.groups(self.name) if group["group_id"] != group_id]
        assert (await self._shown(again["group_id"]))["resubmit_of"] == group_id

    async def _submit(self) -> None:
        """By the command line, which has the same client."""
        await self._attach()
        path = self.mesh.directory / f"{self.name}.json"
        path.write_text(json.dumps(self._document()))
        connection = ("--node", self.proxy.address, "--token-file", str(self.mesh.loopback.token_file))
        words = ("-m", "console.cli.main", "submit", str(path), "-o", "json", *connection)
        self.proxy.hold()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        await asyncio.to_thread(self.proxy.wait, self.killed_after_answer)
        self.node.kill_agent()
        answer, errors = await process.communicate()
        assert process.returncode == 0, errors
        (group,) = await self.groups(self.name)
        assert group["group_id"] == json.loads(answer)["group_id"]


@asynccontextmanager
async def attached(mesh: RunningMesh, proxies: list[DelayingProxy]) -> AsyncIterator[Driven]:
    session = Session(Target(tuple(proxy.address for proxy in proxies), mesh.token), now_ms)
    app = ConsoleThatKeepsSayings(session)
    async with app.run_test(size=(120, 40)) as pilot:
        yield Driven(app, pilot)


async def test_each_action_is_done_once_whatever_dies(tmp_path):
    async with RunningMesh(tmp_path) as mesh:
        with ExitStack() as stack:
            proxies = [stack.enter_context(delaying_proxy(node.api)) for node in mesh.nodes]
            async with attached(mesh, proxies) as console:
                await console.until("no groups yet")
                rounds = [Round(number, mesh, console, proxies) for number in range(KILLS)]
                for each in rounds:
                    await each.play()
                # Doubles of earlier rounds that came late, too.
                names = Counter(group["name"] for group in await rounds[-1].groups("round"))
    assert names == {each.name: each.makes for each in rounds}

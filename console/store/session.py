"""The console's connection to the mesh: one client, the feeds that fill the stores, and the actions a user asks for.

Everything here runs as tasks of the app's loop and changes stores only; widgets read stores when the tick says so.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from console.core.format import with_hint
from console.core.sanitize import sanitize
from console.endpoints import Target
from console.store.caller import caller_in
from console.store.curve_store import CurveStore
from console.store.gossip import gossip_of
from console.store.group_store import GroupStore
from console.store.mesh_store import MeshStore
from console.store.telemetry import telemetry_of
from schemas.rules.permissions import Caller, Permission

if TYPE_CHECKING:
    from console.client import MeshClient
    from schemas.errors import Problem

STATUS_S = 5.0
CURVES_S, CURVES_QUIET_S = 3.0, 6.0  # and where no point was added
ENDED_PAGES = 3
TELEMETRY_S, TELEMETRY_QUIET_S = 3.0, 6.0  # and where nothing new is told
TELEMETRY_SHARE = 50  # at most one part in 50 of a core
PACE_S = 1 / 3  # what comes more often than the screen is painted is read together
UNSERVED_S = 30.0
SILENT_S = 12.0
SETTLE_S = 0.25  # a cursor that runs over rows opens no feed for each
ACTION_TRIES = 3
NOBODY_HINT = "It is tried again. Is an agent running there? --node and --data-dir name others."


class Outcome(NamedTuple):
    """sure: whether it is known what became of the action."""

    ok: bool
    text: str
    group_id: str = ""
    sure: bool = True


class Session:
    """news: called when a store has changed; say: called with a sentence for the user and its tone."""

    def __init__(
        self, target: Target, clock_ms: Callable[[], int], timeout_s: float = 20.0, pace_s: float = PACE_S
    ) -> None:
        self._target, self._clock_ms, self._timeout_s, self._pace_s = target, clock_ms, timeout_s, pace_s
        self._cards_wanted = False
        self._looks_elsewhere = asyncio.Event()
        self._nodes_wanted = asyncio.Event()
        self.news: Callable[[], None] = lambda: None
        self.say: Callable[[str, str], None] = lambda text, tone: None
        self.mesh = MeshStore()
        self.focus: GroupStore | None = None
        self.curves = CurveStore("")
        self.consensus: dict[str, Any] = {}
        self.status_at: float | None = None
        self.alerts: list[dict[str, Any]] | None = None
        self.caller: Caller | None = None
        self.trouble = self.trouble_in_full = ""
        self._refused_watch = False  # rather than unanswered, so that no answer to anything else ends the trouble
        self.refused: dict[str, str] = {}  # parts of what is shown that the mesh keeps back, and why
        self.client: MeshClient | None = None
        self.connected = asyncio.Event()
        self._offset_ms = 0
        self._heard: float | None = None
        self._attached = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._focus_task: asyncio.Task[None] | None = None
        self._curves_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        # aiohttp costs more to load than the first screen; it is loaded behind it.
        from console.client import MeshClient

        async with MeshClient(self._target, self._timeout_s) as client:
            self.client = client
            self.connected.set()
            if self.focus is not None:
                self._open_focus(self.focus)
            try:
                async with asyncio.TaskGroup() as feeds:
                    feeds.create_task(self._watch(client))
                    feeds.create_task(self._status(client))
                    feeds.create_task(self._ended(client))
                    feeds.create_task(self._telemetry(client))
                    feeds.create_task(self._alerts(client))
                    feeds.create_task(self._gossip(client))
                    feeds.create_task(self._who(client))
            finally:
                for task in [*self._tasks, self._focus_task, self._curves_task]:
                    if task is not None:
                        task.cancel()

    # What screens ask

    def now_ms(self) -> int:
        """The server's clock: the one of this host may be wrong."""
        return self._clock_ms() + self._offset_ms

    @property
    def attached(self) -> str:
        """The node that answers, by its name where that is known."""
        address = self.client.nodes[0] if self.client is not None else self._target.nodes[0]
        return self._name(address)

    def _name(self, address: str) -> str:
        return next((node.id for node in self.mesh.nodes.values() if node.api_addr == address), sanitize(address))

    @property
    def silent_s(self) -> float:
        """How long nothing was heard of the mesh, beyond what is normal; 0 while it answers. A feed that is silent
        while its node answers ends by itself and goes on elsewhere."""
        if self._heard is None:
            return 0.0
        silence = time.monotonic() - self._heard
        return silence if silence > SILENT_S else 0.0

    # Feeds

    async def _watch(self, client: "MeshClient") -> None:
        from console.watch_stream import WatchStream

        stream = WatchStream(client, None, pace_s=self._pace_s, brief=True)

        async def read() -> None:
            async for frame in stream.frames():
                self.mesh.apply(frame)
                if "snapshot" in frame and self.mesh.loaded:
                    gc.freeze()  # the collector need not look at what stays
                self._refused_watch = False
                self._is_heard()
                self.news()

        await self._endless(read, "watch")

    async def _status(self, client: "MeshClient") -> None:
        async def read() -> None:
            answer = await client.read("/api/v1/mesh")
            self._offset_ms = _offset(answer.now_ms, self._clock_ms(), self._offset_ms)
            if isinstance(answer.value, dict) and answer.value != self.consensus:
                self.consensus = answer.value
                self.mesh.dirty_mesh = True
                self.news()
            self.status_at = time.monotonic()
            self._is_heard()
            await asyncio.sleep(STATUS_S)

        await self._endless(read, "status")

    async def _telemetry(self, client: "MeshClient") -> None:
        rest_s = TELEMETRY_S

        async def read() -> None:
            nonlocal rest_s
            began = time.process_time()
            self._looks_elsewhere.clear()
            # Ranks of one group and cards of all nodes are asked for only where someone looks at them.
            answer = await client.read(
                "/api/v1/telemetry", {"parts": "nodes" if self._cards_wanted else "none"}, clean=False
            )
            said = telemetry_of(answer.value)
            if self.focus is not None and (group_id := self.focus.group_id) in said.groups:
                focused = await client.read("/api/v1/telemetry", {"group": group_id, "parts": "ranks"}, clean=False)
                said.ranks.update(telemetry_of(focused.value).ranks)
            if self.mesh.take_telemetry(said):
                rest_s = TELEMETRY_S
                self.news()
            else:
                rest_s = TELEMETRY_QUIET_S
            # A large mesh says much at once; looking at it shall not cost more than a small part of a core.
            pause = max(rest_s, TELEMETRY_SHARE * (time.process_time() - began))
            await asyncio.sleep(SETTLE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause - SETTLE_S):
                    await self._looks_elsewhere.wait()

        await self._where_served(read, "telemetry")

    async def _who(self, client: "MeshClient") -> None:
        async def read() -> None:
            answer = await client.read("/api/v1/whoami")
            if (caller := caller_in(answer.value)) != self.caller:
                self.caller = caller
                self.mesh.dirty_mesh = True
                self.news()
            await asyncio.sleep(UNSERVED_S)

        await self._where_served(read, "whoami")

    def refusal(self, needed: Permission) -> str:
        """Why the mesh would refuse what needs this; "" while it is not known to."""
        refusal = self.caller.refusal(needed) if self.caller is not None else None
        return with_hint(refusal[0], refusal[1][:1].upper() + refusal[1][1:]) if refusal is not None else ""

    async def _alerts(self, client: "MeshClient") -> None:
        async def read() -> None:
            answer = await client.read("/api/v1/alerts")
            alerts = answer.value.get("alerts") if isinstance(answer.value, dict) else None
            if isinstance(alerts, list) and alerts != self.alerts:
                self.alerts = [alert for alert in alerts if isinstance(alert, dict)]
                self.mesh.dirty_mesh = True
                self.news()
            await asyncio.sleep(STATUS_S)

        await self._where_served(read, "alerts")

    async def _gossip(self, client: "MeshClient") -> None:
        async def read() -> None:
            await self._nodes_wanted.wait()
            answer = await client.read("/api/v1/gossip", {"consistency": "stale"}, clean=False)
            if self.mesh.take_gossip(gossip_of(answer.value)):
                self.news()
            await asyncio.sleep(STATUS_S)

        await self._where_served(read, "gossip")

    async def _where_served(self, read: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """An agent of an older version has no such route: then it is not asked again for a while."""
        from console.client import NoNodeAnswers, Refused

        while True:
            pause = UNSERVED_S
            try:
                await read()
                self.refused.pop(what, None)
                pause = 0.0
            except NoNodeAnswers:
                pause = STATUS_S  # the feed says so already
            except Refused as refused:
                if refused.problem.status != 404:
                    self._kept_back(what, refused.problem)
                    pause = STATUS_S
            await asyncio.sleep(pause)

    async def _ended(self, client: "MeshClient") -> None:
        """Groups that had ended before the console began to watch; later ones come with the feed."""
        params = {"status": "completed,failed,stopped", "limit": "200", "consistency": "stale"}

        async def read() -> None:
            for _ in range(ENDED_PAGES):
                answer = await client.read("/api/v1/task-groups", params)
                self.mesh.add_ended(answer.value["groups"])
                self.news()
                if answer.value.get("cursor") is None:
                    break
                params["cursor"] = str(answer.value["cursor"])
            raise _Done

        with contextlib.suppress(_Done):
            await self._endless(read, "ended")

    async def _endless(self, read: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        from console.client import NoNodeAnswers, Refused

        while True:
            pause = 1.0
            try:
                await read()
                self.refused.pop(what, None)
                continue
            except Refused as refused:
                if what == "watch":
                    self._refused_watch = True
                    self._troubled(refused.problem.message, refused.problem.hint)
                else:
                    self._kept_back(what, refused.problem)
                    pause = STATUS_S
            except NoNodeAnswers as error:
                if what != "ended":
                    self._troubled(f"no node answers ({', '.join(error.tried)})", NOBODY_HINT)
            await asyncio.sleep(pause)

    def _is_heard(self) -> None:
        assert self.client is not None
        self._heard = time.monotonic()
        if not self._refused_watch:
            self.trouble = self.trouble_in_full = ""
        address = self.client.nodes[0]
        if self._attached and self._attached != address:
            self.mesh.dirty_mesh = True
            self.say(f"{self._name(self._attached)} went away; attached to {self._name(address)} now", "warn")
            self.news()
        self._attached = address

    def _troubled(self, text: str, hint: str) -> None:
        """Nothing is known any more. hint: what to do about it, for where there is room."""
        self.trouble, self.trouble_in_full = sanitize(text), sanitize(with_hint(text, hint))
        self.mesh.dirty_mesh = True
        self.news()

    def _kept_back(self, what: str, problem: "Problem") -> None:
        """One part of what is shown, as from a key that may look at groups only: the others go on; it is said once."""
        said = sanitize(with_hint(problem.message, problem.hint))
        if self.refused.get(what) != said:
            new = said not in self.refused.values() and said != self.trouble_in_full
            self.refused[what] = said
            self.mesh.dirty_mesh = True
            if new:
                self.say(said, "warn")
            self.news()

    def look_at_cards(self, wanted: bool) -> None:
        """Whether the use of every card of the mesh is on the screen."""
        self._cards_wanted = wanted
        self._looks_elsewhere.set()

    def look_at_nodes(self, wanted: bool) -> None:
        """Whether what the agents see of each other is on the screen."""
        (self._nodes_wanted.set if wanted else self._nodes_wanted.clear)()

    # One group in focus

    def focus_on(self, group_id: str | None) -> None:
        """The group whose ranks and events are followed; None: none."""
        if self.focus is not None and self.focus.group_id == group_id:
            return
        if self._focus_task is not None:
            self._focus_task.cancel()
            self._focus_task = None
        self.refused.pop("group", None)
        self.focus = GroupStore(group_id) if group_id else None
        self._looks_elsewhere.set()
        if self.focus is not None and self.client is not None:
            self._open_focus(self.focus)

    def _open_focus(self, store: GroupStore) -> None:
        client = self.client
        assert client is not None

        async def follow() -> None:
            from console.watch_stream import WatchStream

            await asyncio.sleep(SETTLE_S)
            stream = WatchStream(client, store.group_id, pace_s=self._pace_s)

            async def read() -> None:
                async for frame in stream.frames():
                    store.apply(frame)
                    self.news()

            await self._endless(read, "group")

        self._focus_task = asyncio.create_task(follow())

    def watch_curves(self, group_id: str | None) -> None:
        """The group whose curves are read again and again while a chart of them is on the screen."""
        if self.curves.group_id == (group_id or ""):
            return
        if self._curves_task is not None:
            self._curves_task.cancel()
            self._curves_task = None
        self.curves = CurveStore(group_id or "")
        if group_id and self.client is not None:
            self._curves_task = asyncio.create_task(self._read_curves(self.client, self.curves))

    async def _read_curves(self, client: "MeshClient", store: CurveStore) -> None:
        from console.client import NoNodeAnswers, Refused

        await asyncio.sleep(SETTLE_S)
        while True:
            try:
                answer = await client.read(f"/api/v1/task-groups/{store.group_id}/curves", {"consistency": "stale"})
                changed = store.take(answer.value)
            except Refused as refused:
                problem = refused.problem
                changed = store.refused(problem.status, problem.code, with_hint(problem.message, problem.hint))
            except NoNodeAnswers as error:
                changed = store.unanswered(", ".join(error.tried))
            if changed:
                self.news()
            await asyncio.sleep(CURVES_S if changed else CURVES_QUIET_S)

    # Actions

    async def order_group(self, group_id: str, what: str, request_id: str) -> Outcome:
        """what: stop, stop-after-checkpoint, pause, resume or resubmit."""
        body = b"{}" if what == "stop-after-checkpoint" else None
        return await self._act(f"/api/v1/task-groups/{group_id}/{what}", request_id, body, f"was told to {what}")

    async def submit(self, body: bytes, request_id: str) -> Outcome:
        return await self._act("/api/v1/task-groups", request_id, body, "was submitted")

    async def order(self, node_id: str, what: str, body: bytes | None, request_id: str) -> Outcome:
        """what: cordon, uncordon or drain."""
        outcome = await self._act(f"/api/v1/nodes/{quote(node_id, safe='')}/{what}", request_id, body, "")
        return outcome._replace(text=f"{node_id}: {what}") if outcome.ok else outcome

    async def _act(self, path: str, request_id: str, body: bytes | None, done: str) -> Outcome:
        """Every try carries the same request id, so an action is done once however often its answer is lost."""
        from console.client import NoNodeAnswers, Refused

        if self.client is None:
            return Outcome(False, "not connected yet; nothing was sent")
        maybe = False
        for _ in range(ACTION_TRIES):
            try:
                answer = await self.client.write(path, request_id, body)
            except Refused as refused:
                return Outcome(False, with_hint(refused.problem.message, refused.problem.hint))
            except NoNodeAnswers as error:
                maybe |= error.maybe_done
                continue
            group_id = str(answer.value.get("group_id", "")) if isinstance(answer.value, dict) else ""
            return Outcome(True, f"{group_id} {done}", group_id)
        if maybe:
            return Outcome(False, "no answer came; it may have been done: look before you ask again", sure=False)
        return Outcome(False, "no node answers; nothing was done")

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Done(Exception):
    pass


def _offset(server_ms: int, here_ms: int, known_ms: int) -> int:
    """The Date header counts whole seconds: a difference within them is none."""
    offset = server_ms - here_ms
    return known_ms if abs(offset - known_ms) < 1500 else offset

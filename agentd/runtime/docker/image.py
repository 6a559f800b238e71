"""Getting an image: what can pass by itself is tried again, what cannot is said at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import docker

from agentd.runtime.base import ImageUnavailable
from agentd.runtime.docker.engine import LOOK_S, Engine, EngineRefused, EngineSilent
from agentd.runtime.docker.logins import registry_login
from schemas.limits import IMAGE_PULL_MS

PULL_S, PULL_SILENT_S = IMAGE_PULL_MS / 1000, 120.0
_PAUSES_S = (2.0, 8.0, 30.0)
TRANSIENT, PERMANENT = "image_pull_transient", "image_pull_permanent"


class Trouble(NamedTuple):
    """What a registry's or an engine's words mean. again: it may pass by itself, here and soon; permanent: it is the
    same on every node."""

    meaning: str
    code: str = TRANSIENT
    again: bool = True
    permanent: bool = False


_LOGIN = "log in on the nodes (`docker login` as the agent's user), and see that this user may read it"
_MEANINGS: tuple[tuple[tuple[str, ...], Trouble], ...] = (
    (("no space left",), Trouble("the engine's disk is full; free room on this host", "disk_full", again=False)),
    (
        ("no such host", "server misbehaving", "name resolution"),
        Trouble("this host cannot resolve the registry's name; see its spelling and the host's DNS"),
    ),
    (("toomanyrequests", "too many requests", "429"), Trouble("the registry limits how often it is asked")),
    (
        ("x509:", "certificate", "http response to https"),
        Trouble("this host's engine does not trust the registry; give it its certificate", PERMANENT, False, True),
    ),
    (
        ("access denied", "unauthorized", "authentication required", "no basic auth", "denied", "forbidden"),
        Trouble(f"the registry wants a login, or has no such image; {_LOGIN}", PERMANENT, False, True),
    ),
    (
        ("no matching manifest", "unsupported", "does not match the specified platform"),
        Trouble("it is not made for this kind of machine", PERMANENT, False, True),
    ),
    (
        ("manifest unknown", "name unknown", "not found", "does not exist"),
        Trouble("the registry has no such image or tag; correct task.image or push it", PERMANENT, False, True),
    ),
    (("invalid reference",), Trouble("no image can have this name; correct task.image", PERMANENT, False, True)),
    (("connection refused", "no route to host", "unreachable"), Trouble("the registry is not there")),
    (("timeout", "timed out", "deadline exceeded", "did not answer"), Trouble("the registry does not answer in time")),
)
_UNKNOWN = Trouble("it may pass by itself")


def trouble_of(error: str) -> Trouble:
    low = error.lower()
    return next((meant for signs, meant in _MEANINGS if any(sign in low for sign in signs)), _UNKNOWN)


class Stopped(Exception):
    """Nobody wants the image any more."""


class Pull:
    """One pull. say: takes the state text, on the loop. stop(): ends it; a result that comes later is dropped."""

    def __init__(self, engine: Engine, image: str, say: Callable[[str], None]) -> None:
        self._engine, self._image, self._say = engine, image, say
        self._unwanted = threading.Event()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._unwanted.set()
        self._stopped.set()

    async def run(self, policy: str) -> None:
        """policy: missing, always, never. Raises ImageUnavailable, Stopped, EngineSilent."""
        present = await self._present()
        if policy == "never" and not present:
            raise ImageUnavailable(
                f"image {self._image} is not on this host and pull is `never`: load it here (docker load, docker pull) "
                "or allow the pull"
            )
        if policy == "never" or (present and policy == "missing"):
            return
        for pause_s in (*_PAUSES_S, None):
            error = await self._try()
            if error is None:
                return
            trouble = trouble_of(error)
            text = f"image {self._image} cannot be pulled: {trouble.meaning} ({error})"
            if not trouble.again or pause_s is None:
                raise ImageUnavailable(text, trouble.code, trouble.permanent)
            self._say(f"{text}; trying again in {pause_s:.0f} s")
            await self._or_stopped(asyncio.sleep(pause_s))

    async def _present(self) -> bool:
        try:
            await self._engine.call(LOOK_S, lambda api: api.inspect_image(self._image))
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise ImageUnavailable(f"image {self._image}: {error}", TRANSIENT, permanent=False) from error
        return True

    async def _try(self) -> str | None:
        """The error, or None."""
        self._say(f"pulling image {self._image}")
        loop = asyncio.get_running_loop()
        # Beside the loop: it may be a program that is asked.
        login = await asyncio.to_thread(registry_login, split_reference(self._image)[0])

        def pull(api: docker.APIClient) -> str | None:
            progress = Progress()
            said = -1
            for event in _events(api, self._image, login):
                if self._unwanted.is_set():
                    return "stopped"
                if "error" in event:
                    return str(event["error"])
                progress.take(event)
                if progress.percent != said:
                    said = progress.percent
                    loop.call_soon_threadsafe(self._say, f"pulling image {self._image}, {said} %")
            return None

        try:
            error: str | None = await self._or_stopped(self._engine.call(PULL_S, pull, read_s=PULL_SILENT_S))
            return error
        except (EngineRefused, EngineSilent) as error:
            return str(error)

    async def _or_stopped(self, work: Any) -> Any:
        working = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                raise Stopped
            return working.result()
        finally:
            stopped.cancel()
            working.cancel()


def _events(api: docker.APIClient, image: str, login: dict[str, str] | None) -> Iterator[dict[str, Any]]:
    name, tag = split_reference(image)
    yield from api.pull(name, tag=tag, stream=True, decode=True, auth_config=login)


def split_reference(image: str) -> tuple[str, str]:
    """(name, tag or digest); without one `latest`, since no tag at all would mean every tag there is."""
    name, at, digest = image.partition("@")
    if at:
        return name, digest
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "latest")


class Progress:
    """Bytes of all layers that are known so far."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}

    @property
    def percent(self) -> int:
        total = sum(total for _, total in self._layers.values())
        return 100 * sum(done for done, _ in self._layers.values()) // total if total else 0

    def take(self, event: dict[str, Any]) -> None:
        detail = event.get("progressDetail") or {}
        layer, total = str(event.get("id", "")), int(detail.get("total") or 0)
        if event.get("status") == "Downloading" and total > 0:
            self._layers[layer] = (min(int(detail.get("current") or 0), total), total)
        elif event.get("status") in ("Download complete", "Pull complete", "Already exists") and layer in self._layers:
            self._layers[layer] = (self._layers[layer][1],) * 2

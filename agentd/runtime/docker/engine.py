"""A Docker engine asked from threads of our own, each call with its deadline: a hung engine holds up nobody.

EngineSilent: it does not answer, now; asked again later it may. EngineRefused: it answered, and the answer is no.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import docker
import docker.errors
import requests

from agentd.deadline_thread import within

T = TypeVar("T")

# Threads that a hung engine may hold. More than calls that are ever wanted at once on a healthy one.
THREADS_MAX = 16
PING_S, LOOK_S, CREATE_S, REMOVE_S = 5.0, 15.0, 120.0, 120.0


class EngineTrouble(Exception):
    """Anything that keeps the engine from doing what was asked."""


class EngineSilent(EngineTrouble):
    """No answer: nothing is known of what became of the call."""


class EngineRefused(EngineTrouble):
    """status: HTTP status of the refusal."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Client(docker.APIClient):  # type: ignore[misc]  # the library has no types
    """Without the config.json of this user: a damaged one would make every call fail, and only a pull needs it."""

    @property
    def _general_configs(self) -> dict[str, dict[str, str]]:
        return {"auths": {}}

    @_general_configs.setter
    def _general_configs(self, _: object) -> None:
        pass


class Engine:
    """socket_path: the engine's unix socket."""

    def __init__(self, socket_path: str) -> None:
        self.socket = socket_path
        self._version = "auto"
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._silent_since: float | None = None
        self.said = ""

    @property
    def silent_text(self) -> str:
        """For people; empty while the engine answers."""
        return f"Docker not answering for {self.silent_s:.0f} s" if self._silent_since is not None else ""

    async def call(self, deadline_s: float, ask: Callable[[docker.APIClient], T], read_s: float | None = None) -> T:
        """read_s: how long the engine may say nothing within the call, where that is less than the deadline."""
        if self._busy >= THREADS_MAX:
            raise EngineSilent(f"{self._busy} calls to Docker at {self.socket} are waiting for an answer already")
        asked = time.monotonic()
        self._busy += 1
        self._idle.clear()
        try:
            value = await within(
                deadline_s + 1.0, lambda: self._ask(read_s or deadline_s, ask), "docker-call", self._answered
            )
        except TimeoutError as error:
            self._note_silence(asked)
            raise EngineSilent(f"Docker at {self.socket} did not answer within {deadline_s:.0f} s") from error
        except EngineSilent:
            self._note_silence(asked)
            raise
        except EngineRefused:
            self._silent_since = None
            raise
        self._silent_since = None
        return value

    async def rest(self, most_s: float) -> None:
        """Until no call is under way."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._idle.wait()

    async def ping(self) -> bool:
        """Where it does not answer, `said` is why."""
        try:
            await self.call(PING_S, lambda api: api.ping())
        except EngineTrouble as error:
            self.said = str(error)
            return False
        return True

    @property
    def silent_s(self) -> float:
        """How long it has not answered; 0 while it does."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    def _note_silence(self, since: float) -> None:
        if self._silent_since is None:
            self._silent_since = since

    def _answered(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    def _ask(self, read_s: float, ask: Callable[[docker.APIClient], T]) -> T:
        try:
            # First by ourselves: the client leaves a socket open that it could not connect.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(read_s)
                probe.connect(self.socket)
            client = _Client(base_url=f"unix://{self.socket}", version=self._version, timeout=read_s)
            try:
                self._version = client.api_version
                return ask(client)
            finally:
                client.close()
        except docker.errors.APIError as error:
            # A newer engine may have come in the place of the one that the version was settled with.
            self._version = "auto"
            raise EngineRefused(error.status_code or 0, str(error.explanation or error)) from error
        except (docker.errors.DockerException, requests.RequestException, OSError, ValueError) as error:
            self._version = "auto"
            raise EngineSilent(f"Docker at {self.socket} does not answer: {_plain(error)}") from error


def _plain(error: BaseException) -> str:
    """The innermost reason: the layers above only repeat it."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error) or type(error).__name__

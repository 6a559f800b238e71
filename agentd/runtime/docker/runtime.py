"""Tasks as containers of a Docker engine, each under a shim that outlives the agent and needs no engine to end it.

The agent gets the image and makes the container; the shim starts it, reads its output, stops and fences it. What is
written about a task lies in its directory as with processes, so everything after the making is `ProcessRuntime`.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agentd.runtime.base import ContainerOptions, ImageUnavailable, Observed, RuntimeRefused, TaskId, TaskSpec
from agentd.runtime.docker.engine import (
    CREATE_S,
    LOOK_S,
    REMOVE_S,
    Engine,
    EngineRefused,
    EngineSilent,
    EngineTrouble,
)
from agentd.runtime.docker.exec import exec_in_container
from agentd.runtime.docker.image import PULL_S, TRANSIENT, Pull, Stopped, split_reference
from agentd.runtime.docker.plan import (
    LABEL,
    Owner,
    container_body,
    container_name,
    label_filter,
    over_image,
    task_labels,
)
from agentd.runtime.docker.propagation import mount_propagation
from agentd.runtime.exec_session import ExecSession
from agentd.runtime.process import ProcessRuntime, Task
from agentd.runtime.task_dir import task_path
from agentd.shim.host import read_json, write_json
from agentd.shim.record import CONTAINER, LOCK, PID, SPEC, STOP
from schemas.exec_frames import ExecRequest

log = logging.getLogger(__name__)

_WATCH_S, _SWEEP_S = 5.0, 60.0
# An engine that is restarted is back sooner; one that is silent for longer gets no more tasks.
_DOWN_AFTER_S = 10.0
# Before the mesh gives up a start that it knows nothing of (START_DEADLINE_MS), so that the reason is told.
_MAKE_S = 45.0
_IMAGE_WAIT_S = 30.0
_RETRY_S = (0.5, 1.0, 2.0, 5.0)
_CONFLICT = 409
# What is asked of the engine when the agent ends may leave a container behind if its answer is not awaited.
_CLOSE_S = 3.0


class DockerRuntime(ProcessRuntime):
    """root: D/tasks. socket: the engine's unix socket. source_refusal: why a directory is not shown to a task, by where
    it leads now, or None; it may block."""

    name = "docker"
    host_paths = False
    # The engine may take seconds to hand over the last output and the exit code.
    shim_late_s = 20.0

    def __init__(
        self,
        root: Path,
        lease_path: Path,
        owner: Owner,
        socket: str = "/var/run/docker.sock",
        source_refusal: Callable[[str], str | None] = lambda source: None,
    ) -> None:
        super().__init__(root, lease_path)
        self.engine = Engine(socket)
        self._owner = owner
        self._source_refusal = source_refusal
        self._texts: dict[TaskId, str] = {}
        self._pulls: dict[TaskId, Pull] = {}
        self._making: set[TaskId] = set()
        self._trouble = ""

    async def open(self) -> None:
        await super().open()
        if not await self.engine.ping():
            self._trouble = self.engine.said
        self._chore(self._watch())

    async def close(self) -> None:
        await self.engine.rest(_CLOSE_S)
        await super().close()

    @property
    def trouble(self) -> str:  # type: ignore[override]  # that of processes is never any
        return self._trouble

    async def get_image(self, options: ContainerOptions, say: Callable[[str], None]) -> None:
        pull = Pull(self.engine, options.image, say)
        try:
            async with asyncio.timeout(PULL_S):
                await self._patiently(pull, options.pull, say)
        except TimeoutError as error:
            text = f"image {options.image} was not here after {PULL_S / 3600:.0f} h of pulling"
            raise ImageUnavailable(text, TRANSIENT, permanent=False) from error
        finally:
            # Of a claim that is dropped: the engine's answer to what nobody wants any more is not waited for.
            pull.stop()

    async def _patiently(self, pull: Pull, policy: str, say: Callable[[str], None]) -> None:
        for pause_s in _pauses():
            try:
                return await pull.run(policy)
            except EngineSilent as error:
                if self.engine.silent_s > _IMAGE_WAIT_S:
                    raise ImageUnavailable(f"{self.engine.silent_text}: {error}", "engine_down", False) from error
                say(str(error))
            await asyncio.sleep(pause_s)

    async def start(self, spec: TaskSpec) -> Observed:
        if spec.id not in self._tasks:
            if spec.container is None or not spec.container.image:
                raise RuntimeRefused(
                    "the docker runtime needs task.image; name one or use nodes of the process runtime"
                )
            if self.engine.silent_text:
                log.warning("%s", self.engine.silent_text)
        return await super().start(spec)

    async def stop(self, task_id: TaskId, grace_s: float, why: str) -> None:
        await super().stop(task_id, grace_s, why)
        task = self._tasks.get(task_id)
        if task is not None and task_id in self._making and task.seen.state != "exited":
            # Nothing of it runs: its end waits for no engine, and what the engine still makes of it is thrown away.
            if pull := self._pulls.get(task_id):
                pull.stop()
            self._end_unstarted(task, f"not started: {why}")

    async def list(self) -> Sequence[Observed]:
        seen = await super().list()
        return [replace(one, text=self._text(one)) if one.state != "exited" else one for one in seen]

    async def remove(self, task_id: TaskId) -> None:
        known = task_id in self._tasks
        await super().remove(task_id)
        if known:
            self._texts.pop(task_id, None)
            self._chore(self._discard(task_id))

    async def exec(self, task_id: TaskId, request: ExecRequest) -> ExecSession:
        _, path = self._running_record(task_id)
        container = (read_json(str(path / CONTAINER)) or {}).get("id")
        if not container:
            raise RuntimeRefused(f"{path / CONTAINER} does not name the container")
        return await exec_in_container(self.engine, str(container), request)

    def _text(self, seen: Observed) -> str:
        waits = seen.state == "starting" or seen.stopping
        parts = (
            self._texts.get(seen.id, "") if seen.state == "starting" else "",
            self.engine.silent_text if waits else "",
        )
        return "; ".join(part for part in parts if part)

    def _also_written(self, spec: TaskSpec, path: Path) -> dict[str, Any]:
        """Whole, so that an agent that comes after this one can go on where nothing was started."""
        options = spec.container
        if options is None:
            return {}
        body = container_body(spec, options, self._owner, str(path), shm_default(), mount_propagation)
        own = [mount.source for mount in spec.mounts if mount.own]
        return {"container": {"name": container_name(spec), "pull": options.pull, "body": body, "own": own}}

    def _launch(self, task: Task) -> None:
        self._making.add(task.id)
        self._chore(self._make(task))

    def _adopt(self, task: Task) -> None:
        # From container.json on a shim may be on its way, also one that has not come to its lock yet.
        if any((task.path / name).exists() for name in (CONTAINER, LOCK, PID)):
            super()._adopt(task)
        else:
            self._launch(task)

    async def _make(self, task: Task) -> None:
        plan = (read_json(str(task.path / SPEC)) or {}).get("container")
        try:
            if not isinstance(plan, dict):
                raise ImageUnavailable(f"{SPEC} in {task.path} does not say which container to make")
            async with asyncio.timeout(_MAKE_S):
                await self._get_image(task, plan)
                if task.seen.state == "exited":
                    return
                container = await self._create(task, plan, await self._body(plan))
                image = await self._image_of(task, container, plan["body"]["Image"])
            if (task.path / STOP).exists():
                return self._end_unstarted(task, "not started")
            logged = plan["body"]["HostConfig"]["LogConfig"]["Config"]
            order = {
                "id": container,
                "image": image,
                "socket": self.engine.socket,
                "log_files": int(logged["max-file"]),
                "log_file_bytes": int(logged["max-size"]),
            }
            write_json(str(task.path / CONTAINER), order)
            super()._launch(task)
        except Stopped:
            return
        except TimeoutError:
            # The host's doing, so the group goes on elsewhere; what the engine makes of it after all is thrown away.
            said = f": {self._text(task.seen)}" if self._text(task.seen) else ""
            self._end_unstarted(task, f"no container was made within {_MAKE_S:.0f} s{said}")
        except ImageUnavailable as error:
            self._end_unstarted(task, str(error), "start_failed" if error.permanent else "lost", error.code)
        except EngineRefused as error:
            self._end_unstarted(task, f"Docker refused the container: {error}", "start_failed", "container_create")
        except OSError as error:
            self._end_unstarted(task, f"the task's directory cannot be written: {error.strerror}", "start_failed")
        finally:
            self._making.discard(task.id)
            self._pulls.pop(task.id, None)
            if task.seen.state == "exited" and task.id in self._tasks:
                self._chore(self._discard(task.id))

    async def _get_image(self, task: Task, plan: dict[str, Any]) -> None:
        def say(text: str) -> None:
            self._say(task, text)

        pull = self._pulls[task.id] = Pull(self.engine, plan["body"]["Image"], say)
        try:
            await self._patiently(pull, str(plan["pull"]), say)
        finally:
            pull.stop()

    async def _image_of(self, task: Task, container: str, reference: str) -> dict[str, str | None]:
        """What the container was made of, whatever its tag says by now. digest: of the registry, where it is known."""

        def ask(api: Any) -> dict[str, str | None]:
            image = str(api.inspect_container(container)["Image"])
            name = split_reference(reference)[0]
            named = [one.rpartition("@") for one in api.inspect_image(image).get("RepoDigests") or ()]
            digests = [digest for repo, _, digest in named if repo == name] or [digest for _, _, digest in named]
            return {"id": image, "digest": digests[0] if digests else None}

        for pause_s in _pauses():
            try:
                return await self.engine.call(LOOK_S, ask)
            except EngineSilent as error:
                self._say(task, str(error))
            await asyncio.sleep(pause_s)
        raise AssertionError  # the pauses have no end

    async def _body(self, plan: dict[str, Any]) -> dict[str, Any]:
        """As it can be said only now: without what the image's environment must not say, and with each mount by where
        it leads, since a link may have been turned since the claim. Raises ImageUnavailable."""
        body: dict[str, Any] = plan["body"]
        # What the agent made for this very task lies in its own directory. Absent: of an agent that made nothing.
        judged = [mount for mount in body["HostConfig"]["Mounts"] if mount["Source"] not in plan.get("own", ())]
        for mount in judged:
            if why := await asyncio.to_thread(self._source_refusal, mount["Source"]):
                raise ImageUnavailable(why, "container_create")
        mounts = [
            {**mount, "Source": await asyncio.to_thread(os.path.realpath, mount["Source"])}
            for mount in body["HostConfig"]["Mounts"]
        ]
        for pause_s in _pauses():
            try:
                shown = await self.engine.call(LOOK_S, lambda api: api.inspect_image(body["Image"]))
                break
            except EngineSilent:
                await asyncio.sleep(pause_s)
        image_env = (shown.get("Config") or {}).get("Env") or ()
        return over_image({**body, "HostConfig": {**body["HostConfig"], "Mounts": mounts}}, image_env)

    async def _create(self, task: Task, plan: dict[str, Any], body: dict[str, Any]) -> str:
        """The container's id. A silent engine may have made one all the same: the next try finds it by its labels."""
        name = str(plan["name"])
        for pause_s in _pauses():
            if task.seen.state == "exited":
                raise Stopped
            self._say(task, "making the container")
            try:
                await self._clear_unstarted(task.id)
                return await self.engine.call(CREATE_S, partial(_make_container, body=body, name=name))
            except EngineRefused as error:
                if error.status != _CONFLICT:
                    raise
                # Whoever has the name, it is none of ours; theirs stays.
                name = f"{plan['name']}-{secrets.token_hex(3)}"
            except EngineSilent as error:
                self._say(task, str(error))
                await asyncio.sleep(pause_s)
        raise AssertionError  # the pauses have no end

    async def _clear_unstarted(self, task_id: TaskId) -> None:
        for one in await self._find(task_labels(self._owner, *_words(task_id))):
            await self._delete(str(one["Id"]))

    async def _find(self, labels: dict[str, str]) -> Sequence[dict[str, Any]]:
        def ask(api: Any) -> Sequence[dict[str, Any]]:
            found: Sequence[dict[str, Any]] = api.containers(all=True, filters=label_filter(labels))
            return found

        return await self.engine.call(LOOK_S, ask)

    async def _delete(self, container: str) -> None:
        try:
            await self.engine.call(REMOVE_S, lambda api: api.remove_container(container, v=True, force=True))
        except EngineRefused as error:
            if error.status not in (404, _CONFLICT):
                raise

    async def _discard(self, task_id: TaskId) -> None:
        for pause_s in _pauses():
            try:
                return await self._clear_unstarted(task_id)
            except EngineTrouble as error:
                log.warning("the container of %s is not removed yet: %s", task_id, error)
            await asyncio.sleep(pause_s)

    async def discard_all(self) -> None:
        """Every container of this owner, for who takes a host out of a mesh. Raises EngineTrouble."""
        for one in await self._find(self._owner.labels):
            await self._delete(str(one["Id"]))

    async def _watch(self) -> None:
        """Knows whether the engine answers; throws away what has lost its task when it begins to, and now and then:
        what was asked of an engine that hung may be made long after nobody waits for it."""
        answered, warned, swept_at = False, False, 0.0
        while True:
            before, answered = answered, await self.engine.ping()
            self._note(answered)
            for task in self._tasks.values():
                if task.seen.state == "running":
                    self._see(task)  # nothing else tells what was lost of its output
            if answered and (not before or time.monotonic() - swept_at > _SWEEP_S):
                warned = warned or await self._warn_of_no_live_restore()
                answered, swept_at = await self._sweep_containers(), time.monotonic()
            await asyncio.sleep(_WATCH_S if answered else 1.0)

    def _note(self, answered: bool) -> None:
        """The words stay what they were while it is down: each change of them goes through the log of the mesh."""
        if answered and self._trouble:
            self._trouble = ""
            log.info("Docker at %s answers", self.engine.socket)
        elif not answered and not self._trouble and self.engine.silent_s >= _DOWN_AFTER_S:
            self._trouble = self.engine.said
            log.warning("no task is taken meanwhile: %s", self._trouble)

    async def _warn_of_no_live_restore(self) -> bool:
        """Whether it is known."""
        try:
            info = await self.engine.call(LOOK_S, lambda api: api.info())
        except EngineTrouble:
            return False
        if not info.get("LiveRestoreEnabled"):
            log.warning(
                "Docker at %s ends every container when it is restarted, and with them the groups here; "
                'set "live-restore": true in its daemon.json',
                self.engine.socket,
            )
        for warning in info.get("Warnings") or ():
            # An engine that listens on the network without keys gives the host to whoever reaches it.
            if "API is accessible" in str(warning):
                log.warning("Docker at %s: %s", self.engine.socket, warning)
        return True

    async def _sweep_containers(self) -> bool:
        try:
            for one in await self._find(self._owner.labels):
                labels = one.get("Labels") or {}
                task_id = _task_of(labels)
                forgotten = task_id is not None and not (task_path(self._root, task_id) / SPEC).exists()
                # A running one is left to its shim, or to whoever made it with our labels.
                if forgotten and one.get("State") in ("created", "exited", "dead"):
                    await self._delete(str(one["Id"]))
        except EngineTrouble as error:
            log.warning("containers of ended tasks are not removed yet: %s", error)
            return False
        return True

    def _say(self, task: Task, text: str) -> None:
        if self._texts.get(task.id) != text:
            self._texts[task.id] = text
            log.info("%s: %s", task.id, text)


def shm_default() -> int:
    """Half of the memory: data loaders hand batches over in it, and what is not used costs nothing."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _pauses() -> Any:
    """Without an end, slower and slower."""
    yield from _RETRY_S
    while True:
        yield _RETRY_S[-1]


def _words(task_id: TaskId) -> tuple[str, int, int]:
    return task_id.group_id, task_id.attempt, task_id.rank


def _task_of(labels: dict[str, str]) -> TaskId | None:
    try:
        return TaskId(labels[LABEL + "group"], int(labels[LABEL + "attempt"]), int(labels[LABEL + "rank"]))
    except (KeyError, ValueError):
        return None


def _make_container(api: Any, body: dict[str, Any], name: str) -> str:
    return str(api.create_container_from_config(body, name)["Id"])

"""One claim: the steps in order, each under its own deadline, and what is held once all have passed."""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentd.claims.checkpoint_probe import Seen, look, look_at
from agentd.claims.port_hold import hold_port
from agentd.claims.reach import Door, MeetingPoint, Reach, reach
from agentd.claims.task_paths import (
    check_base,
    check_dataset_path,
    check_free_space,
    check_mounts,
    check_parent,
    linked_to,
    prepare_checkpoint_path,
)
from agentd.core.claim import (
    CHECKPOINT_FREE_BYTES,
    DEADLINE_S,
    TASK_DIR_FREE_BYTES,
    ClaimRefused,
    StepName,
    check_cards,
    too_slow,
)
from agentd.deadline_thread import within
from agentd.runtime.base import ContainerOptions, ImageUnavailable
from schemas.lexemes import sayable

log = logging.getLogger(__name__)
_THREAD = "claim-check"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What the order asks of this host. cards: uuids; port: for the rendezvous, 0 where this rank opens none; ports:
    those it declared; mounts: sources. refused: what is wrong with its document, whoever accepted it. meeting: where
    its ranks meet, None where nobody tries it. parent: directory and checkpoint of the group that it goes on from.
    resume_shown_from: source of the mount by which a container sees what it is to resume from."""

    name: str
    cards: tuple[str, ...]
    cards_wanted: int
    port: int
    checkpoint_path: str | None
    dataset_path: str | None
    mounts: tuple[str, ...] = ()
    container: ContainerOptions | None = None
    framework: str | None = None
    refused: str = ""
    ports: tuple[int, ...] = ()
    meeting: MeetingPoint | None = None
    parent: tuple[str, str] | None = None
    base_checkpoint: str | None = None
    resume_from_checkpoint: str | None = None
    resume_shown_from: str | None = None


@dataclass(slots=True)
class HeldClaim:
    """resume: the checkpoint to begin from that this host sees, `{path, step, source}` or None. sees: what is
    compared with the other hosts', None where nobody looked. checkpoint_real: where checkpoint_path leads, None where
    no link is in it. door: of rank 0, where the others come to try it."""

    resume: dict[str, Any] | None = None
    sees: dict[str, Any] | None = None
    checkpoint_real: str | None = None
    port_sockets: list[socket.socket] = field(default_factory=list)
    door: Door | None = None
    reach: Reach | None = None

    def release(self) -> None:
        if self.door is not None:
            self.door.close()
            self.door = None
        while self.port_sockets:
            self.port_sockets.pop().close()


class Claimer:
    """get_image: of the runtime. private: files and directories of the agent and its engine, which no task is given."""

    def __init__(
        self,
        cards: Sequence[str],
        roots: Sequence[str],
        tasks_dir: Path,
        host: str,
        get_image: Callable[[ContainerOptions, Callable[[str], None]], Awaitable[None]],
        private: Sequence[str] = (),
    ) -> None:
        self._cards, self._roots, self._tasks_dir, self._host = tuple(cards), tuple(roots), tasks_dir, host
        self._private = tuple(private)
        self._get_image = get_image

    async def claim(
        self,
        request: ClaimRequest,
        in_use: Mapping[str, str],
        say: Callable[[str], None] = log.info,
        rank_0_claimed: Callable[[], Awaitable[None]] | None = None,
    ) -> HeldClaim | ClaimRefused:
        """Holds nothing when refused or cancelled. say: takes how far a long step is. rank_0_claimed: comes back once
        rank 0 holds its port; the deadline of all claims ends the wait."""
        held = HeldClaim()
        try:
            refusal = await self._steps(request, in_use, held, say)
            if refusal is None and request.meeting is not None:
                # Last, because it waits for another host.
                if request.meeting.rank and rank_0_claimed is not None:
                    await rank_0_claimed()
                held.reach = await reach(request.meeting)
        except BaseException:
            held.release()
            raise
        if refusal is None:
            return held
        held.release()
        # It may name what a link leads to, in any bytes.
        refusal = replace(refusal, text=sayable(refusal.text))
        log.warning("claim of %s refused: %s", request.name, refusal.text, extra={"code": refusal.code})
        return refusal

    async def _steps(
        self, request: ClaimRequest, in_use: Mapping[str, str], held: HeldClaim, say: Callable[[str], None]
    ) -> ClaimRefused | None:
        if request.refused:
            return ClaimRefused("document_refused", f"this host does not run it: {request.refused}", permanent=True)
        if refusal := check_cards(request.cards, request.cards_wanted, self._cards, in_use):
            return refusal
        checks: list[tuple[StepName, partial[ClaimRefused | None]]] = []
        if request.checkpoint_path is not None:
            checks.append(
                (
                    "checkpoint_path",
                    partial(prepare_checkpoint_path, request.checkpoint_path, self._roots, self._private),
                )
            )
        if request.dataset_path is not None:
            checks.append(
                ("dataset_path", partial(check_dataset_path, request.dataset_path, self._roots, self._private))
            )
        if request.base_checkpoint is not None:
            checks.append(("base_checkpoint", partial(check_base, request.base_checkpoint, self._roots, self._private)))
        if request.mounts:
            checks.append(("mounts", partial(check_mounts, request.mounts, self._roots, self._private)))
        checks.append(("disk", partial(self._check_disk, request.checkpoint_path)))
        for name, check in checks:
            if refusal := await _step(name, check):
                return refusal
        if request.checkpoint_path is not None:
            try:
                find = partial(linked_to, request.checkpoint_path)
                held.checkpoint_real = await within(DEADLINE_S["checkpoint_path"], find, _THREAD)
            except TimeoutError:
                return too_slow("checkpoint_path")
        # Behind what is told at once, and before what would be old after hours of pulling.
        if request.container is not None:
            try:
                await self._get_image(request.container, say)
            except ImageUnavailable as error:
                return ClaimRefused(error.code, str(error), error.permanent)
        if refusal := self._take_ports(request, held):
            return refusal
        if refusal := await self._look(request, held):
            return refusal
        if request.parent is not None and held.resume is None:
            check = partial(check_parent, *request.parent, self._roots, self._private)
            return await _step("parent_checkpoint", check)
        return None

    async def _look(self, request: ClaimRequest, held: HeldClaim) -> ClaimRefused | None:
        """At what it is to resume from: the path that it names, else the newest one in its own directory."""
        look_there: Callable[[], Seen | ClaimRefused]
        step: StepName = "checkpoint_probe"
        if (path := request.resume_from_checkpoint) is not None:
            step, shown_from = "resume_from_checkpoint", request.resume_shown_from
            look_there = partial(look_at, path, request.framework, self._roots, self._private, shown_from)
        elif request.checkpoint_path is not None:
            look_there = partial(look, request.checkpoint_path, request.framework, self._roots)
        else:
            return None
        try:
            seen = await within(DEADLINE_S[step], look_there, _THREAD)
        except TimeoutError:
            return too_slow(step)
        except OSError as error:
            return ClaimRefused(f"{step}_failed", f"checkpoints cannot be looked at: {error}")
        if isinstance(seen, ClaimRefused):
            return seen
        held.resume, held.sees = seen.resume, seen.sees
        return None

    def _take_ports(self, request: ClaimRequest, held: HeldClaim) -> ClaimRefused | None:
        ports = [(port, "this task") for port in request.ports]
        if request.meeting is not None and not request.meeting.rank:
            door = Door.open(request.meeting, self._host)
            if isinstance(door, ClaimRefused):
                return door
            held.door = door
        elif request.port:
            ports.insert(0, (request.port, "rank 0's rendezvous"))
        for port, use in ports:
            taken = hold_port(self._host, port, use)
            if isinstance(taken, ClaimRefused):
                return taken
            held.port_sockets.append(taken)
        return None

    def _check_disk(self, checkpoint_path: str | None) -> ClaimRefused | None:
        refusal = check_free_space("the agent's data directory", str(self._tasks_dir), TASK_DIR_FREE_BYTES, True)
        if refusal is None and checkpoint_path is not None:
            refusal = check_free_space("checkpoint_path", checkpoint_path, CHECKPOINT_FREE_BYTES)
        return refusal


async def _step(name: StepName, check: "partial[ClaimRefused | None]") -> ClaimRefused | None:
    try:
        return await within(DEADLINE_S[name], check, _THREAD)
    except TimeoutError:
        return too_slow(name)
    except OSError as error:
        what = name.replace("_", " ")
        return ClaimRefused(
            f"{name}_failed", f"the check of {what} failed: {error.strerror or os.strerror(error.errno or 0)}"
        )

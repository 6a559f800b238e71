"""The shell around reconcile: looks at rows, runtime and claims, carries out what the core says, and looks again."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agentd.claims.claimer import Claimer, ClaimRequest, HeldClaim
from agentd.core.claim import ClaimRefused, sight_refusal
from agentd.core.reconcile import Action, Claim, DropClaim, MakeClaim, Remove, Report, Start, Stop, reconcile
from agentd.node_feed import NodeFeed, Row
from agentd.reporter import Reporter
from agentd.runtime.base import Observed, Runtime, RuntimeRefused, TaskId, TaskSpec
from schemas.lexemes import sayable
from schemas.limits import TEXT_MAX
from schemas.states import BOUND

log = logging.getLogger(__name__)
# Every change wakes a pass; this only heals what no event told of.
_LOOK_AGAIN_S = 5.0
_START_DEADLINE_S = 20.0
_PROGRESS_EVERY_S = 60.0


class _Progress:
    """How far a claim is, in the last words but not more often than it may go through the log of the mesh."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name, self._wake = name, wake
        self._newest = self._told = ""
        self._told_at = 0.0

    def say(self, text: str) -> None:
        log.info("%s: %s", self._name, text)
        first, self._newest = not self._newest, text
        if first:
            self._wake()

    @property
    def text(self) -> str:
        if self._newest != self._told and (not self._told or time.monotonic() - self._told_at >= _PROGRESS_EVERY_S):
            self._told, self._told_at = self._newest, time.monotonic()
        return self._told


class _LocalClaim:
    """A claim being made, held, or refused, with the task that works on it."""

    def __init__(
        self,
        token: int,
        cards: tuple[str, ...],
        work: "asyncio.Task[HeldClaim | ClaimRefused]",
        progress: _Progress | None = None,
    ) -> None:
        self.token, self.cards, self.work, self.progress = token, cards, work, progress

    @property
    def result(self) -> HeldClaim | ClaimRefused | None:
        if not self.work.done() or self.work.cancelled():
            return None
        if (error := self.work.exception()) is not None:
            return ClaimRefused("claim_error", f"the claim failed in this agent: {error!r}")
        return self.work.result()

    @property
    def state(self) -> str:
        match self.result:
            case None:
                return "working"
            case HeldClaim():
                return "held"
            case _:
                return "failed"

    def drop(self) -> None:
        if isinstance(held := self.result, HeldClaim):
            held.release()
        else:
            self.work.cancel()


class TaskHost:
    """`pass_done` is called after each pass with what the runtime shows."""

    def __init__(
        self,
        feed: NodeFeed,
        runtime: Runtime,
        claimer: Claimer,
        reporter: Reporter,
        lease_granted: Callable[[], bool],
        claim_request: Callable[[Row, Row], ClaimRequest],
        task_spec: Callable[[Row, Row], TaskSpec],
        pass_done: Callable[[Sequence[Observed]], None],
        before_start: Callable[[Row, Row], Awaitable[None]] | None = None,
    ) -> None:
        self._feed, self._runtime, self._claimer, self._reporter = feed, runtime, claimer, reporter
        self._lease_granted, self._claim_request, self._task_spec = lease_granted, claim_request, task_spec
        self._pass_done, self._before_start = pass_done, before_start
        self._claims: dict[TaskId, _LocalClaim] = {}
        self._wake = asyncio.Event()
        self._groups: frozenset[str] = frozenset()

    @property
    def groups(self) -> frozenset[str]:
        """Of which something is here that the runtime knows, or a claim."""
        return self._groups | {key.group_id for key in self._claims}

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Only after the feed has reached the index of this agent's registration: before, an order may be missing."""
        watch = asyncio.create_task(self._watch_runtime())
        try:
            while True:
                self._wake.clear()
                try:
                    await self._pass()
                except Exception:
                    log.exception("reconcile pass failed; trying again")
                try:
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            watch.cancel()
            for claim in self._claims.values():
                claim.drop()

    async def _watch_runtime(self) -> None:
        async for _ in self._runtime.changes():
            self._wake.set()

    async def _pass(self) -> None:
        seen = await self._runtime.list()
        self._groups = frozenset(item.id.group_id for item in seen)
        index = self._feed.index
        claims = {key: Claim(claim.token, claim.state) for key, claim in self._claims.items()}
        actions = reconcile(self._feed.orders(), seen, claims, self._lease_granted())
        by_id = {item.id: item for item in seen}
        reports = [(a.key, self._report_fields(a, by_id.get(a.key))) for a in actions if isinstance(a, Report)]
        self._reporter.offer([*reports, *self._progress_reports()], index)
        changing = [action for action in actions if not isinstance(action, Report)]
        for action in changing:
            if not isinstance(action, Start):
                await self._try(action, by_id)
        await asyncio.gather(*(self._start(action) for action in changing if isinstance(action, Start)))
        if any(isinstance(action, Start | Remove | DropClaim) for action in changing):
            self._wake.set()
        self._pass_done(seen)

    def _progress_reports(self) -> Iterator[tuple[TaskId, dict[str, Any]]]:
        for key, claim in self._claims.items():
            row = self._feed.tasks.get(key)
            if row is None or row["status"] != BOUND or claim.state != "working" or claim.progress is None:
                continue
            if (text := claim.progress.text) and row["reason"] != text:
                ref = {"group_id": key.group_id, "attempt": key.attempt, "rank": key.rank, "token": claim.token}
                yield key, {**ref, "seq": 0, "kind": "progress", "text": _said(text)}

    async def _try(self, action: Action, seen: Mapping[TaskId, Observed]) -> None:
        """A task that cannot be handled must not take its neighbours' supervision away."""
        try:
            await self._carry_out(action, seen)
        except Exception:
            log.exception("%s failed; it is tried again", action)

    async def _carry_out(self, action: Action, seen: Mapping[TaskId, Observed]) -> None:
        key = action.key
        match action:
            case MakeClaim():
                self._make_claim(key, action.token, seen)
            case DropClaim():
                log.info("claim of %s dropped: %s", _name(key), action.why)
                self._claims.pop(key).drop()
            case Stop():
                log.info("stopping %s: %s", _name(key), action.why)
                await self._runtime.stop(key, self._stop_grace_s(key), action.why)
            case Remove():
                await self._runtime.remove(key)

    def _make_claim(self, key: TaskId, token: int, seen: Mapping[TaskId, Observed]) -> None:
        row, group = self._feed.tasks[key], self._feed.groups.get(key.group_id)
        if group is None:
            log.warning("no group row for %s; waiting for it", _name(key))
            return
        in_use = {card: _name(item.id) for item in seen.values() if item.id != key for card in item.gpus}
        in_use |= {card: _name(other) for other, claim in self._claims.items() for card in claim.cards}
        try:
            request = self._claim_request(row, group)
        except Exception as error:
            log.exception("the document of %s cannot be read", _name(key))
            refusal = ClaimRefused("document_unreadable", f"this agent cannot read the group's document: {error!r}")
            self._claims[key] = _LocalClaim(token, (), asyncio.create_task(_refuse(refusal)))
            self._wake.set()
            return
        progress = _Progress(_name(key), self._wake.set)
        rank_0_claimed = partial(self._feed.claimed, key.group_id, key.attempt, 0)
        work = asyncio.create_task(self._claimer.claim(request, in_use, progress.say, rank_0_claimed))
        work.add_done_callback(lambda _: self._wake.set())
        self._claims[key] = _LocalClaim(token, request.cards, work, progress)

    async def _start(self, action: Start) -> None:
        key = action.key
        claim = self._claims.pop(key)
        claim.drop()  # the port is free from here until the trainer binds it
        held = claim.result
        try:
            row, group = self._feed.tasks[key], self._feed.groups[key.group_id]
            sees = held.sees if isinstance(held, HeldClaim) else None
            if changed := sight_refusal(sees, group.get("views") or ()):
                raise RuntimeRefused(changed.text)
            if self._before_start is not None:
                await self._before_start(row, group)
            spec = self._task_spec(row, group)
            async with asyncio.timeout(_START_DEADLINE_S):
                await self._runtime.start(spec)
        except Exception as error:
            log.exception("%s not started", _name(key))
            text = str(error) if isinstance(error, RuntimeRefused | OSError) else repr(error)
            refusal = ClaimRefused("start_refused", f"this agent did not start it: {text}")
            self._claims[key] = _LocalClaim(action.token, claim.cards, asyncio.create_task(_refuse(refusal)))
            self._wake.set()

    def _stop_grace_s(self, key: TaskId) -> float:
        group = self._feed.groups.get(key.group_id)
        return float(group["document"]["task"]["stop_grace_s"]) if group is not None else 10.0

    def _report_fields(self, report: Report, seen: Observed | None) -> dict[str, Any]:
        key = report.key
        fields: dict[str, Any] = {
            "group_id": key.group_id,
            "attempt": key.attempt,
            "rank": key.rank,
            "token": report.token,
            "seq": report.seq,
            "kind": report.kind,
            "at_ms": time.time_ns() // 1_000_000,
        }
        claim = self._claims.get(key)
        if report.kind == "claimed" and claim is not None and isinstance(held := claim.result, HeldClaim):
            fields["resume"] = held.resume
            if held.sees is not None:
                fields["sees"] = held.sees
            if held.checkpoint_real is not None:
                fields["checkpoint_real"] = held.checkpoint_real
            if held.reach is not None:
                fields["reached"] = list(held.reach.reached)
                fields["unreached"] = [dict(one) for one in held.reach.unreached]
        if report.kind == "claim_failed" and claim is not None and isinstance(refusal := claim.result, ClaimRefused):
            fields |= {"code": refusal.code, "text": _said(refusal.text), "permanent": refusal.permanent}
        if report.kind == "started" and seen is not None and seen.started_ms is not None:
            fields["at_ms"] = seen.started_ms
        if report.kind == "log_lost" and seen is not None:
            fields["bytes"] = seen.log_lost
        if report.kind == "started" and seen is not None and seen.image is not None:
            fields["image"] = dict(seen.image)
        if report.kind == "exited":
            refused = claim.result if claim is not None else None
            fields |= _exit_fields(
                seen, refused.text if isinstance(refused, ClaimRefused) else "its directory here is gone"
            )
        return fields


def _exit_fields(seen: Observed | None, why_unseen: str) -> dict[str, Any]:
    if seen is None:
        return {"exit_code": None, "signal": None, "why": "lost", "text": _said(why_unseen)}
    fields: dict[str, Any] = {
        "exit_code": seen.exit_code,
        "signal": seen.signal,
        "why": seen.why,
        "text": _said(seen.text),
    }
    if seen.ended_ms is not None:
        fields["at_ms"] = seen.ended_ms
    if seen.failure_class:
        fields["class"] = seen.failure_class
    return fields


def _said(text: str) -> str:
    """As a report holds it, whatever names of files are in it."""
    return sayable(text)[:TEXT_MAX]


async def _refuse(refusal: ClaimRefused) -> ClaimRefused:
    return refusal


def _name(key: TaskId) -> str:
    return f"{key.group_id}/{key.attempt}/{key.rank}"

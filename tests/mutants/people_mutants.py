"""Deliberate gaps in who may do what, as context managers that patch one named decision each. Each is killed by
test_people_mutants.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from agentd.core.tenant_rows import TenantRows
from agentd.http import callers, context, logs, watch
from mesh.core.state import audit, reducer
from mesh.core.state.outcome import Outcome
from mesh.core.state.store import Row, StateStore
from schemas.rules.permissions import Caller


@contextmanager
def only_the_entry_judges_the_key() -> Iterator[None]:
    """The reducer takes the word of the agent that proposed."""
    with mock.patch.object(reducer, "caller_refusal", lambda store, command: None):
        yield


@contextmanager
def only_the_entry_judges_the_tenant() -> Iterator[None]:
    with mock.patch.object(reducer, "tenant_refusal", lambda store, command: None):
        yield


@contextmanager
def refusals_leave_no_trace() -> Iterator[None]:
    honest = audit.record

    def record(store: StateStore, command: Row, outcome: Outcome) -> None:
        if outcome.ok:
            honest(store, command, outcome)

    with mock.patch.object(audit, "record", record):
        yield


@contextmanager
def other_tenants_are_only_left_out_of_lists() -> Iterator[None]:
    """Who knows an id may look."""

    def visible(request: Any, group_id: str, group: Row | None) -> Row:
        if group is None:
            raise context.no_such_group(group_id)
        return group

    from agentd.http import task_groups

    with mock.patch.object(task_groups, "visible", visible):
        yield


@contextmanager
def files_are_given_to_any_agent() -> Iterator[None]:
    """The host that has a log trusts whoever asked it on a person's behalf."""

    async def require_visible(request: Any, group_id: str) -> None:
        pass

    with mock.patch.object(logs, "require_visible", require_visible):
        yield


@contextmanager
def the_feed_is_everyones() -> Iterator[None]:
    with (
        mock.patch.object(TenantRows, "snapshot", lambda self, parts: parts),
        mock.patch.object(TenantRows, "changes", lambda self, changes: changes),
    ):
        yield


@contextmanager
def a_stream_is_judged_once() -> Iterator[None]:
    async def lapse(request: Any) -> Any:
        await asyncio.Event().wait()

    with mock.patch.object(watch, "lapse", lapse):
        yield


@contextmanager
def a_token_outlives_its_key() -> Iterator[None]:
    """The rights of a key are taken from its row, and its end is not."""

    def key_refusal(row: Any, now_ms: int) -> str | None:
        return "there is no such API key" if row is None else None

    with mock.patch.object(callers, "key_refusal", key_refusal):
        yield


@contextmanager
def a_person_may_be_a_peer() -> Iterator[None]:
    """Administrators may do everything, also what agents do among themselves."""
    honest = Caller.may

    def may(self: Caller, permission: Any) -> bool:
        return honest(self, permission) or self.role == "admin"

    with mock.patch.object(Caller, "may", may):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "only-the-entry-judges-the-key": only_the_entry_judges_the_key,
    "only-the-entry-judges-the-tenant": only_the_entry_judges_the_tenant,
    "refusals-leave-no-trace": refusals_leave_no_trace,
    "other-tenants-are-only-left-out-of-lists": other_tenants_are_only_left_out_of_lists,
    "files-are-given-to-any-agent": files_are_given_to_any_agent,
    "the-feed-is-everyones": the_feed_is_everyones,
    "a-stream-is-judged-once": a_stream_is_judged_once,
    "a-token-outlives-its-key": a_token_outlives_its_key,
    "a-person-may-be-a-peer": a_person_may_be_a_peer,
}

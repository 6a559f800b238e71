"""The group that a document goes on from: looked up with the caller's rights, before the document is judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from agentd.core.parent_checkpoint import chosen, may_vanish, same_directory
from agentd.http.callers import caller_of
from agentd.http.context import mesh_of
from schemas.errors import Finding, InvalidInput
from schemas.limits import LEDGER_MAX
from schemas.task_group import ParentNamed, parent_of, with_inherited
from schemas.task_group.parent import FIELD
from schemas.task_types import TRAINING


@dataclass(frozen=True, slots=True)
class Parent:
    """told: what the command says of it; tenant: whose it is."""

    told: dict[str, Any]
    tenant: str
    warnings: list[dict[str, str]]

    def judge(self, document: Mapping[str, Any]) -> None:
        """document: accepted, with what it inherits. Raises InvalidInput."""
        if (found := same_directory(document[TRAINING]["checkpoint_path"], self.told)) is not None:
            raise _refused(found)
        if document.get("tenant", self.tenant) != self.tenant:
            # It would hand one tenant's command and env to another.
            message = f"tenant is {document['tenant']}, but {self.told['group_id']} is of tenant {self.tenant}"
            raise _refused(Finding("parent_of_another_tenant", "tenant", message, "Leave tenant out."))


async def with_parent(request: web.Request, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Parent | None]:
    """The document with what it inherits. Raises InvalidInput where there is no such group or checkpoint."""
    named = parent_of(body)
    if named is None:
        return body, None
    group_id = named.group_id
    reads: list[dict[str, Any]] = [{"get": ["group", group_id]}, {"scan": ["save", f"{group_id}/", "", LEDGER_MAX]}]
    group, saves = (await mesh_of(request).query(reads))["results"]
    # Another tenant's is answered as one that does not exist.
    if group is None or not caller_of(request).sees(str(group["tenant"])):
        raise _refused(Finding("no_such_group", FIELD, f"{FIELD}: there is no task group {group_id}", _LIST))
    if group["task_type"] != TRAINING:
        message = f"{FIELD}: {group_id} is of type {group['task_type']}, which has no checkpoints"
        raise _refused(Finding("no_parent_checkpoint", FIELD, message, _LIST))
    return with_inherited(body, group["document"]), _parent(named, group, [row for _, row in saves])


_LIST = "List them with heteroflow ls."


def _parent(named: ParentNamed, group: Mapping[str, Any], saves: list[dict[str, Any]]) -> Parent:
    found = chosen(named, group, saves)
    if isinstance(found, Finding):
        raise _refused(found)
    warning = may_vanish(group, found)
    return Parent(found, str(group["tenant"]), [] if warning is None else [warning])


def _refused(found: Finding) -> InvalidInput:
    return InvalidInput(
        "invalid_document", "the task group was not created: 1 thing must be changed", found.hint, found.path, [found]
    )

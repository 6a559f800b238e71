"""Whether whoever asked for a command may have it, judged once more where it is carried out: the agent that took the
request may have looked at an older state, or not have looked.

A command that names no caller comes from an agent itself: its controllers, its reports, or a version that did not say
yet for whom it asks."""

from mesh.core.state.outcome import Outcome, refused
from mesh.core.state.store import Row, StateStore
from schemas.rules.api_keys import key_refusal, person_of
from schemas.rules.permissions import PERSON, Caller, Permission

# What people may ask for. A command that is missing here is for agents, whatever the role of who asks.
NEEDS = {
    "SubmitGroup": Permission.WRITE_GROUPS,
    "StopGroup": Permission.WRITE_GROUPS,
    "StopAfterCheckpoint": Permission.WRITE_GROUPS,
    "PauseGroup": Permission.WRITE_GROUPS,
    "ResumeGroup": Permission.WRITE_GROUPS,
    "DeleteGroup": Permission.WRITE_GROUPS,
    "RecordExec": Permission.WRITE_GROUPS,
    "RecordDownload": Permission.READ_GROUPS,
    "RecordUpload": Permission.WRITE_GROUPS,
    "CordonNode": Permission.OPERATE,
    "UncordonNode": Permission.OPERATE,
    "GiveUpNode": Permission.OPERATE,
    "DrainNode": Permission.OPERATE,
    "PlanMaintenance": Permission.OPERATE,
    "CancelMaintenance": Permission.OPERATE,
    "PauseScheduling": Permission.OPERATE,
    "ResumeScheduling": Permission.OPERATE,
    "RaiseVersion": Permission.OPERATE,
    "HoldMesh": Permission.OPERATE,
    "ReleaseHold": Permission.OPERATE,
    "PutKey": Permission.MANAGE_KEYS,
    "RevokeKey": Permission.MANAGE_KEYS,
}


def caller_refusal(store: StateStore, command: Row) -> Outcome | None:
    """Of the person as such: a key that was revoked or expired meanwhile, or a role that does not allow it."""
    caller = command.get("caller")
    if caller is None or caller["kind"] != PERSON:
        return None
    row = store.get("api_key", caller.get("key", ""))
    reason = key_refusal(row, command["at_ms"])
    if row is None or reason is not None:
        return refused("unauthorised", f"{reason}; nothing was changed.")
    permission = NEEDS.get(command["t"], Permission.PEER)
    found = person_of(caller["key"], row).refusal(permission)
    return None if found is None else refused("forbidden", f"{found[0]}; nothing was changed.")


def tenant_refusal(store: StateStore, command: Row) -> Outcome | None:
    """Of what it is done to. The group of another tenant is answered exactly as one that does not exist."""
    person = person_behind(store, command)
    if person is None or person.sees_all:
        return None
    if command["t"] == "SubmitGroup":
        if person.sees(command["tenant"]):
            return None
        return refused(
            "forbidden", f"{person.name} may submit for tenant {person.tenant} only, not for {command['tenant']}."
        )
    if (group_id := command.get("group_id")) is None:
        return None
    group = store.get("group", group_id)
    if group is None or not person.sees(group["tenant"]):
        return refused("no_such_group", f"group {group_id} does not exist.")
    return None


def person_behind(store: StateStore, command: Row) -> Caller | None:
    """None where an agent or the holder of the mesh token asks."""
    caller = command.get("caller")
    if caller is None or caller["kind"] != PERSON:
        return None
    row = store.get("api_key", caller.get("key", ""))
    return person_of(caller["key"], row) if row is not None else Caller(PERSON, caller["name"])

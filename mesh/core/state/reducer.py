"""`apply`: one committed command, one state, one answer. Total and deterministic: no command raises, and equal logs
give equal rows."""

from collections.abc import Callable
from typing import Any

from mesh.core.state import audit
from mesh.core.state.api_keys import put_key, put_signer, revoke_key
from mesh.core.state.authority import caller_refusal, tenant_refusal
from mesh.core.state.bind import bind_group
from mesh.core.state.cluster import init_cluster, noop, raise_version, version_of
from mesh.core.state.exec_record import record_exec
from mesh.core.state.file_record import record_file_access
from mesh.core.state.group_pause import pause_group, resume_group
from mesh.core.state.lease_hold import hold_left, hold_mesh, release_hold
from mesh.core.state.maintenance import cancel_maintenance, plan_maintenance, turn_maintenance
from mesh.core.state.nodes import expire_node, give_up_node, register_node, rejoin_node
from mesh.core.state.outcome import Outcome, refused
from mesh.core.state.pause import pause_scheduling, resume_scheduling
from mesh.core.state.phases import continue_phase, rollback_group, start_group
from mesh.core.state.reasons import set_reasons
from mesh.core.state.rendezvous_record import record_rendezvous
from mesh.core.state.reports import task_reports
from mesh.core.state.requests import recall, remember
from mesh.core.state.retention import prune_groups
from mesh.core.state.service import cordon_node, drain_node, end_drain, move_group, uncordon_node
from mesh.core.state.stop_after import stop_after_checkpoint
from mesh.core.state.store import Row, StateStore
from mesh.core.state.submit import delete_group, stop_group, submit_group
from mesh.core.state.time_limits import fail_group
from schemas.commands import command_findings
from schemas.versions import FIRST, version_needed

Reducer = Callable[[StateStore, int, Row], Outcome]

REDUCERS: dict[str, Reducer] = {
    "InitCluster": init_cluster,
    "RaiseVersion": raise_version,
    "RegisterNode": register_node,
    "SubmitGroup": submit_group,
    "SetReasons": set_reasons,
    "BindGroup": bind_group,
    "TaskReports": task_reports,
    "StartGroup": start_group,
    "ContinuePhase": continue_phase,
    "RollbackGroup": rollback_group,
    "FailGroup": fail_group,
    "StopGroup": stop_group,
    "StopAfterCheckpoint": stop_after_checkpoint,
    "PauseGroup": pause_group,
    "ResumeGroup": resume_group,
    "ExpireNode": expire_node,
    "RejoinNode": rejoin_node,
    "DeleteGroup": delete_group,
    "CordonNode": cordon_node,
    "UncordonNode": uncordon_node,
    "GiveUpNode": give_up_node,
    "DrainNode": drain_node,
    "MoveGroup": move_group,
    "EndDrain": end_drain,
    "PlanMaintenance": plan_maintenance,
    "TurnMaintenance": turn_maintenance,
    "CancelMaintenance": cancel_maintenance,
    "HoldMesh": hold_mesh,
    "ReleaseHold": release_hold,
    "HoldLeft": hold_left,
    "PauseScheduling": pause_scheduling,
    "ResumeScheduling": resume_scheduling,
    "PutKey": put_key,
    "RevokeKey": revoke_key,
    "PutSigner": put_signer,
    "RecordExec": record_exec,
    "RecordRendezvous": record_rendezvous,
    "RecordDownload": record_file_access,
    "RecordUpload": record_file_access,
    "PruneGroups": prune_groups,
    "Noop": noop,
}


def apply(store: StateStore, idx: int, command: Any) -> Outcome:
    found = command_findings(command)
    if found:
        return refused("invalid_command", f"{found[0].message}; nothing was changed.", path=found[0].path)
    if "at_ms" not in command:
        return refused("invalid_command", "the command carries no leader stamp; nothing was changed.", path="at_ms")
    # Before anything is written: an older release, which does not know it, writes nothing either.
    needed = version_needed(command)
    if needed > FIRST and needed > (now := version_of(store)):
        return refused(
            "version_too_low",
            f"{command['t']} needs cluster version {needed}, the mesh is at {now}; nothing was changed.",
        )
    # Not remembered with the request: the same one may be allowed a minute later.
    barred = caller_refusal(store, command)
    if barred is not None:
        audit.record(store, command, barred)
        return barred
    request = command.get("request")
    answer = recall(store, request, command["at_ms"]) if request is not None else None
    if answer is None:
        # After the recall, because the group of a repeated DeleteGroup is gone.
        answer = tenant_refusal(store, command) or REDUCERS[command["t"]](store, idx, command)
        audit.record(store, command, answer)
        if request is not None:
            remember(store, idx, request, command["at_ms"], answer)
    return answer

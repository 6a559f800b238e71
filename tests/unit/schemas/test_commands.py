import re
from typing import Any

import msgpack
import pytest

from schemas.command_fields import REPORT_KINDS
from schemas.commands import (
    COMMANDS,
    command,
    command_findings,
    command_refusal,
    encode_command,
)
from schemas.errors import InvalidInput
from schemas.lexemes import Number
from schemas.limits import DOCUMENT_DEPTH_MAX, ENTRY_MAX

GROUP = "tg-01kb89t3f89j6ct3adhq"
NODE = {
    "node_id": "n1",
    "uid": "u1",
    "api_addr": "10.0.0.1:7460",
    "voter_addr": None,
    "gpus": [{"uuid": "GPU-1", "type": "H100", "memory_mb": 81559, "index": 0}],
    "gpu_backend": "nvml",
    "runtime": "process",
    "labels": {"rack": "r1"},
    "version": "0.1.0",
    "cpus": 8,
    "memory_mb": 1024,
}
REPORT = {"group_id": GROUP, "attempt": 1, "rank": 0, "token": 3, "seq": 1}
CALLER = {"kind": "person", "name": "root", "node": "n1", "key": "k0"}
SAMPLES: dict[str, dict[str, Any]] = {
    "InitCluster": {
        "cluster_id": "c1",
        "epoch": 1,
        "profile": "lan",
        "voters": [{"raft_id": 7, "node": "n1", "voter_addr": "10.0.0.1:7461"}],
    },
    "RegisterNode": NODE,
    "SubmitGroup": {
        "group_id": GROUP,
        "document": {"name": "训练", "hyper": [1, 1.5, None, True, {"a": "b"}]},
        "tenant": "t",
        "user": "u",
        "warnings": [{"code": "x"}],
        "resubmit_of": None,
    },
    "SetReasons": {"reasons": {GROUP: {"code": "behind", "text": "waits", "details": {"n": 1}}}},
    "BindGroup": {
        "group_id": GROUP,
        "attempt": 1,
        "placements": [{"rank": 0, "node": "n1", "gpus": ["GPU-1"], "port": 20000}],
    },
    "TaskReports": {
        "node": "n1",
        "uid": "u1",
        "reports": [
            {**REPORT, "kind": "claimed", "resume": {"path": "/c/step-5", "step": 5}},
            {
                **REPORT,
                "kind": "claimed",
                "reached": ["10.0.0.1"],
                "unreached": [{"addr": "fd00::1", "why": "refuses"}],
            },
            {**REPORT, "kind": "claim_failed", "code": "port", "text": "taken", "permanent": False},
            {**REPORT, "kind": "started"},
            {**REPORT, "kind": "exited", "exit_code": None, "signal": 9, "at_ms": 5, "why": "fenced"},
            {**REPORT, "kind": "released"},
            {**REPORT, "kind": "log_lost", "bytes": 1},
            {
                **REPORT,
                "seq": 0,
                "kind": "checkpoint",
                "pick": "step-5",
                "step": 5,
                "mark": "17",
                "bytes": 9,
                "files": 1,
                "age_ms": 0,
                "took_ms": 1,
                "free_bytes": 3,
            },
            {**REPORT, "seq": 0, "kind": "checkpoints_removed", "removed": ["step-1"]},
            {**REPORT, "seq": 0, "kind": "progress", "text": "pulling image i, 3 %"},
        ],
    },
    "StartGroup": {
        "group_id": GROUP,
        "attempt": 1,
        "claimed": [0],
        "master": {"addr": "10.0.0.1", "port": 20000},
        "resume": None,
    },
    "ContinuePhase": {"group_id": GROUP, "attempt": 1, "status": "starting"},
    "RollbackGroup": {"group_id": GROUP, "attempt": 1, "code": "claim_timeout", "text": "late", "node": "n1"},
    "StopGroup": {"group_id": GROUP, "by": "ada"},
    "StopAfterCheckpoint": {"group_id": GROUP, "by": "ada", "within_s": 600},
    "PauseGroup": {"group_id": GROUP, "by": "ada"},
    "ResumeGroup": {"group_id": GROUP, "by": "ada"},
    "FailGroup": {"group_id": GROUP, "attempt": 0, "over": "wait_over"},
    "ExpireNode": {"node_id": "n1", "uid": "u1", "text": "silent"},
    "RejoinNode": {
        "node_id": "n1",
        "uid": "u1",
        "losses": 1,
        "tasks": [{"group_id": GROUP, "attempt": 1, "rank": 0, "token": 3}],
    },
    "DeleteGroup": {"group_id": GROUP},
    "CordonNode": {"node_id": "n1", "by": "ada", "reason": ""},
    "UncordonNode": {"node_id": "n1", "by": "ada"},
    "GiveUpNode": {"node_id": "n1", "by": "ada", "reason": "it burnt"},
    "DrainNode": {"node_id": "n1", "mode": "wait", "deadline_s": 1800, "by": "ada", "reason": "new fans"},
    "MoveGroup": {"group_id": GROUP, "attempt": 1, "node_id": "n1"},
    "EndDrain": {"node_id": "n1"},
    "PlanMaintenance": {
        "node_id": "n1",
        "from_ms": None,
        "in_s": 60,
        "for_s": 7200,
        "mode": "move",
        "deadline_s": 0,
        "by": "ada",
        "reason": "BIOS",
    },
    "TurnMaintenance": {"node_id": "n1", "to": "open"},
    "CancelMaintenance": {"node_id": "n1", "by": "ada"},
    "HoldMesh": {"for_s": 1800, "by": "ada", "reason": "switch"},
    "ReleaseHold": {"by": "ada"},
    "HoldLeft": {"hold": 7, "left_ms": 0},
    "RaiseVersion": {"to": 2, "by": "ada"},
    "PauseScheduling": {"by": "ada", "reason": "slow storage"},
    "ResumeScheduling": {"by": "ada"},
    "PutKey": {
        "caller": CALLER,
        "key_id": "k1",
        "name": "ada",
        "role": "member",
        "tenant": "t",
        "sha256": "0" * 64,
        "scopes": ["tasks:read"],
        "expires_ms": None,
    },
    "RevokeKey": {"caller": CALLER, "key_id": "k1"},
    "PutSigner": {"signer_id": "s1", "secret": b"x" * 32, "after": ""},
    "PruneGroups": {"group_ids": [GROUP]},
    "RecordExec": {
        "group_id": GROUP,
        "attempt": 1,
        "rank": 0,
        "by": "ada",
        "phase": "opened",
        "text": "sh",
    },
    "RecordRendezvous": {"group_id": GROUP, "attempt": 1, "state": "missing", "text": "rank 1 never connected"},
    "RecordDownload": {"group_id": GROUP, "attempt": 1, "rank": 0, "path": "/checkpoint/a"},
    "RecordUpload": {"group_id": GROUP, "attempt": 1, "rank": 0, "path": "/checkpoint/a"},
    "Noop": {"payload": b"x" * 500},
}


def test_every_command_and_report_kind_has_a_sample():
    assert set(SAMPLES) == set(COMMANDS)
    assert {report["kind"] for report in SAMPLES["TaskReports"]["reports"]} == set(REPORT_KINDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_good_commands_survive_the_wire(name):
    envelope = {"request": {"client": "c", "id": "k-01", "digest": "d"}, "caller": CALLER}
    value = command(name, at_ms=1, **{**envelope, **SAMPLES[name]})
    assert command_findings(value) == []
    assert msgpack.unpackb(encode_command(value)) == value
    assert command_findings(msgpack.unpackb(encode_command(value))) == []


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"Noop"}))
def test_each_missing_field_is_named(name):
    for field in COMMANDS[name][0]:
        value = command(name, **{key: item for key, item in SAMPLES[name].items() if key != field})
        assert [finding.path for finding in command_findings(value)] == [field]


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize(
    "wrong", [{"extra": 1}, {"at_ms": -1}, {"at_ms": True}, {"request": {"client": "c"}}, {"v": 2}]
)
def test_unknown_and_wrong_envelope_fields_are_refused(name, wrong):
    problem = command_refusal({**command(name, **SAMPLES[name]), **wrong})
    assert problem is not None
    assert problem.code == "invalid_command"
    assert problem.findings[0].path.startswith(next(iter(wrong)))


@pytest.mark.parametrize("value", [None, 7, [], "Noop", {}, {"t": "Nope"}, {"t": ["Noop"]}, {"t": None, "v": 1}])
def test_what_is_no_command_is_said(value):
    assert command_refusal(value) is not None


@pytest.mark.parametrize(
    ("name", "path", "bad"),
    [
        ("StopGroup", "group_id", "../etc"),
        ("StopGroup", "by", ""),
        ("StopGroup", "by", "x" * 129),
        ("StopGroup", "by", "\ud800"),
        ("RegisterNode", "node_id", "N1"),
        ("RegisterNode", "cpus", -1),
        ("RegisterNode", "cpus", 1 << 63),
        ("RegisterNode", "cpus", 1.0),
        ("RegisterNode", "gpu_backend", "magic"),
        ("RegisterNode", "gpus", [{"uuid": "a"}]),
        ("RegisterNode", "labels", {"": "x"}),
        ("InitCluster", "voters", [{}] * 8),
        ("BindGroup", "attempt", 0),
        ("BindGroup", "placements", {"rank": 0}),
        ("StartGroup", "master", {"addr": "a", "port": 80}),
        ("TaskReports", "reports", [{**REPORT, "kind": "exploded"}]),
        ("TaskReports", "reports", [{**REPORT, "kind": "exited"}]),
        ("TaskReports", "reports", ["x"]),
        ("SubmitGroup", "document", {"a": float("nan")}),
        ("SubmitGroup", "document", {"a": 1 << 70}),
        ("SubmitGroup", "document", {1: "a"}),
        ("SubmitGroup", "document", {"a": {1, 2}}),
        ("SubmitGroup", "document", "text"),
        ("Noop", "payload", 5),
    ],
)
def test_bad_values_are_refused_where_they_are(name, path, bad):
    found = command_findings(command(name, **{**SAMPLES[name], path: bad}))
    assert found
    assert all(finding.path.startswith(path) for finding in found)
    with pytest.raises(InvalidInput):
        encode_command(command(name, **{**SAMPLES[name], path: bad}))


def test_all_findings_are_told_at_once():
    found = command_findings(command("RegisterNode", **{**NODE, "cpus": -1, "memory_mb": "much", "runtime": "podman"}))
    assert {finding.path for finding in found} == {"cpus", "memory_mb", "runtime"}


def test_depth_and_size_are_bounded():
    deep: dict = {}
    for _ in range(DOCUMENT_DEPTH_MAX + 1):
        deep = {"d": deep}
    assert command_findings(command("SubmitGroup", **{**SAMPLES["SubmitGroup"], "document": deep}))
    with pytest.raises(InvalidInput, match=str(ENTRY_MAX)):
        encode_command(command("Noop", payload=b"x" * ENTRY_MAX))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_what_is_of_the_wrong_kind_is_named_as_in_documents(name):
    """People who send JSON read this: null, and not NoneType."""
    python_words = re.compile(r"\b(NoneType|int|str|bool|float|dict|tuple|Number|bytearray|object)\b")
    for field in SAMPLES[name]:
        for wrong in (None, True, 1.5, Number("7"), "x", [], {}, (), object()):
            for finding in command_findings({**command(name, **SAMPLES[name]), field: wrong}):
                assert not python_words.search(finding.message), finding.message

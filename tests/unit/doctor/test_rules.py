"""Each thing that keeps a host from its work is told with why and fix, and what is well is not complained about."""

import dataclasses
from typing import Any

import pytest

from agentd.core.doctor.finding import Unanswered, failed
from agentd.core.doctor.judgement import Facts, judge
from agentd.core.doctor.share_rules import matters

GIB = 1 << 30
NFS: Any = {"source": "srv:/data", "target": "/data", "kind": "nfs4"}
ROOT_FS: Any = {"source": "/dev/sda1", "target": "/", "kind": "ext4"}
SETUP: Any = {
    "data_dir": "/var/lib/heteroflow",
    "runtime": "docker",
    "gpus": "nvml",
    "docker_socket": "/var/run/docker.sock",
    "api": "10.0.0.1:7460",
    "voter": "10.0.0.1:7461",
    "allow_paths": [],
}
WELL: Any = Facts(
    setup=SETUP,
    rights={
        "user": "root",
        "root": True,
        "isolation": "pidns",
        "data_owner": "root",
        "data_mode": 0o700,
        "guard_pid": 7,
        "guard_oom": -1000,
        "guard_user": "root",
        "delegated": True,
    },
    engine={
        "error": "",
        "version": "27.1.1",
        "live_restore": True,
        "components": {"Engine": "27.1.1", "runc": "1.1.13"},
        "runtimes": ["nvidia", "runc"],
        "packages": {},
        "release": ["debian", "12"],
        "toolkit": "NVIDIA Container Toolkit CLI version 1.17.8",
        "socket_mode": 0o660,
    },
    cards={
        "pci": 2,
        "state": "2 NVIDIA cards usable",
        "cards": [{"uuid": f"GPU-{n}", "type": "H100-80GB-HBM3", "index": n} for n in range(2)],
        "faults": {},
    },
    cuda={"error": "", "devices": [{"index": 0, "error": ""}, {"index": 1, "error": ""}]},
    disk={"path": "/var/lib", "kind": "ext4", "free_bytes": 500 * GIB, "error": "", "fsync_ms": [1.0] * 200},
    shm={"kind": "tmpfs", "bytes": 64 * GIB, "free_bytes": 60 * GIB},
    reach={
        "ports": [
            {"flag": "--api", "address": "10.0.0.1:7460", "state": "ours", "holder": "process 8 (python)"},
            {"flag": "--voter", "address": "10.0.0.1:7461", "state": "free", "holder": ""},
        ],
        "ephemeral": [32768, 60999],
        "engine_tcp": [],
    },
    clock={
        "synchronised": True,
        "peers": [{"address": "10.0.0.2:7460", "ahead_s": 0.4, "within_s": 0.5}],
        "silent": [],
    },
    shares={
        "wanted": [NFS],
        "mounts": [ROOT_FS, NFS],
        "roots": [{"path": "/data", "said": False, "exists": True, "within": "/data"}],
        "answers": {"/data": ""},
    },
    network={
        "nics": [{"name": "eth0", "up": True, "mtu": 9000, "mbit": 100_000, "numa": 0, "default": True}],
        "rdma": [{"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)", "numa": 0}],
        "cards_numa": {"0000:17:00.0": 0, "0000:2a:00.0": 0},
        "peermem": True,
        "memlock": None,
    },
)


def changed(**changes):
    """`part__key=value`, or `part=Unanswered(...)`."""
    facts: Any = WELL
    for name, value in changes.items():
        part, _, key = name.partition("__")
        new = {**getattr(facts, part), key: value} if key else value
        facts = dataclasses.replace(facts, **{part: new})
    return facts


def told(facts, check):
    return [finding for finding in judge(facts) if finding.check == check and finding.state in ("warn", "fail")]


def test_a_host_that_is_well():
    findings = judge(WELL)
    assert [finding for finding in findings if finding.state != "ok"] == []
    assert {"engine", "live-restore", "runc", "nvidia-toolkit", "cards", "cuda", "shm", "fsync"} <= {
        finding.check for finding in findings
    }


PORT = {"flag": "--api", "address": "10.0.0.1:7460", "state": "taken", "holder": "process 99 (nginx)"}
NIC = WELL.network["nics"][0]
RDMA = WELL.network["rdma"][0]
BOOKWORM = {"Engine": "20.10.24", "runc": "1.1.5+ds1"}

WRONG = [
    ("engine", "fail", "no such file", {"engine__error": "Docker at /x does not answer: no such file"}),
    ("engine", "fail", "19.3", {"engine__version": "19.3.1"}),
    ("engine", "fail", "did not answer", {"engine": Unanswered("did not answer within 20 s")}),
    ("live-restore", "fail", "off", {"engine__live_restore": False}),
    ("runc", "fail", "1.1.11", {"engine__components": {"runc": "1.1.11"}}),
    ("runc", "fail", "1.1.5+ds1-1 ", {"engine__components": BOOKWORM, "engine__packages": {"runc": "1.1.5+ds1-1 "}}),
    (
        "runc",
        "warn",
        "ubuntu 19.10",
        {
            "engine__components": {"runc": "1.1.5"},
            "engine__packages": {"runc": "1.1.5-0ubuntu1"},
            "engine__release": ["ubuntu", "19.10"],
        },
    ),
    # The mended package lies on the disk, and another runc is the one that runs.
    (
        "runc",
        "fail",
        "1.1.5+ds1-1+deb12u1",
        {"engine__components": {"runc": "1.0.3"}, "engine__packages": {"runc": "1.1.5+ds1-1+deb12u1"}},
    ),
    ("nvidia-toolkit", "fail", "1.16.2", {"engine__toolkit": "NVIDIA Container Toolkit CLI version 1.16.2"}),
    ("nvidia-toolkit", "fail", "not on this host", {"engine__toolkit": ""}),
    ("engine-socket", "warn", "0666", {"engine__socket_mode": 0o666}),
    ("engine-tcp", "warn", "2375", {"reach__engine_tcp": ["0.0.0.0:2375"]}),
    ("cards", "fail", "driver mismatch", {"cards__cards": [], "cards__state": "GPU driver mismatch, reboot needed"}),
    ("cards", "fail", "GPU-9", {"cards__faults": {"GPU-9": "not listed by the driver any more"}}),
    ("cards", "warn", "2 of 3", {"cards__pci": 3}),
    ("cards", "fail", "did not answer", {"cards": Unanswered("did not answer within 20 s")}),
    ("cuda", "fail", "did not answer", {"cuda": Unanswered("did not answer within 20 s")}),
    ("cuda", "fail", "signal 11", {"cuda": Unanswered("ended by signal 11")}),
    ("cuda", "fail", "libcuda", {"cuda__error": "libcuda cannot be loaded: no such file"}),
    ("cuda", "fail", "card 1: ECC", {"cuda__devices": [{"index": 0, "error": ""}, {"index": 1, "error": "ECC"}]}),
    ("cuda", "warn", "1 of 2", {"cuda__devices": [{"index": 0, "error": ""}]}),
    ("shm", "warn", "0.1 GiB", {"shm__bytes": GIB // 16}),
    ("shm", "warn", "free", {"shm__free_bytes": GIB}),
    ("shm", "fail", "ext4", {"shm__kind": "ext4"}),
    ("disk", "fail", "nfs4", {"disk__kind": "nfs4"}),
    ("disk", "warn", "in memory", {"disk__kind": "tmpfs"}),
    ("disk", "warn", "5.0 GiB", {"disk__free_bytes": 5 * GIB}),
    ("disk", "fail", "0.5 GiB", {"disk__free_bytes": GIB // 2}),
    ("disk", "fail", "Read-only", {"disk__error": "cannot be written: Read-only file system"}),
    ("disk", "fail", "did not answer", {"disk": Unanswered("did not answer within 20 s")}),
    ("fsync", "warn", "p99 40.0 ms", {"disk__fsync_ms": [1.0] * 190 + [40.0] * 10}),
    ("fsync", "fail", "p99 400.0 ms", {"disk__fsync_ms": [1.0] * 190 + [400.0] * 10}),
    ("ports", "fail", "nginx", {"reach__ports": [PORT]}),
    ("ports", "fail", "no such address", {"reach__ports": [PORT | {"state": "absent", "holder": "no such address"}]}),
    ("ports", "warn", "15000", {"reach__ephemeral": [15000, 61000]}),
    ("clock", "warn", "not synchronised", {"clock__synchronised": False}),
    (
        "clock-skew",
        "warn",
        "120 s behind",
        {"clock__peers": [{"address": "10.0.0.2:7460", "ahead_s": -120.0, "within_s": 0.6}]},
    ),
    ("shares", "fail", "not mounted", {"shares__mounts": [ROOT_FS]}),
    ("shares", "fail", "did not answer", {"shares__answers": {"/data": "did not answer within 4 s"}}),
    (
        "shares",
        "fail",
        "/srv/x does not exist",
        {"shares__roots": [{"path": "/srv/x", "said": True, "exists": False, "within": "/"}]},
    ),
    ("shares", "warn", "no share", {"shares__mounts": [ROOT_FS], "shares__wanted": [], "shares__answers": {}}),
    ("shares", "fail", "did not answer", {"shares": Unanswered("did not answer within 20 s")}),
    ("network", "fail", "no network card", {"network__nics": [NIC | {"up": False}]}),
    ("network", "warn", "MTU 1500", {"network__nics": [NIC | {"mtu": 1500}]}),
    ("network", "warn", "1000 Mbit/s", {"network__nics": [NIC | {"mbit": 1000, "mtu": 1500}]}),
    ("rdma", "fail", "mlx5_0/1 is DOWN", {"network__rdma": [RDMA | {"state": "DOWN"}]}),
    ("rdma", "warn", "mlx5_1/1 is INIT", {"network__rdma": [RDMA, RDMA | {"device": "mlx5_1", "state": "INIT"}]}),
    ("rdma", "warn", "8192 KiB", {"network__memlock": 8 << 20}),
    ("rdma", "warn", "nvidia_peermem", {"network__peermem": False}),
    ("numa", "warn", "0000:2a:00.0", {"network__cards_numa": {"0000:17:00.0": 0, "0000:2a:00.0": 1}}),
    ("user", "fail", "as user train", {"rights__root": False, "rights__user": "train"}),
    ("namespaces", "warn", "no PID namespace", {"rights__isolation": "subreaper"}),
    ("data-dir", "warn", "0755", {"rights__data_mode": 0o755}),
    ("data-dir", "warn", "belongs to train", {"rights__data_owner": "train"}),
    ("guard", "warn", "may be killed", {"rights__guard_oom": 0}),
    ("cgroup", "warn", "not delegated", {"rights__delegated": False}),
]


@pytest.mark.parametrize(("check", "state", "words", "changes"), WRONG)
def test_what_is_wrong_is_told_and_how_to_mend_it(check, state, words, changes):
    facts = changed(**changes)
    found = told(facts, check)
    assert [finding.state for finding in found] == [state] and words in found[0].what
    assert found[0].why and found[0].fix
    assert failed(judge(facts)) == any(finding.state == "fail" for finding in judge(facts))


@pytest.mark.parametrize("runtime", ["docker", "process"])
def test_a_host_without_cards_is_no_broken_one(runtime):
    bare = {"pci": 0, "state": "no NVIDIA driver", "cards": [], "faults": {}}
    facts = changed(cards=bare, cuda__error="libcuda cannot be loaded", setup__runtime=runtime, engine__toolkit="")
    assert not failed(judge(facts))


def test_what_is_not_used_is_not_complained_about():
    nothing = Unanswered("failed: no such thing")
    facts = changed(
        setup__runtime="process", setup__gpus="simulated:2xH100", engine=nothing, cards=nothing, cuda=nothing
    )
    assert not failed(judge(facts))
    assert {finding.state for finding in judge(facts) if finding.check in ("engine", "cards", "cuda")} == {"skipped"}


@pytest.mark.parametrize("part", ["rights", "shm", "reach", "clock", "network"])
def test_a_look_that_breaks_hides_no_other(part):
    findings = judge(changed(**{part: Unanswered("failed: OSError")}))
    assert len(findings) > 10 and next(f for f in findings if "OSError" in f.what).state == "skipped"


def test_the_mend_of_a_distribution_is_known():
    facts = changed(
        engine__components=BOOKWORM, engine__packages={"runc": "1.1.5+ds1-1+deb12u1"}, engine__version="20.10.24+dfsg1"
    )
    assert told(facts, "runc") == [] and told(facts, "engine") == []


@pytest.mark.parametrize(
    ("target", "root", "does"),
    [
        ("/data", "/data", True),
        ("/", "/data", True),
        ("/data/team", "/data", True),
        ("/database", "/data", False),
        ("/home", "/home/*/heteroflow", True),
        ("/home/ann/heteroflow", "/home/*/heteroflow", True),
        ("/home/ann/music", "/home/*/heteroflow", False),
    ],
)
def test_which_shares_matter(target, root, does):
    mount: Any = {"source": "s:/x", "target": target, "kind": "nfs"}
    assert matters(mount, [{"path": root, "said": False, "exists": True, "within": ""}]) is does
    assert not matters(mount | {"kind": "ext4"}, [{"path": root, "said": False, "exists": True, "within": ""}])

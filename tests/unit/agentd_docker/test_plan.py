"""What is asked of the engine, without one."""

from dataclasses import replace
from typing import Any

import pytest

from agentd.runtime.base import ContainerOptions, Mount, RuntimeRefused, TaskId, TaskSpec
from agentd.runtime.docker.image import Progress, split_reference, trouble_of
from agentd.runtime.docker.plan import Owner, container_body, container_name, over_image
from agentd.runtime.docker.propagation import propagation_in
from agentd.task_plan import container_options

CARDS = ("GPU-5a6f0e2c-1", "GPU-77de01aa-2")
SPEC = TaskSpec(TaskId("tg-1", 2, 3), 9, shell="train", env={"NVIDIA_VISIBLE_DEVICES": "all"}, gpus=CARDS)


def body(spec: TaskSpec = SPEC, **options: Any) -> dict[str, Any]:
    chosen = ContainerOptions(image="image:1", **options)
    return container_body(spec, chosen, Owner("c", "n"), "/d/tasks/tg-1/2/3", 1 << 30, lambda source: "rslave")


def test_cards_are_asked_for_one_by_one_and_never_all() -> None:
    made = body()
    request = {"Driver": "nvidia", "DeviceIDs": list(CARDS), "Capabilities": [["gpu"]]}
    assert made["HostConfig"]["DeviceRequests"] == [request]
    assert [word for word in made["Env"] if word.startswith("NVIDIA")] == [f"NVIDIA_VISIBLE_DEVICES={','.join(CARDS)}"]


@pytest.mark.parametrize("gpus", [(), ("SIM-1", "SIM-2")])
def test_without_a_real_card_there_is_none_whatever_env_and_image_say(gpus: tuple[str, ...]) -> None:
    made = body(replace(SPEC, gpus=gpus))
    assert made["HostConfig"]["DeviceRequests"] == []
    assert "NVIDIA_VISIBLE_DEVICES=void" in made["Env"]


@pytest.mark.parametrize(
    ("ours", "image", "wanted"),
    [
        ("/heteroflow", "/opt/lib", "/heteroflow:/opt/lib"),
        ("/heteroflow", "", "/heteroflow"),
        ("/heteroflow:/mine", "/opt/lib", "/heteroflow:/mine"),
    ],
)
def test_what_an_image_finds_its_modules_by_stays_where_the_document_says_nothing(
    ours: str, image: str, wanted: str
) -> None:
    made = over_image(body(replace(SPEC, env={"PYTHONPATH": ours})), [f"PYTHONPATH={image}", "A=1"])
    assert [entry for entry in made["Env"] if entry.startswith("PYTHONPATH")] == [f"PYTHONPATH={wanted}"]


def test_the_image_s_entry_point_does_not_change_what_runs() -> None:
    assert body()["Entrypoint"] == ["/bin/sh", "-c", "train"]
    assert body(replace(SPEC, shell="", argv=("python", "t.py")))["Entrypoint"] == ["python", "t.py"]


def test_names_of_attempts_and_ranks_differ() -> None:
    ids = [TaskId("tg-1", attempt, rank) for attempt in (1, 2) for rank in (1, 2)]
    assert len({container_name(replace(SPEC, id=one)) for one in ids}) == 4


def test_memory_has_no_swap_to_hide_in() -> None:
    host = body(memory_bytes=1 << 30)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 1 << 30


def test_mounts_are_never_binds_and_a_path_may_hold_colons() -> None:
    made = body(replace(SPEC, mounts=(Mount("/data/a:b", "/dataset", read_only=True),)))
    mount = {"Type": "bind", "Source": "/data/a:b", "Target": "/dataset", "ReadOnly": True}
    assert made["HostConfig"]["Mounts"] == [{**mount, "BindOptions": {"Propagation": "rslave"}}]
    assert "Binds" not in made["HostConfig"]


@pytest.mark.parametrize("source", ["/", "//", "/proc/1", "/var/run/docker.sock", "/data/../run", "/data/x.sock"])
def test_the_host_is_not_given_away(source: str) -> None:
    with pytest.raises(RuntimeRefused, match="is not given to a container"):
        body(replace(SPEC, mounts=(Mount(source, "/checkpoint"),)))


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("pytorch", "pytorch", "latest"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch", "24.05-py3"),
        ("registry:5000/team/image", "registry:5000/team/image", "latest"),
        ("a@sha256:00", "a", "sha256:00"),
    ],
)
def test_an_image_s_name_and_tag(image: str, name: str, tag: str) -> None:
    assert split_reference(image) == (name, tag)


@pytest.mark.parametrize(
    ("error", "code", "again", "word"),
    [
        ("manifest for x:1 not found: manifest unknown", "image_pull_permanent", False, "no such image"),
        ("pull access denied for x, repository does not exist", "image_pull_permanent", False, "docker login"),
        ("unauthorized: authentication required", "image_pull_permanent", False, "docker login"),
        ("no basic auth credentials", "image_pull_permanent", False, "docker login"),
        ("no matching manifest for linux/arm64", "image_pull_permanent", False, "kind of machine"),
        ("invalid reference format", "image_pull_permanent", False, "task.image"),
        ("x509: certificate signed by unknown authority", "image_pull_permanent", False, "trust"),
        ("http: server gave HTTP response to HTTPS client", "image_pull_permanent", False, "trust"),
        ("write /var/lib/docker/tmp: no space left on device", "disk_full", False, "free room"),
        ("Get https://reg/v2/: dial tcp: lookup reg on 1.1.1.1:53: no such host", "image_pull_transient", True, "DNS"),
        ("dial tcp 10.0.0.1:5000: connect: connection refused", "image_pull_transient", True, "not there"),
        ("net/http: TLS handshake timeout", "image_pull_transient", True, "in time"),
        ("received unexpected HTTP status: 503 Service Unavailable", "image_pull_transient", True, "by itself"),
        ("toomanyrequests: retry later", "image_pull_transient", True, "limits"),
        ("unexpected EOF", "image_pull_transient", True, "by itself"),
    ],
)
def test_what_may_pass_by_itself_is_told_from_what_cannot(error: str, code: str, again: bool, word: str) -> None:
    trouble = trouble_of(error)
    assert (trouble.code, trouble.again, trouble.permanent) == (code, again, code == "image_pull_permanent")
    assert word in trouble.meaning


def test_progress_is_of_all_layers() -> None:
    progress = Progress()
    for layer, current in (("a", 50), ("b", 0)):
        progress.take({"id": layer, "status": "Downloading", "progressDetail": {"current": current, "total": 100}})
    assert progress.percent == 25
    progress.take({"id": "a", "status": "Pull complete", "progressDetail": {}})
    assert progress.percent == 50


MOUNTS = """21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/my\\040share rw,relatime - nfs4 server:/x rw
31 21 0:41 / /data rw master:3 - nfs4 server:/y rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/x", "rslave"), ("/mnt/my share/ck", "rprivate"), ("/data", "rslave"), ("/database", "rslave")],
)
def test_mounts_pass_on_what_the_host_s_do(path: str, kind: str) -> None:
    assert propagation_in(MOUNTS, path) == kind


def test_what_the_document_limits_is_asked_of_the_engine() -> None:
    document = {"image": "i", "memory": "64g", "shm_size": "16g", "cpus": "2.5", "user": "1000:1000", "pull": "always"}
    options = container_options({**document, "ulimits": {"nofile": 9}, "read_only_root": True})
    assert options is not None
    made = container_body(SPEC, options, Owner("c", "n"), "/d", 1 << 30, lambda source: "rslave")
    host = made["HostConfig"]
    assert (made["User"], options.pull) == ("1000:1000", "always")
    assert (host["Memory"], host["MemorySwap"], host["ShmSize"]) == (64 << 30, 64 << 30, 16 << 30)
    assert (host["NanoCpus"], host["ReadonlyRootfs"]) == (2_500_000_000, True)
    assert {"Name": "nofile", "Soft": 9, "Hard": 9} in host["Ulimits"]
    assert "exec" in host["Tmpfs"]["/tmp"]


def test_what_the_document_leaves_open_is_not_limited() -> None:
    options = container_options({"image": "i"})
    assert options is not None
    host = container_body(replace(SPEC, gpus=()), options, Owner("c", "n"), "/d", 1 << 30, lambda source: "")
    limits = host["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["ShmSize"], limits["Ulimits"]) == (0, 0, 1 << 30, [])
    assert container_options({"command": "x"}) is None

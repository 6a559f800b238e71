"""Each claim step on a real file system and real sockets, and the deadline of a step that hangs."""

import asyncio
import os
import socket
import threading
from typing import Any

import pytest

from agentd.claims.checkpoint_probe import Seen, look, look_at
from agentd.claims.claimer import Claimer, ClaimRequest, HeldClaim
from agentd.claims.port_hold import hold_port
from agentd.claims.task_paths import check_dataset_path, check_free_space, check_mounts, prepare_checkpoint_path
from agentd.core.claim import ClaimRefused, allowed_root, check_cards, disk_refusal, may_create_root, path_refusal
from agentd.runtime.base import ContainerOptions, ImageUnavailable
from agentd.runtime.memory import MemoryRuntime
from agentd.task_host import _Progress

CARDS = ("GPU-a", "GPU-b", "GPU-c")


@pytest.mark.parametrize(
    ("wanted", "count", "in_use", "code"),
    [
        (("GPU-a", "GPU-b"), 2, {}, None),
        ((), 0, {}, None),
        ((), 2, {}, "cards_count"),
        (("GPU-a",), 2, {}, "cards_count"),
        (("GPU-a", "GPU-b", "GPU-c"), 2, {}, "cards_count"),
        (("GPU-a", "GPU-a"), 2, {}, "cards_repeated"),
        (("GPU-a", "GPU-z"), 2, {}, "cards_missing"),
        (("GPU-a", "GPU-b"), 2, {"GPU-b": "tg-1/1/0"}, "cards_busy"),
        (("GPU-a", "GPU-b"), 2, {"GPU-c": "tg-1/1/0"}, None),
    ],
)
def test_cards(wanted, count, in_use, code):
    refusal = check_cards(wanted, count, CARDS, in_use)
    assert (refusal.code if refusal else None) == code
    assert refusal is None or not refusal.permanent


@pytest.mark.attack(2)
@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/ckpt1", "/data"),
        ("/data", "/data"),
        ("/database/x", None),
        ("/data/../etc", None),
        ("/data//x", None),
        ("data/x", None),
        ("/home/ann/heteroflow/x", "/home/ann/heteroflow"),
        ("/home/ann/other/x", None),
        ("/home/heteroflow/x", None),
    ],
)
def test_allowed_roots_are_compared_by_segments(path, root):
    assert allowed_root(path, ("/data/", "/home/*/heteroflow/")) == root


def test_a_missing_root_is_a_missing_share_unless_it_is_local():
    assert may_create_root("/tmp/heteroflow") and may_create_root("/home/ann/heteroflow")
    assert not may_create_root("/data") and not may_create_root("/mnt") and not may_create_root("/tmpfs")


@pytest.mark.attack(3, 5)
def test_links_are_judged_by_where_they_lead():
    roots = ("/data/",)
    assert path_refusal("checkpoint_path", "/data/a", "/data/a", roots) is None
    assert path_refusal("checkpoint_path", "/data/a", "/data/b/a", roots) is None
    refusal = path_refusal("checkpoint_path", "/data/a", "/etc", roots)
    assert refusal is not None and refusal.permanent and refusal.code == "path_leaves_allowed"


class Tree:
    def __init__(self, tmp_path):
        self.root = tmp_path / "share"
        self.root.mkdir()
        self.roots = (f"{self.root}/",)

    def prepare(self, path):
        refusal = prepare_checkpoint_path(str(path), self.roots)
        return refusal.code if refusal else None


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_a_checkpoint_path_is_made_and_left_clean(tree):
    assert tree.prepare(tree.root / "a" / "b") is None
    assert os.listdir(tree.root / "a" / "b") == []
    assert tree.prepare(tree.root / "a" / "b") is None


def test_what_is_no_directory(tree):
    (tree.root / "file").write_text("")
    assert tree.prepare(tree.root / "file") == "path_not_directory"
    assert tree.prepare(tree.root / "file" / "below") == "path_not_directory"


@pytest.mark.attack(3)
def test_links_inside_are_followed_and_links_out_are_not(tree, tmp_path):
    (tree.root / "real").mkdir()
    (tree.root / "inside").symlink_to(tree.root / "real")
    assert tree.prepare(tree.root / "inside" / "x") is None and (tree.root / "real" / "x").is_dir()
    (tmp_path / "outside").mkdir()
    (tree.root / "out").symlink_to(tmp_path / "outside")
    assert tree.prepare(tree.root / "out" / "x") == "path_leaves_allowed"
    assert os.listdir(tmp_path / "outside") == []
    assert tree.prepare(tmp_path / "outside") == "path_not_allowed"


@pytest.mark.attack(4)
def test_a_link_swapped_in_after_the_check_is_no_way_out(tree, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tree.root / "a").mkdir()
    resolve = os.path.realpath

    def swap_after(path):
        real = resolve(path)
        os.rmdir(tree.root / "a")
        (tree.root / "a").symlink_to(tmp_path / "outside")
        return real

    monkeypatch.setattr(os.path, "realpath", swap_after)
    assert tree.prepare(tree.root / "a" / "x") in ("path_refused", "path_not_directory")
    assert os.listdir(tmp_path / "outside") == []


def test_a_share_that_is_not_mounted_is_not_made(monkeypatch):
    monkeypatch.setattr(os, "mkdir", lambda *_, **__: pytest.fail("made a directory on the system disk"))
    refusal = prepare_checkpoint_path("/no-such-share/x", ("/no-such-share/",))
    assert refusal is not None and refusal.code == "share_missing" and not refusal.permanent


def test_datasets(tree):
    (tree.root / "set").mkdir()
    assert check_dataset_path(str(tree.root / "set"), tree.roots) is None
    missing = check_dataset_path(str(tree.root / "none"), tree.roots)
    assert missing is not None and missing.code == "dataset_missing" and not missing.permanent


def test_disk_space(tree):
    assert check_free_space("here", str(tree.root), 1) is None
    refusal = disk_refusal("here", "/x", 5 << 20, 64 << 20)
    assert refusal is not None and "5 MiB free" in refusal.text


HOST = "127.9.8.7"


def test_a_held_port_is_nobody_else_s_and_free_at_once_after():
    with socket.socket() as any_port:
        any_port.bind((HOST, 0))
        port = any_port.getsockname()[1]
    held = hold_port(HOST, port)
    assert isinstance(held, socket.socket)
    again = hold_port(HOST, port)
    assert isinstance(again, ClaimRefused) and again.code == "port_taken" and str(port) in again.text
    with socket.socket() as intruder:
        intruder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError):
            intruder.bind((HOST, port))
    with socket.socket() as early_peer:
        assert early_peer.connect_ex((HOST, port)) != 0, "an early rank must be refused, not accepted and reset"
    held.close()
    with socket.create_server((HOST, port)):
        taken = hold_port(HOST, port)
    assert isinstance(taken, ClaimRefused)


def test_a_port_whose_last_trainer_s_connections_linger():
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((HOST, port))
        served, _ = server.accept()
        served.close()  # the side that closes first keeps the port in TIME_WAIT
        client.close()
    held = hold_port(HOST, port)
    assert isinstance(held, socket.socket), held
    held.close()


def test_the_probe_counts_directories_only(tmp_path):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "weights").write_text("x")
    (tmp_path / "step-2").write_text("")
    (tmp_path / "step-3").symlink_to(tmp_path / "step-1")
    os.mkfifo(tmp_path / "step-4")
    wanted = {"path": f"{tmp_path}/step-1", "step": 1, "source": "checkpoint_path"}
    roots = [str(tmp_path.parent)]
    assert look(str(tmp_path), None, roots).resume == look(str(tmp_path), "fsdp", roots).resume == wanted
    assert look(str(tmp_path), "megatron", roots).resume is None, "by the rules of the framework"


def test_the_probe_asks_again_where_the_path_leads(tmp_path):
    (tmp_path / "allowed").mkdir()
    (tmp_path / "other" / "step-1").mkdir(parents=True)
    (tmp_path / "allowed" / "ckpt").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="outside what is allowed"):
        look(str(tmp_path / "allowed" / "ckpt"), "ddp", [str(tmp_path / "allowed")])


def request(tree, **changed):
    facts: dict[str, Any] = {
        "name": "tg-a/1/0",
        "cards": ("GPU-a",),
        "cards_wanted": 1,
        "port": 0,
        "checkpoint_path": str(tree.root / "ckpt"),
        "dataset_path": None,
    }
    return ClaimRequest(**(facts | changed))


@pytest.fixture
def claimer(tree, tmp_path):
    return Claimer(CARDS, tree.roots, tmp_path, HOST, MemoryRuntime().get_image)


async def test_a_claim_tells_what_there_is_to_resume(tree, claimer):
    (tree.root / "ckpt" / "step-7").mkdir(parents=True)
    (tree.root / "ckpt" / "step-7" / "weights").write_text("x")
    held = await claimer.claim(request(tree), {})
    assert isinstance(held, HeldClaim) and held.resume is not None and held.resume["step"] == 7
    assert held.sees is not None and held.sees["pick"] == "step-7"


async def test_a_claim_tells_where_its_checkpoint_path_leads(tree, claimer):
    held = await claimer.claim(request(tree), {})
    assert isinstance(held, HeldClaim) and held.checkpoint_real is None, "no link is in it"
    held.release()
    (tree.root / "elsewhere").mkdir()
    (tree.root / "by-link").symlink_to("elsewhere")
    for path in ("by-link", "by-link/deeper"):
        held = await claimer.claim(request(tree, checkpoint_path=str(tree.root / path)), {})
        assert isinstance(held, HeldClaim), held
        assert held.checkpoint_real == str(tree.root / path.replace("by-link", "elsewhere"))
        held.release()


async def test_a_path_that_the_document_names_is_looked_at_instead(tree, claimer):
    for step in (5, 7):
        (tree.root / "ckpt" / f"step-{step}").mkdir(parents=True)
        (tree.root / "ckpt" / f"step-{step}" / "weights").write_text("x")
    path = str(tree.root / "ckpt" / "step-5")
    held = await claimer.claim(request(tree, resume_from_checkpoint=path), {})
    assert isinstance(held, HeldClaim) and held.sees is not None
    assert held.resume == {"path": path, "step": 5, "source": "document"}
    told = (held.sees["pick"], held.sees["field"], held.sees.get("code"))
    assert told == (path, "resume_from_checkpoint", None)
    assert "mark" not in held.sees, "the mark is that of the newest one in checkpoint_path"
    outside = await claimer.claim(request(tree, resume_from_checkpoint="/etc/passwd"), {})
    assert isinstance(outside, ClaimRefused) and outside.permanent
    (tree.root / "way").symlink_to("/etc")
    through = await claimer.claim(request(tree, resume_from_checkpoint=str(tree.root / "way" / "passwd")), {})
    assert isinstance(through, ClaimRefused) and through.code == "path_leaves_allowed"
    os.mkfifo(tree.root / "pipe")
    pipe = await claimer.claim(request(tree, resume_from_checkpoint=str(tree.root / "pipe")), {})
    assert isinstance(pipe, ClaimRefused) and (pipe.code, pipe.permanent) == ("resume_refused", True)


@pytest.mark.parametrize(
    ("name", "framework", "code", "words"),
    [
        ("gone", None, "resume_missing", "gone does not exist there"),
        ("stem", None, "resume_missing", "stem does not exist there"),
        ("stem", "tensorflow", "", "stem is of no layout that is known here, and taken as it is"),
        ("empty", None, "resume_incomplete", "empty is not complete there: is empty"),
        ("step-1", None, "resume_incomplete", "holds nothing but its marker"),
        ("cut.pt", None, "resume_incomplete", "cut.pt is cut short"),
        ("step-9.inprogress", None, "resume_incomplete", "a temporary name"),
        ("final", None, "", "final is of no layout that is known here, and taken as it is"),
        ("step_3", None, "", "step_3 is of no layout that is known here, and taken as it is"),
        ("best", None, "", "best is complete"),  # whatever the one before it has
        ("root", None, "", "taken as it is"),
    ],
)
async def test_what_is_said_of_a_path_that_the_document_names(tree, claimer, name, framework, code, words):
    for directory in ("empty", "step-1", "step-9.inprogress", "final", "step_3", "step-4", "root/step-1"):
        (tree.root / directory).mkdir(parents=True)
    for file in ("step-1/.complete", "step-9.inprogress/w", "final/w", "step_3/w", "step-4/w", "root/step-1/w"):
        (tree.root / file).write_text("x")
    (tree.root / "cut.pt").write_bytes(b"PK\x03\x04" + b"x" * 100)
    (tree.root / "stem.index").write_text("x")
    (tree.root / "best").symlink_to("step-4")
    seen = look_at(str(tree.root / name), framework, tree.roots)
    assert isinstance(seen, Seen) and words in seen.sees["text"], seen
    assert (seen.sees.get("code", ""), bool(seen.resume)) == (code, not code)
    again = await claimer.claim(request(tree, resume_from_checkpoint=str(tree.root / name), framework=framework), {})
    assert isinstance(again, HeldClaim) and again.sees == seen.sees, "it is told, and no claim is refused for it"


def test_a_path_that_is_an_allowed_directory_itself_is_not_judged_by_what_lies_beside_it(tmp_path):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / ".complete").write_text("x")
    seen = look_at(str(tmp_path / "step-1"), None, [str(tmp_path / "step-1")])
    assert isinstance(seen, Seen) and "no layout" in seen.sees["text"]
    (tmp_path / "share").mkdir()
    seen = look_at(str(tmp_path / "share"), None, [str(tmp_path / "share")])
    assert isinstance(seen, Seen) and seen.sees["code"] == "resume_incomplete", "nothing is mounted there"


@pytest.mark.parametrize(
    ("name", "refused"),
    [("step-1", False), ("latest", False), ("round", False), ("absolute", True), ("up", True), ("absolute/w", True)],
)
def test_a_container_follows_links_by_itself(tree, name, refused):
    run = tree.root / "run"
    (run / "step-1").mkdir(parents=True)
    (run / "step-1" / "w").write_text("x")
    (run / "latest").symlink_to("step-1")
    (run / "round").symlink_to("step-1/../latest")
    (run / "absolute").symlink_to(run / "step-1")
    (tree.root / "step-2").mkdir()
    (tree.root / "step-2" / "w").write_text("x")
    (run / "up").symlink_to("../step-2")
    seen = look_at(str(run / name), None, tree.roots, (), str(run))
    assert isinstance(seen, ClaimRefused) is refused, seen
    if isinstance(seen, ClaimRefused):
        assert seen.permanent and "cannot follow" in seen.text and os.path.realpath(run / name) in seen.text
    assert isinstance(look_at(str(run / name), None, tree.roots), Seen), "on the host it leads there"


def test_the_directory_that_a_container_is_shown_is_allowed_too(tree):
    (tree.root / "ckpt-5.index").write_text("x")
    seen = look_at(str(tree.root / "ckpt-5"), "tensorflow", [f"{tree.root}/ckpt-5"], (), str(tree.root))
    assert isinstance(seen, ClaimRefused) and seen.code == "path_not_allowed"


def test_what_agents_write_while_others_look_is_no_difference(tree):
    (tree.root / "run" / "weights").mkdir(parents=True)
    path = str(tree.root / "run")
    before = look_at(path, None, tree.roots)
    (tree.root / "run" / ".heteroflow-probe-1-ab").write_text("")
    assert look_at(path, None, tree.roots) == before
    (tree.root / "run" / "more").write_text("")
    assert look_at(path, None, tree.roots) != before


async def test_every_declared_port_is_held_until_the_start_and_none_after_a_refusal(tree, claimer):
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        ports = (one.getsockname()[1], other.getsockname()[1])
    held = await claimer.claim(request(tree, ports=ports), {})
    assert isinstance(held, HeldClaim)
    for port in ports:
        assert isinstance(hold_port(HOST, port), ClaimRefused)
    held.release()
    with socket.create_server((HOST, ports[1])):
        refusal = await claimer.claim(request(tree, ports=ports), {})
        assert isinstance(refusal, ClaimRefused) and refusal.code == "port_taken" and not refusal.permanent
        assert f"port {ports[1]}, meant for this task" in refusal.text
        again = hold_port(HOST, ports[0])
        assert isinstance(again, socket.socket), "the first one was let go of with the refusal"
        again.close()


async def test_a_step_past_its_deadline_is_named(tree, claimer, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr("agentd.claims.claimer.prepare_checkpoint_path", lambda *_: release.wait())
    monkeypatch.setattr("agentd.claims.claimer.DEADLINE_S", {"checkpoint_path": 0.05})
    refusal = await claimer.claim(request(tree), {})
    release.set()
    assert isinstance(refusal, ClaimRefused) and refusal.code == "checkpoint_path_timeout" and not refusal.permanent


async def test_nothing_is_held_by_a_claim_that_was_refused_or_cancelled(tree, claimer, monkeypatch):
    with socket.socket() as any_port:
        any_port.bind((HOST, 0))
        port = any_port.getsockname()[1]

    def vanished(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("agentd.claims.claimer.look", vanished)
    refusal = await claimer.claim(request(tree, port=port), {})
    assert isinstance(refusal, ClaimRefused) and refusal.code == "checkpoint_probe_failed"
    release, reached = threading.Event(), threading.Event()

    def hangs(*_):
        reached.set()
        release.wait()

    monkeypatch.setattr("agentd.claims.claimer.look", hangs)
    task = asyncio.create_task(claimer.claim(request(tree, port=port), {}))
    assert await asyncio.to_thread(reached.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    with socket.create_server((HOST, port)):
        pass


def claimer_of(tree, tmp_path, get_image):
    return Claimer(CARDS, tree.roots, tmp_path, HOST, get_image)


@pytest.mark.parametrize("permanent", [True, False])
async def test_an_image_that_cannot_be_had_is_a_refusal_in_its_own_words(tree, tmp_path, permanent):
    async def get_image(options, say):
        raise ImageUnavailable(f"no {options.image}", "image_pull_transient", permanent)

    wanted = request(tree, container=ContainerOptions("team/pt:1"))
    refusal = await claimer_of(tree, tmp_path, get_image).claim(wanted, {})
    assert refusal == ClaimRefused("image_pull_transient", "no team/pt:1", permanent)


async def test_an_image_comes_behind_what_is_told_at_once_and_before_what_would_be_old(tree, tmp_path):
    asked = []
    checkpoint = tree.root / "ckpt" / "step-7"

    async def get_image(options, say):
        asked.append(options.image)
        say("pulling image team/pt:1, 3 %")
        # Saved while it came: the newest is what a resume must begin at.
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_text("x")

    claimer, said = claimer_of(tree, tmp_path, get_image), []
    container = ContainerOptions("team/pt:1")
    refusal = await claimer.claim(request(tree, container=container, mounts=(str(tree.root / "none"),)), {})
    assert isinstance(refusal, ClaimRefused) and refusal.code == "mount_missing" and not refusal.permanent
    assert asked == [] and not (tree.root / "none").exists()
    (tree.root / "code").mkdir()
    held = await claimer.claim(request(tree, container=container, mounts=(str(tree.root / "code"),)), {}, said.append)
    assert isinstance(held, HeldClaim) and held.resume is not None and held.resume["step"] == 7
    assert (asked, said) == (["team/pt:1"], ["pulling image team/pt:1, 3 %"])


@pytest.mark.attack(5, 13)
def test_a_mount_does_not_lead_out_of_what_is_allowed(tree):
    (tree.root / "link").symlink_to("/etc")
    refusal = check_mounts([str(tree.root / "link")], tree.roots)
    assert refusal is not None and (refusal.code, refusal.permanent) == ("path_leaves_allowed", True)


@pytest.mark.attack(13, 16)
def test_a_mount_is_no_door_to_the_host(tree):
    path = str(tree.root / "door")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        refusal = check_mounts([path], tree.roots)
    assert refusal is not None and (refusal.code, refusal.permanent) == ("mount_refused", True)


def test_how_far_a_claim_is_goes_through_the_log_at_once_and_then_once_a_minute(monkeypatch):
    now, woken = [1000.0], []
    monkeypatch.setattr("agentd.task_host.time.monotonic", lambda: now[0])
    progress = _Progress("tg-a/1/0", lambda: woken.append(1))
    assert progress.text == ""
    progress.say("1 %")
    assert (progress.text, woken) == ("1 %", [1])
    progress.say("2 %")
    now[0] += 59
    assert progress.text == "1 %"
    now[0] += 1
    progress.say("3 %")
    assert (progress.text, woken) == ("3 %", [1])


async def test_the_parents_checkpoint_is_proved_where_nothing_of_its_own_is_there(tree, claimer):
    parent = (str(tree.root / "base"), str(tree.root / "base" / "step-5"))
    refusal = await claimer.claim(request(tree, parent=parent), {})
    assert isinstance(refusal, ClaimRefused) and refusal.code == "parent_missing" and "mounted" in refusal.text
    (tree.root / "base").mkdir()
    refusal = await claimer.claim(request(tree, parent=parent), {})
    assert isinstance(refusal, ClaimRefused) and refusal.code == "parent_missing" and not refusal.permanent
    (tree.root / "base" / "step-5.index").write_text("as TensorFlow names them")
    assert isinstance(await claimer.claim(request(tree, parent=parent), {}), HeldClaim)
    (tree.root / "base" / "step-5.index").unlink()
    (tree.root / "base" / "step-5").mkdir()
    held = await claimer.claim(request(tree, parent=parent), {})
    assert isinstance(held, HeldClaim) and held.resume is None and held.sees is not None

    outside = await claimer.claim(request(tree, parent=("/etc", "/etc/passwd")), {})
    assert isinstance(outside, ClaimRefused) and outside.permanent
    (tree.root / "way").symlink_to("/etc")
    through = await claimer.claim(request(tree, parent=(str(tree.root / "way"), str(tree.root / "way" / "passwd"))), {})
    assert isinstance(through, ClaimRefused)

    (tree.root / "ckpt" / "step-7").mkdir(parents=True)
    (tree.root / "ckpt" / "step-7" / "weights").write_text("x")
    own = await claimer.claim(request(tree, parent=(str(tree.root / "gone"), str(tree.root / "gone" / "x"))), {})
    assert isinstance(own, HeldClaim) and own.resume is not None and own.resume["step"] == 7


async def test_the_model_to_begin_with_is_there_and_readable(tree, claimer):
    base = tree.root / "model"
    refusal = await claimer.claim(request(tree, base_checkpoint=str(base)), {})
    assert isinstance(refusal, ClaimRefused) and refusal.code == "base_missing" and str(base) in refusal.text
    base.write_text("one file is a model too")
    assert isinstance(await claimer.claim(request(tree, base_checkpoint=str(base)), {}), HeldClaim)
    outside = await claimer.claim(request(tree, base_checkpoint="/etc/passwd"), {})
    assert isinstance(outside, ClaimRefused) and outside.permanent

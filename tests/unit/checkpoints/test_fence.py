"""The fence on a real disk: nothing leads out, nothing is opened that does something, nothing is read without end."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agentd.checkpoints.fenced import kernel, open_fenced
from schemas.rules.checkpoints import fence
from schemas.rules.checkpoints.fence import Kernel, open_root, open_without_links
from schemas.rules.checkpoints.probe import FRAMEWORKS, probe
from schemas.rules.checkpoints.view import NAMES_MAX, Unreadable
from tests.unit.checkpoints.trees import copied, probed

SWAPS = int(os.environ.get("HF_SWAPS", "100000"))
OUTSIDE = b"outside"


def without_openat2() -> Kernel:
    return Kernel(os)


@pytest.fixture(params=[kernel, without_openat2], ids=["openat2", "O_NOFOLLOW"])
def kernel_of(request):
    return request.param


def test_the_kernel_of_this_host_is_asked_with_openat2(tmp_path):
    asked = kernel()
    (tmp_path / "file").write_bytes(b"x")
    with open_root(asked, str(tmp_path)) as root:
        assert root.read("file", 0, 1) == b"x"
    trace = Kernel(os, lambda *words: -1, lambda: 38)  # ENOSYS: an old kernel
    with open_root(trace, str(tmp_path)) as root:
        assert root.read("file", 0, 1) == b"x" and not trace.openat2
    assert asked.openat2 or os.uname().release.split(".") < ["5", "6"]


@pytest.mark.attack(1)
@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc/passwd", "a\0b"])
def test_names_of_more_than_one_segment(tmp_path, kernel_of, name):
    with open_root(kernel_of(), str(tmp_path)) as root:
        for use in (root.stat, root.open, lambda name: root.read(name, 0, 1)):
            with pytest.raises(Unreadable, match="no single name"):
                use(name)


@pytest.mark.attack(3)
def test_links_are_not_followed(tmp_path, kernel_of):
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "file").symlink_to("/etc/hostname")
    (tmp_path / "magic").symlink_to("/proc/self/root")
    with open_root(kernel_of(), str(tmp_path)) as root:
        for name in ("out", "magic"):
            with pytest.raises(Unreadable, match="link"):
                root.open(name)
        with pytest.raises(Unreadable, match="symbolic link"):
            root.read("file", 0, 1)


@pytest.mark.attack(4)
def test_a_segment_above_that_becomes_a_link(tmp_path, kernel_of):
    real = tmp_path / "a" / "b"
    real.mkdir(parents=True)
    with open_without_links(kernel_of(), str(real.resolve())) as root:
        assert root.names() == {}
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "a").symlink_to(tmp_path / "c")
    with pytest.raises(OSError):
        open_without_links(kernel_of(), str(tmp_path.resolve() / "a" / "b"))


@pytest.mark.attack(6)
def test_pipes_sockets_and_devices_are_never_opened(tmp_path, kernel_of):
    os.mkfifo(tmp_path / "pipe")
    with contextlib.suppress(PermissionError):
        os.mknod(tmp_path / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    opened: list[str] = []

    class Watched:
        def __getattr__(self, name):
            return getattr(os, name)

        def open(self, path, flags, mode=0o777, *, dir_fd=None):
            opened.append(path)
            return os.open(path, flags, mode, dir_fd=dir_fd)

    asked = kernel_of()
    asked.calls = Watched()
    asked.openat2 = False
    with open_root(asked, str(tmp_path)) as root:
        assert set(root.names().values()) == {"other"}
        for name in root.names():
            with pytest.raises(Unreadable, match="no regular file"):
                root.read(name, 0, 1)
    listener.close()
    assert opened == [str(tmp_path)]


class Recorded:
    """The module `os`, with every name that is opened or looked at."""

    def __init__(self):
        self.names: set[str] = set()

    def __getattr__(self, name):
        return getattr(os, name)

    def open(self, path, flags, mode=0o777, *, dir_fd=None):
        self.names.add(path)
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def stat(self, path, *, dir_fd=None, follow_symlinks=True):
        assert not follow_symlinks
        self.names.add(path)
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=False)


@pytest.mark.attack(1)
def test_names_written_in_files_lead_nowhere(tmp_path):
    """Trackers, indexes and metadata that name files elsewhere: no such name reaches the kernel."""
    tree = copied("deepspeed-zero2/complete", tmp_path)
    shutil.copytree(copied("hf-trainer/complete", tmp_path / "hf"), tree, dirs_exist_ok=True)
    shutil.copytree(copied("layout-only/megatron-legacy-torch/complete", tmp_path / "m"), tree, dirs_exist_ok=True)
    shutil.copytree(copied("tensorflow-mwms/complete", tmp_path / "tf"), tree, dirs_exist_ok=True)
    for name in ("latest", "latest_checkpointed_iteration.txt"):
        (tree / name).write_text("../../../etc/global_step9")
    (tree / "checkpoint").write_text('model_checkpoint_path: "/etc/ckpt-60"')
    (tree / "checkpoint-20" / "model.safetensors.index.json").write_text('{"weight_map": {"a": "/etc/passwd"}}')
    (tree / "step-9").mkdir()
    hostile = b"\x80\x04}(\x8c\x0cstorage_data}NN\x8c\x0b/etc/passwd\x8c\x01xus."
    (tree / "step-9" / ".metadata").write_bytes(hostile)
    recorded = Recorded()
    for framework in FRAMEWORKS:
        with open_root(Kernel(recorded), str(tree)) as root:
            probe(root, framework)
    assert {name for name in recorded.names if "/" in name or name == ".."} == {str(tree)}
    assert len(recorded.names) > 20


@pytest.mark.attack(6)
def test_a_huge_sparse_file_costs_nothing(tmp_path):
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    shard = tree / "step-20" / "__0_0.distcp"
    before = shard.stat()
    os.truncate(shard, 1 << 40)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.truncate(tree / "step-10" / ".metadata", 1 << 40)
    (tree / "step-30").mkdir()
    with (tree / "step-30" / ".metadata").open("wb") as file:
        file.truncate(1 << 40)
    began = time.process_time()
    found = probed(tree, "fsdp")
    assert found.pick == "step-20" and "more than" in dict(found.rejected)["step-30"]
    assert time.process_time() - began < 5


@pytest.mark.attack(6)
def test_what_is_read_in_one_look_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(fence, "READ_MAX", 100)
    (tmp_path / "file").write_bytes(bytes(80))
    asked = Kernel(os, read_left=100)
    with open_root(asked, str(tmp_path)) as root:
        assert len(root.read("file", 0, 80)) == 80
        with pytest.raises(Unreadable, match="more than"):
            root.read("file", 0, 80)


@pytest.mark.attack(6)
def test_a_directory_of_too_many_names(tmp_path, monkeypatch):
    monkeypatch.setattr(fence, "NAMES_MAX", 50)
    for number in range(60):
        (tmp_path / f"step-{number}").mkdir()
    found = probed(tmp_path, "ddp")
    assert "more names than are looked at" in found.reason
    assert NAMES_MAX == 100_000


def test_names_that_are_no_text(tmp_path):
    place = os.fsencode(tmp_path)
    os.mkdir(place + b"/step-\xff20")
    os.mkdir(place + b"/\xffstep-20.tmp")
    os.symlink(b"/etc", place + b"/step-7")
    inside = place + b"/step-5"
    os.mkdir(inside)
    Path(os.fsdecode(inside), "meta.json").write_text('{"step": 5}')
    with open(inside + b"/\xfe\xff.bin", "wb") as file:
        file.write(b"x")
    found = probed(tmp_path, "ddp")
    assert found.pick == "step-5"
    assert all(text.isprintable() for row in found.rejected for text in row)


def test_a_directory_that_cannot_be_listed(tmp_path):
    """Root lists everything: the kernel's answer is played."""

    class Refused:
        def __getattr__(self, name):
            return getattr(os, name)

        def scandir(self, descriptor):
            raise PermissionError(13, "Permission denied")

    with open_root(Kernel(Refused()), str(tmp_path)) as root:
        found = probe(root, "ddp")
    assert found.pick is None and "cannot be listed: Permission denied" in found.reason


def test_no_descriptor_stays_open(tmp_path):
    tree = copied("layout-only/accelerate-fsdp-sharded/complete", tmp_path)
    (tree / "checkpoint_9").mkdir()
    (tree / "checkpoint_8").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    for framework in ("fsdp", "deepspeed", "megatron", "tensorflow", "paddle", "jax"):
        probed(tree, framework)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.attack(4)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kernel_name", ["kernel", "without_openat2"])
def test_links_swapped_in_meanwhile_never_lead_out(tmp_path, kernel_name, record_property):
    """A directory and a file change places with links to the outside, all the time; whatever is read is from inside."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place, content in ((inside / "step-1", b"inside!"), (outside, OUTSIDE)):
        place.mkdir(parents=True)
        (place / "secret").write_bytes(content)
    (inside / "file").write_bytes(b"inside!")
    (inside / "dirlink").symlink_to(outside)
    (inside / "filelink").symlink_to(outside / "secret")
    asked = {"kernel": kernel, "without_openat2": without_openat2}[kernel_name]()
    seen: Counter[str] = Counter()
    command = [sys.executable, "-c", SWAPPER, str(inside), str(SWAPS)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper,
        open_root(asked, str(inside)) as root,
    ):
        assert swapper.stdout is not None and swapper.stdout.readline() == "swapping\n"
        while swapper.poll() is None:
            for look in (lambda: root.read("file", 0, 64), lambda: secret_of(root)):
                try:
                    seen[look().decode()] += 1
                except Unreadable as why:
                    seen["refused" if "link" in str(why) or "missing" in str(why) else str(why)] += 1
        assert swapper.stdout.read() == f"{SWAPS}\n" and swapper.returncode == 0
    assert set(seen) == {"inside!", "refused"}, seen
    record_property("attempts", SWAPS)


def secret_of(root):
    with root.open("step-1") as directory:
        return directory.read("secret", 0, 64)


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
print("swapping", flush=True)
for turn in range(int(sys.argv[2])):
    one, two = ((b"step-1", b"dirlink"), (b"file", b"filelink"))[turn // 3 % 2]
    if libc.renameat2(-100, one, -100, two, 2):  # AT_FDCWD, RENAME_EXCHANGE
        raise OSError(ctypes.get_errno(), "renameat2")
print(turn + 1)
"""


def test_the_agent_s_way_in_resolves_links_of_the_path_once(tmp_path):
    tree = copied("hf-trainer/complete", tmp_path)
    (tmp_path / "alias").symlink_to(tree)
    assert probed(tmp_path / "alias", "ddp").pick == "checkpoint-20"
    with pytest.raises(FileNotFoundError):
        open_fenced(str(tmp_path / "nowhere"))

"""The looks at this very host: what hangs or breaks takes no other with it, and facts are what is there."""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from agentd.core.doctor.finding import Unanswered
from agentd.doctor.cuda import look_at_cuda
from agentd.doctor.family import holder_of
from agentd.doctor.probe import look_at_all
from agentd.doctor.reach import listening, look_at_clock, look_at_reach
from agentd.doctor.storage import look_at_disk, look_at_shares, mount_of, read_mounts

# A forked test process that warns of its threads is none of the doctor's, which has one.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def setup(**changes):
    return {
        "data_dir": "/none",
        "runtime": "process",
        "gpus": "none",
        "docker_socket": "/none",
        "api": "127.0.0.1:7460",
        "voter": "127.0.0.1:7461",
        "allow_paths": [],
    } | changes


def test_what_hangs_breaks_or_dies_takes_no_other_with_it(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def hang():
        # As a share does: in the kernel, deaf to all but SIGKILL.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fifo.read_text()

    def shout():
        print("text on stdout")
        return {"loud": True}

    before = time.monotonic()
    seen = look_at_all(
        {
            "hang": hang,
            "break": lambda: 1 // 0,
            "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "no json": lambda: object(),
            "long": lambda: ["x" * 1000] * 1000,
            "shout": shout,
        },
        2.0,
    )
    assert time.monotonic() - before < 30
    assert list(seen) == ["hang", "break", "die", "no json", "long", "shout"]
    assert "within 2 s" in seen["hang"].text and "ZeroDivisionError" in seen["break"].text
    assert seen["die"].text == f"ended by signal {signal.SIGKILL:d}"
    assert isinstance(seen["no json"], Unanswered)
    assert len(seen["long"]) == 1000 and seen["shout"] == {"loud": True}


class FakeCuda:
    """libcuda as it answers where a card is sick; ctypes gives its functions by name."""

    def __init__(self, devices=1, fail="", code=700, fill=None):
        self._devices, self._fail, self._code, self._fill = devices, fail, code, fill
        self.freed = []

    def __getattr__(self, name):
        def call(*arguments):
            if name == self._fail:
                return self._code
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self._devices
            if name == "cuMemsetD8_v2" and self._fill is None:
                self._fill = arguments[1].value
            if name == "cuMemcpyDtoH_v2":
                ctypes.memset(arguments[0], self._fill or 0, arguments[2].value)
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
            if name in ("cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"):
                self.freed.append(name)
            return 0

        return call


def test_cards_that_compute():
    library = FakeCuda(devices=2)
    assert look_at_cuda(library) == {"error": "", "devices": [{"index": 0, "error": ""}, {"index": 1, "error": ""}]}
    assert library.freed == ["cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"] * 2


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (FakeCuda(fail="cuInit"), "cuInit answers CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        (FakeCuda(fail="cuMemAlloc_v2"), "cuMemAlloc_v2 answers"),
        (FakeCuda(fail="cuMemsetD8_v2"), "cuMemsetD8_v2 answers"),
        (FakeCuda(fill=0x01), "memory is faulty"),
    ],
)
def test_a_card_that_does_not(library, words):
    seen = look_at_cuda(library)
    assert words in (seen["error"] or seen["devices"][0]["error"])


def test_ports_that_are_taken_free_ours_or_of_no_address_here(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        where = setup(api=address, voter="192.0.2.7:7461", data_dir=str(tmp_path))
        api, voter = look_at_reach(where)["ports"]
        assert api["state"] == "taken" and f"process {os.getpid()}" in api["holder"]
        assert voter["state"] == "absent"
        # The same socket, of a process that holds the directory's lock.
        lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, f"{os.getpid()}\n".encode())
            assert look_at_reach(where)["ports"][0]["state"] == "ours"
        finally:
            os.close(lock)
        assert holder_of(tmp_path / "lock") == 0
    assert look_at_reach(where)["ports"][0]["state"] == "free"


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_who_listens_is_read_from_the_kernel(family, host):
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        assert host in [address.host for address in listening(port)]
    assert listening(port) == {}


def test_a_disk_is_measured_where_the_directory_will_be(tmp_path):
    seen = look_at_disk(setup(data_dir=str(tmp_path / "not" / "yet")))
    assert seen["path"] == str(tmp_path) and seen["error"] == "" and seen["kind"]
    assert seen["fsync_ms"] and min(seen["fsync_ms"]) > 0
    assert list(tmp_path.iterdir()) == []
    assert look_at_disk(setup(data_dir="/proc/none"))["error"].startswith("cannot be written")


def test_mounts(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        "# comment\n/dev/sda1 / ext4 rw 0 0\nsrv:/a\\040b /mnt/a\\040b nfs4 rw 0 0\n/dev/sdb /mnt xfs rw 0 0\nshort\n"
        "overlay /mnt overlay rw 0 0\n"
    )
    mounts = read_mounts(str(table))
    assert len(mounts) == 4
    assert mount_of("/mnt/a b/x", mounts)["kind"] == "nfs4" and mount_of("/mnt/ab", mounts)["kind"] == "overlay"
    assert mount_of("/mntx", mounts)["target"] == "/" and mount_of("/x", []) is None


def test_shares_are_found_and_touched(tmp_path):
    here, gone = tmp_path / "here", tmp_path / "gone"
    here.mkdir()
    table, fstab = tmp_path / "mounts", tmp_path / "fstab"
    table.write_text(f"/dev/sda1 / ext4 rw 0 0\nsrv:/h {here} nfs rw 0 0\nsrv:/g {gone} nfs rw 0 0\n")
    fstab.write_text(f"srv:/w {tmp_path}/wanted nfs4 _netdev 0 0\nproc none swap sw 0 0\n")
    seen = look_at_shares(setup(allow_paths=[f"{tmp_path}/"]), str(table), str(fstab))
    assert seen["answers"][str(here)] == "" and "FileNotFoundError" in seen["answers"][str(gone)]
    assert [mount["target"] for mount in seen["wanted"]] == [f"{tmp_path}/wanted"]
    assert next(root for root in seen["roots"] if root["said"])["exists"]


def test_a_clock_is_compared_with_those_of_the_nodes_it_knows(tmp_path):
    code = (
        "import http.server as h, sys\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'{}')\n"
        "    def date_time_string(self, timestamp=None):\n"
        "        import email.utils, time\n"
        "        return email.utils.formatdate(time.time() + 3600, usegmt=True)\n"
        "    def log_message(self, *a): pass\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), H); print(s.server_address[1], flush=True); s.serve_forever()\n"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        seats = [{"api_addr": f"127.0.0.1:{port}"}, {"api_addr": "127.0.0.1:1"}, {"api_addr": "127.0.0.1:7460"}]
        (tmp_path / "founding.json").write_text(json.dumps({"seats": seats}))
        seen = look_at_clock(setup(data_dir=str(tmp_path)))
    finally:
        server.kill()
        server.communicate()
    assert [peer["address"] for peer in seen["peers"]] == [f"127.0.0.1:{port}"] and seen["silent"] == ["127.0.0.1:1"]
    (peer,) = seen["peers"]
    assert abs(peer["ahead_s"] + 3600) <= peer["within_s"] + 0.1


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "agentd.cli", "doctor", "--data-dir", str(tmp_path), "--gpus", "none"]
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    findings = json.loads(told.stdout)
    assert told.returncode == any(finding["state"] == "fail" for finding in findings)
    assert {frozenset(finding) for finding in findings} == {frozenset(("check", "state", "what", "why", "fix"))}
    broken = subprocess.run(
        [*command, "--runtime", "docker", "--docker-socket", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert broken.returncode == 1 and "FAIL  engine" in broken.stdout and "systemctl start docker" in broken.stdout

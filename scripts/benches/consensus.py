"""Commits a second of 500-byte commands through three voters, beside etcd on the same disk with the same proposers.

Also in the same run: one bare SQLite FULL commit and one WebSocket round trip, the floor under a commit's latency.
The load comes from this process, through the leader's Unix socket; etcd's from its own Go client to its leader.
Rounds alternate, because disk and machine drift; a ratio is the median of the rounds' ratios.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from aiohttp import ClientSession, WSMsgType, web

from mesh.client import VoterClient
from schemas.commands import command

ROOT = Path(__file__).resolve().parents[2]
PROPOSERS = (1, 16, 64)
ROUNDS = int(os.environ.get("HF_BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("HF_BENCH_SECONDS", "2"))
PAYLOAD = 500
TOKEN = "bench"
GOPATH = "/usr/share/gocode"


class Missing(Exception):
    """Raised when a reference is required but not there."""


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(took_ms: list[float], seconds: float) -> dict[str, float]:
    return {"rate": len(took_ms) / seconds, "p50": percentile(took_ms, 0.5), "p99": percentile(took_ms, 0.99)}


# -- the mesh's voters


@contextlib.contextmanager
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_voters(base: Path, started: list[subprocess.Popen[bytes]]) -> list[Path]:
    port = random.randrange(20_000, 29_000)
    (base / "token").write_text(TOKEN)
    voters = [{"raft_id": n, "node": f"bench-{n}", "voter_addr": f"127.0.0.1:{port + n}"} for n in (1, 2, 3)]
    roster = json.dumps({"cluster_id": "bench", "epoch": 1, "voters": voters})
    sockets = []
    for n in (1, 2, 3):
        directory = base / f"voter-{n}"
        directory.mkdir(mode=0o700)
        (directory / "roster.json").write_text(roster)
        arguments: list[str | Path] = [
            "--data-dir",
            directory,
            "--raft-id",
            str(n),
            "--roster",
            directory / "roster.json",
        ]
        arguments += ["--listen", f"127.0.0.1:{port + n}", "--token-file", base / "token", "--profile", "fast"]
        with (base / f"voter-{n}.log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, "-m", "mesh.voter", *arguments], cwd=ROOT, stderr=log))
        sockets.append(directory / "voter.sock")
    return sockets


async def leading(sockets: list[Path]) -> VoterClient:
    """A client of the leader's own socket."""
    clients = [VoterClient([str(path)], TOKEN) for path in sockets]
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for client in clients:
                await client.connect()
                if client.leader is not None and client.leader.me:
                    clients.remove(client)
                    return client
            await asyncio.sleep(0.1)
    finally:
        for client in clients:
            await client.close()
    raise Missing("the voters elected no leader within 20 s")


async def load(client: VoterClient, proposers: int, seconds: float) -> dict[str, float]:
    payload = b"x" * PAYLOAD
    took: list[float] = []
    begun = time.perf_counter()
    until = begun + seconds

    async def proposer() -> None:
        while (at := time.perf_counter()) < until:
            answer = await client.propose(command("Noop", payload=payload), timeout_s=20)
            if not answer["ok"]:
                raise Missing(f"a command was refused: {answer['text']}")
            took.append((time.perf_counter() - at) * 1000)

    await asyncio.gather(*[proposer() for _ in range(proposers)])
    return summary(took, time.perf_counter() - begun)


# -- etcd


def etcd_missing() -> str | None:
    for program in ("etcd", "go"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: etcd-server, golang-go, golang-etcd-server-dev)"
    if not Path(GOPATH, "src/go.etcd.io/etcd/clientv3").is_dir():
        return "etcd's Go client is not installed (Debian: golang-etcd-server-dev)"
    return None


def start_etcd(base: Path, started: list[subprocess.Popen[bytes]]) -> list[str]:
    port = random.randrange(10_000, 19_000)
    cluster = ",".join(f"e{n}=http://127.0.0.1:{port + 10 + n}" for n in (1, 2, 3))
    for n in (1, 2, 3):
        peer, client = f"http://127.0.0.1:{port + 10 + n}", f"http://127.0.0.1:{port + n}"
        arguments: list[str | Path] = [
            "--name",
            f"e{n}",
            "--data-dir",
            base / f"etcd-{n}",
            "--initial-cluster",
            cluster,
            "--pre-vote",
        ]
        arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        arguments += ["--listen-client-urls", client, "--advertise-client-urls", client]
        arguments += ["--heartbeat-interval", "100", "--election-timeout", "1000"]
        with (base / f"etcd-{n}.log").open("wb") as log:
            started.append(subprocess.Popen(["etcd", *arguments], stdout=log, stderr=log))
    return [f"127.0.0.1:{port + n}" for n in (1, 2, 3)]


async def etcd_leader(endpoints: list[str]) -> str:
    deadline = time.monotonic() + 20
    async with ClientSession() as http:
        while time.monotonic() < deadline:
            for endpoint in endpoints:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    async with http.post(f"http://{endpoint}/v3/maintenance/status", data="{}") as answer:
                        status = await answer.json(content_type=None)
                        if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                            return endpoint
            await asyncio.sleep(0.1)
    raise Missing("etcd elected no leader within 20 s")


def build_etcd_load(base: Path) -> Path:
    binary = base / "etcd-load"
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": GOPATH, "GOCACHE": str(go_cache()), "GOFLAGS": ""}
    subprocess.run(
        ["go", "build", "-o", binary, ROOT / "scripts/benches/etcd_bench/main.go"],
        env=environment,
        check=True,
        cwd=base,
    )
    return binary


def go_cache() -> Path:
    return Path(os.environ.get("GOCACHE") or Path.home() / ".cache" / "go-build")


async def etcd_load(binary: Path, endpoint: str, proposers: int) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        binary, "-endpoint", endpoint, "-proposers", str(proposers), "-seconds", str(SECONDS), "-size", str(PAYLOAD),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise Missing("etcd's load failed")
    result: dict[str, float] = json.loads(out)
    return result


# -- the floor


def full_commit_ms(base: Path) -> float:
    """p50 of one row of 500 bytes in a transaction of its own."""
    database = apsw.Connection(str(base / f"bare-{time.monotonic_ns()}.db"))
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        database.execute(f"PRAGMA {pragma}").fetchall()
    database.execute("CREATE TABLE log(idx INTEGER PRIMARY KEY, data BLOB)")
    took = []
    until = time.perf_counter() + 1.0
    while (at := time.perf_counter()) < until:
        database.execute("INSERT INTO log(data) VALUES(?)", (b"x" * PAYLOAD,))
        took.append((time.perf_counter() - at) * 1000)
    database.close()
    return percentile(took, 0.5)


async def echo_server(path: str) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    Path(path).write_text(str(runner.addresses[0][1]))
    await asyncio.Event().wait()


def start_echo(base: Path, started: list[subprocess.Popen[bytes]]) -> str:
    """The URL of an echo in a process of its own."""
    path = base / "echo.port"
    started.append(subprocess.Popen([sys.executable, "-m", "scripts.benches.consensus", "echo", str(path)], cwd=ROOT))
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        if time.monotonic() > deadline:
            raise Missing("the echo process did not start")
        time.sleep(0.05)
    return f"ws://127.0.0.1:{path.read_text()}/"


async def round_trip_ms(url: str) -> float:
    """p50 of a 500-byte message to another process and back over one WebSocket."""
    took = []
    async with ClientSession() as http, http.ws_connect(url, compress=0) as socket:
        until = time.perf_counter() + 1.0
        while (at := time.perf_counter()) < until:
            await socket.send_bytes(b"x" * PAYLOAD)
            message = await socket.receive()
            if message.type is not WSMsgType.BINARY:
                raise Missing("the echo ended")
            took.append((time.perf_counter() - at) * 1000)
    return percentile(took, 0.5)


# -- the bench


async def measure(base: Path, with_etcd: bool) -> dict[str, dict[str, Any]]:
    figures: dict[str, Any] = {}
    ratios: dict[str, Any] = {}
    with processes() as started:
        url = start_echo(base, started)
        client = await leading(start_voters(base, started))
        etcd = ""
        if with_etcd:
            binary = build_etcd_load(base)
            etcd = await etcd_leader(start_etcd(base, started))
        try:
            for proposers in PROPOSERS:
                ours, theirs, floors = [], [], []
                for number in range(ROUNDS):
                    if proposers == 1:
                        floors.append(await round_trip_ms(url) + full_commit_ms(base))
                    # The order changes each round: whoever comes second finds a disk that is busy writing back.
                    for who in ("mesh", "etcd") if number % 2 == 0 else ("etcd", "mesh"):
                        if who == "mesh":
                            ours.append(await load(client, proposers, SECONDS))
                        elif with_etcd:
                            theirs.append(await etcd_load(binary, etcd, proposers))
                report(figures, f"mesh {proposers}", ours)
                if with_etcd:
                    report(figures, f"etcd {proposers}", theirs)
                    pairs = zip(ours, theirs, strict=True)
                    ratios[f"mesh/etcd commits, {proposers} proposers"] = statistics.median(
                        a["rate"] / b["rate"] for a, b in pairs
                    )
                if proposers == 1:
                    figures["floor ms (round trip + FULL commit)"] = statistics.median(floors)
                    ratios["p50/floor, 1 proposer"] = statistics.median(
                        a["p50"] / floor for a, floor in zip(ours, floors, strict=True)
                    )
        finally:
            await client.close()
    return {"figures": figures, "ratios": ratios}


def report(figures: dict[str, Any], name: str, rounds: list[dict[str, float]]) -> None:
    figures[f"{name}: commits/s"] = statistics.median(r["rate"] for r in rounds)
    figures[f"{name}: p50 ms"] = statistics.median(r["p50"] for r in rounds)
    figures[f"{name}: p99 ms"] = statistics.median(r["p99"] for r in rounds)


def main() -> dict[str, dict[str, Any]]:
    missing = etcd_missing()
    if missing is not None:
        if "etcd" in os.environ.get("REQUIRE", "").split(","):
            raise SystemExit(f"REQUIRE names etcd, but {missing}")
        print(f"without etcd: {missing}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hf-consensus-", dir=os.environ.get("HF_BENCH_DIR")) as base:
        result = asyncio.run(measure(Path(base), with_etcd=missing is None))
    if missing is not None:
        result["figures"]["etcd"] = "not installed"
    return result


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "echo":
        asyncio.run(echo_server(sys.argv[2]))
    else:
        print(json.dumps({"name": "consensus", **main()}, indent=2))

"""Attacks on what reads bytes of strangers: HTTP itself with both of its parsers, bodies, the document's checker."""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import tracemalloc
import zlib
from importlib.metadata import version
from pathlib import Path

import aiohttp.http_parser
import msgpack
import pytest

from schemas.limits import DOCUMENT_MAX
from schemas.task_group import check_task_group
from tests.integration.served_api import AUTH, TOKEN, document, served

ROOT = Path(__file__).resolve().parents[2]
HOST = b"Host: 127.0.0.1\r\n"
KNOWN = HOST + f"Authorization: Bearer {TOKEN}\r\n".encode()
SUBMIT = b"POST /api/v1/task-groups HTTP/1.1\r\n" + KNOWN
JSON = b"Content-Type: application/json\r\n"
SECOND = b"GET /api/v1/nodes HTTP/1.1\r\n" + HOST + b"\r\n"
"""A request without a token, hidden behind another: answered with 401 it was read as one, with 200 it was taken for the
first caller's."""
LAST = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"

MALFORMED: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + os.urandom(64) + b"\r\n\r\n",
    "a method that is none": b"G@T / HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/2 spoken at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a line of 70 KB": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a header of 70 KB": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    "five thousand headers": b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"X%d: a\r\n" % n for n in range(5000)) + b"\r\n",
    "two Hosts": b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n",
    "no Host": b"GET /api/v1/nodes HTTP/1.1\r\n\r\n",
    "two lengths": SUBMIT + JSON + b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}" + SECOND,
    "a length with a sign": SUBMIT + JSON + b"Content-Length: +2\r\n\r\n{}" + SECOND,
    "a length of letters": SUBMIT + JSON + b"Content-Length: 0x2\r\n\r\n{}" + SECOND,
    "length and chunks": SUBMIT + JSON + b"Content-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks by another name": SUBMIT + JSON + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks twice": SUBMIT + JSON + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a chunk that is no number": SUBMIT + JSON + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    "a chunk below nothing": SUBMIT + JSON + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a space before the colon": SUBMIT + JSON + b"Content-Length : 2\r\n\r\n{}",
    "a folded header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "NUL in a header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
    "a lone CR in a header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\rInjected: b\r\n\r\n",
    "a URL that is none": b"GET http://[::1/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a port beyond all": b"GET http://127.0.0.1:99999/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "an expectation": SUBMIT + JSON + b"Expect: nonsense\r\nContent-Length: 0\r\n\r\n",
    "gzip": SUBMIT + JSON + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "an unknown packing": SUBMIT + JSON + b"Content-Encoding: nope\r\nContent-Length: 4\r\n\r\nabcd",
    "bare line feeds": b"GET /api/v1/mesh HTTP/1.1\nHost: 127.0.0.1\n\n",
    "a body of a terabyte": SUBMIT + JSON + b"Content-Length: 1000000000000\r\n\r\n{}",
    "many chunks": SUBMIT + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 30_000 + b"0\r\n\r\n",
    "multipart of nothing": SUBMIT + b"Content-Type: multipart/form-data; boundary=\r\nContent-Length: 2\r\n\r\n--",
    "a tunnel": b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a type that is none": SUBMIT + b"Content-Type: ;;;=\xff\r\nContent-Length: 2\r\n\r\n{}",
    "multipart without an end": SUBMIT
    + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 4\r\n\r\n--x\r",
    "a socket of another version": b"GET /api/v1/watch HTTP/1.1\r\n" + KNOWN
    + b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 99\r\nSec-WebSocket-Key: AAAA\r\n\r\n",
}  # fmt: skip


async def ask(port: int, raw: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        await writer.drain()
        # Where the connection is kept open, this one ends it.
        writer.write(LAST)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def answers(said: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/[0-9.]+ ([0-9]{3}) ", said)]


@pytest.mark.attack(38)
async def test_malformed_requests_are_refused_in_our_words_and_nothing_hides_behind_one(tmp_path, attempts, caplog):
    compiled = aiohttp.http_parser.HttpRequestParser.__module__ != "aiohttp.http_parser"
    assert compiled == ("HF_PLAIN_PARSER" not in os.environ)
    async with served(tmp_path) as client:
        for name, raw in MALFORMED.items():
            attempts["requests"] += 1
            said = await ask(int(client.server.port or 0), raw)
            statuses = answers(said)
            if statuses[-1:] == [200]:
                del statuses[-1]
            assert statuses, name
            assert all(400 <= status < 500 for status in statuses), (name, said[:300])
            head, _, body = said.partition(b"\r\n\r\n")
            assert b"application/json" in head and b"aiohttp" not in head.lower(), (name, head)
            problem, _ = json.JSONDecoder().raw_decode(body.decode(errors="replace"))
            assert problem["code"] and problem["status"] == statuses[0], name
        async with client.get("/healthz") as response:
            assert response.status == 200, "it still serves"
    assert not [record for record in caplog.records if record.exc_info], "no stranger writes tracebacks to the log"


@pytest.mark.attack(38)
@pytest.mark.skipif("HF_PLAIN_PARSER" in os.environ, reason="this is the run with the other parser")
def test_malformed_requests_with_the_parser_in_python(attempts):
    """aiohttp falls back to it where its extension is not there."""
    environment = os.environ | {"AIOHTTP_NO_EXTENSIONS": "1", "HF_PLAIN_PARSER": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "malformed_requests_are", __file__]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-1000:]
    attempts["requests"] += len(MALFORMED)


@pytest.mark.attack(38)
def test_the_version_of_the_server_is_one_without_known_faults():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = next(line for line in project["dependencies"] if "aiohttp" in line)
    floor = tuple(map(int, needed.partition(">=")[2].split(".")))
    assert floor >= (3, 14, 1)
    assert tuple(int(part) for part in version("aiohttp").split(".")[:3]) >= floor


def bombs() -> dict[str, tuple[str, bytes]]:
    kind = "application/msgpack"
    return {
        "a list of 4 thousand million": (kind, b"\xdd\xff\xff\xff\xff"),
        "a map of 4 thousand million": (kind, b"\xdf\xff\xff\xff\xff"),
        "a text of 4 GB": (kind, b"\xdb\xff\xff\xff\xff"),
        "bytes of 4 GB": (kind, b"\xc6\xff\xff\xff\xff"),
        "an extension of 4 GB": (kind, b"\xc9\xff\xff\xff\xff\x01"),
        "lists in lists": (kind, b"\x91" * 100_000),
        "maps in maps": (kind, b"\x81\xa1a" * 30_000),
        "a time of another age": (kind, msgpack.packb({"name": msgpack.Timestamp(2**33, 1)})),
        "bytes for a name": (kind, msgpack.packb(document() | {"name": b"\xff"})),
        "half a character": (kind, msgpack.packb({"name": "x"}).replace(b"x", b"\xff")),
        "lists in lists, as text": ("application/json", b"[" * 100_000),
        "maps in maps, as text": ("application/json", b'{"a":' * 30_000),
        "a number of 150,000 digits": ("application/json", b'{"name":' + b"9" * 150_000 + b"}"),
        "an exponent": ("application/json", b'{"name":1e999999999}'),
        "a key many times": ("application/json", b"{" + b",".join([b'"name":1'] * 10_000) + b"}"),
    }


@pytest.mark.attack(39, 40)
async def test_what_says_it_is_huge_costs_no_more_than_it_is(tmp_path, attempts):
    async with served(tmp_path) as client:
        async with client.get("/healthz") as response:
            assert response.status == 200
        for name, (kind, raw) in bombs().items():
            attempts["bodies"] += 1
            tracemalloc.start()
            try:
                headers = AUTH | {"Content-Type": kind}
                async with client.post("/api/v1/task-groups", data=raw, headers=headers) as response:
                    assert response.status == 400, (name, response.status)
                    problem = await response.json()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert len(json.dumps(problem)) < 40_000, f"{name}: the refusal is not as long as what it refuses"
            assert peak < 64 * DOCUMENT_MAX, (name, peak)


@pytest.mark.attack(40)
@pytest.mark.parametrize("packing", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-gzip"])
async def test_a_packed_body_is_never_unpacked(tmp_path, packing, attempts):
    inside = json.dumps(document()).encode() + b" " * (8 << 20)
    packed = gzip.compress(inside, 1) if "gzip" in packing else zlib.compress(inside, 1)
    async with served(tmp_path) as client:
        for path in ("/api/v1/task-groups", "/mesh/v1/join", "/api/v1/keys"):
            attempts["bodies"] += 1
            headers = AUTH | {
                "Content-Encoding": packing,
                "Content-Type": "application/json",
                "X-HeteroFlow-Node": "n1",
            }
            async with client.post(path, data=packed, headers=headers) as response:
                assert response.status in (413, 415), (path, response.status)


@pytest.mark.attack(38, 40)
async def test_bodies_without_an_end_and_sockets_with_much_to_say_are_cut(tmp_path, attempts):
    async with served(tmp_path) as client:
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        raw = SUBMIT + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40
        assert answers(await ask(int(client.server.port or 0), raw))[:1] == [413]
        headers = AUTH | {"Sec-WebSocket-Extensions": "permessage-deflate"}
        async with client.ws_connect("/api/v1/watch", headers=headers, compress=15) as socket:
            assert socket.compress == 0, "nothing packed is taken"
            await socket.send_str("x" * 100_000)
            while not (await socket.receive(timeout=20)).type.name.startswith("CLOS"):
                pass
            assert socket.close_code == 1009
        attempts["streams"] += 2


def worst(size: int) -> dict[str, dict[str, object]]:
    """Documents that make readers and guards look long: many beginnings without an end."""
    commands = {
        "quotes": "'\"" * (size // 2),
        "words": "torchrun " + "--nproc_per_node=2 " * (size // 20),
        "brackets": "$(" * (size // 2),
        "assignments": "A=1 " * (size // 4) + "python t.py",
        "lines": "python t.py &&\n" * (size // 15) + "true",
        "backslashes": "\\" * size,
        "here-documents": "cat <<E\n" * (size // 8),
    }
    made = {name: document() | {"task": {"command": text, "gpu_required": 2}} for name, text in commands.items()}
    path = "/data/" + "a/" * min(size // 2, 2000)
    made["segments"] = document(checkpoint_path=path)
    made["image"] = document() | {"task": {"image": "a" + "-a" * 250, "command": "true", "gpu_required": 2}}
    made["unknown fields"] = document() | {f"f{n}": n for n in range(size // 20)}
    made["labels"] = document() | {"labels": {f"k{n}" + "." * 20: "v" for n in range(size // 40)}}
    return made


def cost_s(given: dict[str, object]) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        check_task_group(given)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.attack(39)
def test_a_document_twice_as_long_is_not_looked_at_four_times_as_long(attempts):
    small, large = worst(8_000), worst(32_000)
    for name in small:
        attempts["documents"] += 2
        # Fourfold the length: 4 where the work is in proportion, 16 where it is squared.
        few, many = cost_s(small[name]), cost_s(large[name])
        assert many < 10 * few + 0.02, (name, few, many)

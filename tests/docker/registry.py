"""A registry of the tests: serves small images, to whom it should, as fast as it should, or not at all."""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.docker.engine import docker

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """users: who may ask at all, empty for everybody. broken: status for every request. holding: answers wait for
    `let_go`. requests: how many have come. asked: paths of the manifests that were fetched."""

    def __init__(self, users: dict[str, str] | None = None) -> None:
        self.users = users or {}
        self.broken = 0
        self.holding = False
        self.let_go = threading.Event()
        self.requests = 0
        self.asked: list[str] = []
        self._blobs: dict[str, bytes] = {}
        self._tags: dict[str, bytes] = {}
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def push(self, tag: str, content: str = "") -> str:
        """An image of a shell and /made, which holds `content`; its digest. tag: such as team/pt:1."""
        layer = _layer(content)
        packed = gzip.compress(layer, mtime=0)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created_by": "tests"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._blob(_CONFIG, json.dumps(config).encode()),
            "layers": [self._blob(_LAYER, packed)],
        }
        body = json.dumps(manifest).encode()
        self._tags[tag] = self._tags[f"{tag.partition(':')[0]}:{_digest(body)}"] = body
        return _digest(body)

    def _blob(self, kind: str, body: bytes) -> dict[str, object]:
        self._blobs[_digest(body)] = body
        return {"mediaType": kind, "size": len(body), "digest": _digest(body)}

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """(status, type, body)"""
        self.requests += 1
        if self.holding:
            self.let_go.wait()
        if self.broken:
            return self.broken, "application/json", b"{}"
        if self.users and not self._may(authorization):
            return 401, "application/json", _problem("UNAUTHORIZED", "authentication required")
        if path == "/v2/":
            return 200, "application/json", b"{}"
        name, _, rest = path.removeprefix("/v2/").partition("/manifests/")
        if rest:
            self.asked.append(path)
            body = self._tags.get(f"{name}:{rest}")
            return (200, _MANIFEST, body) if body else (404, "", _problem("MANIFEST_UNKNOWN", "manifest unknown"))
        blob = self._blobs.get(path.rpartition("/")[2])
        return (200, "application/octet-stream", blob) if blob else (404, "", _problem("BLOB_UNKNOWN", "unknown"))

    def _may(self, authorization: str) -> bool:
        with contextlib.suppress(ValueError):
            user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            return self.users.get(user) == password
        return False


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Who asked has gone, as those do whose pull is given up."""


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if kind == _MANIFEST:
                self.send_header("Docker-Content-Digest", _digest(body))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="tests"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _layer(content: str) -> bytes:
    """Two images of the same content are the same image."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        busybox = shutil.which("busybox")
        assert busybox is not None
        with open(busybox, "rb") as file:
            _add(tar, "bin/busybox", file.read(), 0o755)
        for applet in ("sh", "cat", "echo", "sleep"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        _add(tar, "made", content.encode(), 0o644)
    return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, body: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(body), mode
    tar.addfile(entry, io.BytesIO(body))


def _digest(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


def _problem(code: str, text: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": text}]}).encode()


@contextlib.contextmanager
def serving(users: dict[str, str] | None = None) -> Iterator[Registry]:
    """What the engine has pulled from it goes with it."""
    registry = Registry(users)
    try:
        yield registry
    finally:
        registry.close()
        # By name: an image of the same content may have come from another registry too.
        layout, which = "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}", f"reference={registry.name}/*/*"
        for line in docker("image", "ls", "--digests", "--format", layout, "--filter", which).splitlines():
            tagged, digested = line.split()
            docker("image", "rm", "--force", digested if tagged.endswith("<none>") else tagged)

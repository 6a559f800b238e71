"""What a mesh says of itself, gathered through one node into one file. Nodes leave their secrets out by themselves;
what this client knows is taken out once more."""

import asyncio
import io
import json
import os
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.client import NoNodeAnswers, Refused
from console.new_file import give_name
from schemas.errors import NotFound
from schemas.instants import iso_utc
from schemas.rules.redaction import redact, redact_text, without_secrets

if TYPE_CHECKING:
    from console.client import MeshClient

_TOGETHER = 8
# A bundle is to be sent to somebody: the more nodes, the less of each log.
_LOGS_BYTES, _LOG_MOST_BYTES, _LOG_LEAST_BYTES = 64 << 20, 512 * 1024, 16 * 1024
_LOGS_OF_NODE = 3
_EVENTS = 1000
_OF_MESH = {
    "mesh.json": "/api/v1/mesh",
    "nodes.json": "/api/v1/nodes",
    "queue.json": "/api/v1/queue",
    "alerts.json": "/api/v1/alerts",
    "telemetry.json": "/api/v1/telemetry",
    "groups.json": "/api/v1/task-groups",
}


@dataclass(slots=True)
class Bundle:
    """files: name in the archive -> text. nodes: those whose report is in it. unreachable: node -> why not."""

    files: dict[str, str] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)


async def collect(client: "MeshClient", group_ids: Sequence[str], only: Sequence[str]) -> Bundle:
    """Raises NoNodeAnswers where no node at all does, Refused where the caller is no operator."""
    secrets = [client.token]
    bundle = Bundle()
    listed = (await client.read("/api/v1/nodes", {"consistency": "stale"})).value["nodes"]
    names = sorted(str(node["node_id"]) for node in listed)
    if strangers := sorted(set(only) - set(names)):
        raise NotFound("no_such_node", f"there is no node {strangers[0][:80]!r}", "`heteroflow nodes` lists them")
    wanted = [name for name in names if not only or name in only]
    for name, path in _OF_MESH.items():
        bundle.files[name] = _json(await _answer(client, path), secrets)
    for group_id in group_ids:
        detail = await _answer(client, f"/api/v1/task-groups/{group_id}")
        if isinstance(detail.get("config"), dict):
            detail["config"] = without_secrets(detail["config"])
        bundle.files[f"groups/{group_id}.json"] = _json(detail, secrets)
        events = await _answer(client, f"/api/v1/task-groups/{group_id}/fault-events", {"limit": str(_EVENTS)})
        bundle.files[f"groups/{group_id}-events.json"] = _json(events, secrets)
    share = _LOGS_BYTES // max(len(wanted) * _LOGS_OF_NODE, 1)
    log_bytes = max(min(share, _LOG_MOST_BYTES), _LOG_LEAST_BYTES)
    gate = asyncio.Semaphore(_TOGETHER)

    async def of_node(name: str) -> None:
        async with gate:
            try:
                answer = await client.read(f"/api/v1/nodes/{name}/debug", {"log_bytes": str(log_bytes)})
            except Refused as error:
                if error.problem.status in (401, 403):
                    raise
                bundle.unreachable[name] = error.problem.message
            except NoNodeAnswers as error:
                bundle.unreachable[name] = str(error)
            else:
                report = dict(answer.value)
                if "problem" in report:
                    bundle.unreachable[name] = str(report["problem"])
                    return
                for log, text in dict(report.pop("logs", {})).items():
                    bundle.files[f"nodes/{name}/{log}"] = redact_text(str(text), secrets)
                bundle.files[f"nodes/{name}/report.json"] = _json(report, secrets)
                bundle.nodes.append(name)

    await asyncio.gather(*(of_node(name) for name in wanted))
    bundle.nodes.sort()
    made = {"made_at": iso_utc(time.time_ns() // 1_000_000), "nodes": bundle.nodes, "unreachable": bundle.unreachable}
    bundle.files["manifest.json"] = _json(made | {"files": sorted(bundle.files)}, secrets)
    return bundle


def write_bundle(bundle: Bundle, out: Path) -> int:
    """Its size in bytes. Readable by its owner alone, and whole or not there. Raises OSError."""
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.part")
    top = out.name.partition(".")[0]
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, text in sorted(bundle.files.items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
        give_name(unfinished, out)
        return out.stat().st_size
    finally:
        unfinished.unlink(missing_ok=True)


async def _answer(client: "MeshClient", path: str, params: dict[str, str] | None = None) -> dict[str, Any]:
    """What cannot be had says so in its place; the rest is worth having all the same."""
    try:
        value = (await client.read(path, params)).value
    except Refused as error:
        if error.problem.status in (401, 403):
            raise
        return {"problem": error.problem.to_dict()}
    except NoNodeAnswers as error:
        return {"problem": str(error)}
    return dict(value)


def _json(value: Any, secrets: Sequence[str]) -> str:
    return json.dumps(redact(value, secrets), indent=1, sort_keys=True) + "\n"

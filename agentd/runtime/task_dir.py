"""What the files of one task directory say, in the terms of the runtime contract."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentd.lease_file import boottime_ns
from agentd.runtime.base import Observed, TaskId, TaskSpec, Why
from agentd.shim import exit_file
from agentd.shim.host import read_json, write_json
from agentd.shim.order import read_stop
from agentd.shim.record import CONTAINER, EXIT, LOCK, LOG, LOST, PID, SPEC, STOP

SHIM_ERRORS = "shim.err"
_NOTHING: Mapping[str, Any] = {}
_WHYS: dict[str, Why] = {
    "exited": "exited",
    "stopped": "stopped",
    "fenced": "fenced",
    "killed": "killed",
    "start_failed": "start_failed",
    "lost": "lost",
}


def task_path(root: Path, task_id: TaskId) -> Path:
    return root / task_id.group_id / str(task_id.attempt) / str(task_id.rank)


def task_paths(root: Path) -> Iterator[tuple[TaskId, Path]]:
    """Every task that was started here and not yet removed."""
    for spec in sorted(root.glob(f"*/*/*/{SPEC}")):
        rank, attempt, group = spec.parent, spec.parent.parent, spec.parent.parent.parent
        if rank.name.isdigit() and attempt.name.isdigit():
            yield TaskId(group.name, int(attempt.name), int(rank.name)), rank


def was_here(path: Path) -> bool:
    """Also of a removed task: its log stays."""
    return (path / LOG).exists() or (path / SPEC).exists()


def write_spec(
    path: Path, spec: TaskSpec, lease_path: Path, isolation: tuple[str, ...], also: Mapping[str, Any] = _NOTHING
) -> None:
    value: dict[str, Any] = {
        "env": dict(spec.env),
        "cwd": spec.cwd,
        "gpus": list(spec.gpus),
        "stop_grace_s": spec.stop_grace_s,
        "on_isolation": spec.on_isolation,
        "log": {"max_bytes": spec.log.max_bytes, "files": spec.log.files},
        "token": spec.token,
        "lease_path": str(lease_path),
        "isolation": list(isolation),
    }
    program = {"shell": spec.shell} if spec.shell else {"argv": list(spec.argv)}
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(str(path / SPEC), {**program, **value, **also})


def write_stop(path: Path, grace_s: float, why: str) -> None:
    """The earlier end of two orders stands."""
    grace_s = max(grace_s, 0.0)
    if read_stop(str(path)) is None or grace_s < stop_left_s(path):
        write_json(str(path / STOP), {"at_ns": boottime_ns(), "grace_s": grace_s, "why": why})


def stop_left_s(path: Path) -> float:
    """What is left of the grace of a stop that was ordered."""
    order = read_stop(str(path))
    return 0.0 if order is None else max((order.at_ns - boottime_ns()) / 1e9 + order.grace_s, 0.0)


def observe(task_id: TaskId, path: Path) -> Observed:
    spec = read_json(str(path / SPEC)) or {}
    begun = read_json(str(path / PID)) or {}
    ended = read_json(str(path / EXIT))
    token = int(spec.get("token", -1))
    gpus = tuple(str(gpu) for gpu in spec.get("gpus", ()))
    stopping = (path / STOP).exists()
    if ended is not None:
        return Observed(
            id=task_id,
            token=token,
            state="exited",
            exit_code=ended.get("exit_code"),
            signal=ended.get("signal"),
            why=_WHYS.get(str(ended.get("why")), "lost"),
            text=str(ended.get("error", "")),
            started_ms=begun.get("started_ms"),
            ended_ms=ended.get("ended_ms"),
            stopping=stopping,
            gpus=gpus,
            log_lost=int(ended.get("log_lost") or 0),
            image=_image(path),
            failure_class=str(ended.get("class", "")),
        )
    return Observed(
        id=task_id,
        token=token,
        state="running" if begun else "starting",
        pid=begun.get("pid"),
        started_ms=begun.get("started_ms"),
        stopping=stopping,
        gpus=gpus,
        log_lost=int((read_json(str(path / LOST)) or {}).get("bytes") or 0),
        image=_image(path) if begun else None,
    )


def _image(path: Path) -> Mapping[str, str | None] | None:
    image = (read_json(str(path / CONTAINER)) or {}).get("image")
    return image if isinstance(image, dict) else None


def end_without_shim(
    path: Path,
    ended_ms: int,
    text: str,
    gone: Callable[[], bool],
    otherwise: str = "lost",
    failure_class: str = "",
) -> bool:
    """Writes the end of a task whose shim is no more, once `gone` finds nothing of it alive. False before, and while a
    shim holds the task; one that comes late finds the end and starts nothing."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not gone():
            return False
        if not (path / EXIT).exists():
            why = "stopped" if (path / STOP).exists() else otherwise
            value = {"exit_code": None, "signal": None, "why": why, "error": text, "ended_ms": ended_ms}
            if failure_class:
                value["class"] = failure_class
            exit_file.write(str(path), value)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def forget(path: Path) -> None:
    """Without its spec a task is no longer listed, however far the clearing comes."""
    (path / SPEC).unlink(missing_ok=True)


def forgotten_paths(root: Path) -> Iterator[Path]:
    """Where an earlier agent did not come to the end of clearing, or not to a start."""
    for path in sorted(root.glob("*/*/*")):
        if path.is_dir() and not (path / SPEC).exists() and any(entry.name != LOG for entry in path.iterdir()):
            yield path


def clear(path: Path) -> None:
    """All but the log of a forgotten task."""
    for entry in path.iterdir():
        if entry.name == LOG:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)

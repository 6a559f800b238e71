"""Saves checkpoints for ever, to be killed at any moment.

Speaks lines: `write KIND ROOT` forks a writer and answers its pid; `load KIND PATH STEP` answers `whole STEP`, or what
is wrong. A writer tells in ROOT.saved what it begins and ends.

Runs in the environment of PyTorch for the kinds that need it, imported once: a fork costs nothing.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import_numpy = sys.argv[1] == "numpy"
if import_numpy:
    import numpy as np
else:
    import warnings

    warnings.simplefilter("ignore")
    import torch
    import torch.distributed.checkpoint as dcp

FLOATS = 200_000
FILES = 4


def _values(step: int, part: int) -> Any:
    return (np if import_numpy else torch).full((FLOATS,), float(step * 10 + part))  # type: ignore[attr-defined]  # whichever was imported


def _right(values: Any, step: int, part: int) -> bool:
    return len(values) == FLOATS and bool((values == float(step * 10 + part)).all())


def by_rename(root: Path, step: int) -> None:
    work, final = root / f".tmp-step-{step}", root / f"step-{step}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "meta.json").write_text(json.dumps({"step": step}))
    for part in range(FILES):
        np.savez(work / f"part-{part}.npz", values=_values(step, part))
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)


def marked(root: Path, step: int) -> None:
    """In place, also over an older one; the marker last. `step-N` would be taken for one finished by rename."""
    place = root / f"step_{step}"
    place.mkdir(exist_ok=True)
    (place / ".complete").unlink(missing_ok=True)
    for part in range(FILES):
        np.savez(place / f"part-{part}.npz", values=_values(step, part))
    (place / ".complete").touch()


def single_file(root: Path, step: int) -> None:
    """One zip, in place."""
    with (root / f"epoch=0-step={step}.ckpt").open("wb") as file:
        np.savez(file, values=_values(step, 0))


def _load_parts(path: Path, step: int) -> bool:
    parts = [np.load(path / f"part-{part}.npz")["values"] for part in range(FILES)]
    return all(_right(values, step, part) for part, values in enumerate(parts))


def torch_file(root: Path, step: int) -> None:
    torch.save({"values": _values(step, 0)}, root / f"epoch=0-step={step}.ckpt")


def torch_trainer(root: Path, step: int) -> None:
    """The files of HF Trainer in its order, in place, also over an older one."""
    place = root / f"checkpoint-{step}"
    place.mkdir(exist_ok=True)
    for part, name in enumerate(("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")):
        torch.save({"values": _values(step, part)}, place / name)
    (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": ["x" * 100] * 1000}))


def _load_trainer(path: Path, step: int) -> bool:
    names = ("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")
    parts = [torch.load(path / name, weights_only=True)["values"] for name in names]
    state = json.loads((path / "trainer_state.json").read_text())
    return state["global_step"] == step and all(_right(values, step, part) for part, values in enumerate(parts))


def torch_dcp(root: Path, step: int) -> None:
    """In place, also over an older one, which keeps its `.metadata` meanwhile."""
    state = {f"part{part}": _values(step, part) for part in range(FILES)}
    writer = dcp.FileSystemWriter(root / f"step-{step}", thread_count=FILES)
    dcp.save(state, storage_writer=writer, no_dist=True)


def _load_dcp(path: Path, step: int) -> bool:
    state = {f"part{part}": torch.zeros(FLOATS) for part in range(FILES)}
    dcp.load(state, storage_reader=dcp.FileSystemReader(path), no_dist=True)
    return all(_right(state[f"part{part}"], step, part) for part in range(FILES))


KINDS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path, int], bool]]] = {
    "rename": (by_rename, _load_parts),
    "marked": (marked, _load_parts),
    "file": (single_file, lambda path, step: _right(np.load(path)["values"], step, 0)),
    "torch-file": (torch_file, lambda path, step: _right(torch.load(path, weights_only=True)["values"], step, 0)),
    "torch-trainer": (torch_trainer, _load_trainer),
    "torch-dcp": (torch_dcp, _load_dcp),
}


def write(kind: str, root: Path) -> None:
    """Steps 1, 2, ... 5 and again: three times of four over an older one."""
    done = Path(f"{root}.saved")
    step = 0
    while True:
        step = step % 5 + 1
        with done.open("a") as file:
            file.write(f"begun {step}\n")
        KINDS[kind][0](root, step)
        with done.open("a") as file:
            file.write(f"saved {step}\n")


def load(kind: str, path: Path, step: int) -> str:
    try:
        return f"whole {step}" if KINDS[kind][1](path, step) else f"{path} holds something else"
    except Exception as error:
        return f"{path}: {type(error).__name__}: {error}".replace("\n", " ")


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        verb, kind, *words = line.rstrip("\n").split(" ")
        if verb == "load":
            print(load(kind, Path(words[0]), int(words[1])), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            write(kind, Path(words[0]))
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()

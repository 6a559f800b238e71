"""Checkpoints `step-N/{model.npz, meta.json}`: finished by rename, so that one that exists is whole."""

import io
import json
import os
import shutil
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from numpy_ddp.regression import Vector


class CheckpointRefused(Exception):
    """Is raised when a checkpoint to resume from is missing, damaged or of another model."""


@dataclass(frozen=True)
class Meta:
    step: int
    world: int
    loss: float


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save(directory: Path, meta: Meta, parameters: Vector) -> Path:
    final = directory / f"step-{meta.step}"
    work = directory / f".tmp-step-{meta.step}-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    np.savez(work / "model.npz", parameters=parameters)
    (work / "meta.json").write_text(json.dumps(asdict(meta)) + "\n")
    for name in ("model.npz", "meta.json"):
        _sync(work / name)
    _sync(work)
    if final.exists():
        # An earlier attempt got this far too. A directory cannot be renamed over a full one, so the old one goes first.
        old = directory / f".old-step-{meta.step}-{os.getpid()}"
        final.rename(old)
        work.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        work.rename(final)
    _sync(directory)
    return final


def load(path: Path, size: int) -> tuple[Meta, Vector]:
    try:
        raw = json.loads((path / "meta.json").read_text())
        meta = Meta(step=int(raw["step"]), world=int(raw["world"]), loss=float(raw["loss"]))
        with np.load(io.BytesIO((path / "model.npz").read_bytes()), allow_pickle=False) as archive:
            parameters: Vector = archive["parameters"].astype(np.float64)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointRefused(f"cannot resume from {path}: {error}. Name a finished step-N directory") from error
    if parameters.shape != (size,):
        raise CheckpointRefused(
            f"cannot resume from {path}: it holds {parameters.size} parameters, this model has {size}. "
            "Use the hidden size that the checkpoint was made with"
        )
    return meta, parameters

from pathlib import Path

import numpy as np
import pytest

from numpy_ddp.step_checkpoint import CheckpointRefused, Meta, load, save


def test_saved_is_loaded(tmp_path: Path):
    path = save(tmp_path, Meta(step=20, world=4, loss=0.5), np.arange(3.0))
    assert path == tmp_path / "step-20"
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-20"]
    meta, parameters = load(path, 3)
    assert meta == Meta(step=20, world=4, loss=0.5)
    assert np.array_equal(parameters, np.arange(3.0))


def test_the_same_step_of_a_later_attempt_replaces_the_earlier(tmp_path: Path):
    save(tmp_path, Meta(step=20, world=4, loss=0.5), np.zeros(3))
    save(tmp_path, Meta(step=20, world=4, loss=0.4), np.ones(3))
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-20"]
    meta, parameters = load(tmp_path / "step-20", 3)
    assert meta.loss == 0.4 and np.array_equal(parameters, np.ones(3))


def test_what_cannot_be_resumed_is_refused_by_name(tmp_path: Path):
    with pytest.raises(CheckpointRefused, match="step-1"):
        load(tmp_path / "step-1", 3)
    path = save(tmp_path, Meta(step=2, world=1, loss=0.5), np.zeros(3))
    with pytest.raises(CheckpointRefused, match="3 parameters, this model has 7"):
        load(path, 7)
    for name, damage in (("model.npz", b"PK\x03\x04 torn"), ("meta.json", b"{")):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(damage)
        with pytest.raises(CheckpointRefused, match="step-2"):
            load(path, 3)
        (path / name).write_bytes(whole)
    assert load(path, 3)[0].step == 2

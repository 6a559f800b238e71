"""The samples, unpacked once a process."""

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.unpacked import unpack

ARCHIVE = Path(__file__).parents[2] / "data" / "tfevents" / "samples.tar.gz"


@functools.cache
def samples() -> Path:
    place = tempfile.mkdtemp(prefix="heteroflow-tfevents-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    unpack(ARCHIVE, Path(place))
    return Path(place)


@functools.cache
def expected() -> dict[str, Any]:
    """`{path: {"scalars": {tag: {n, first_step, first_value, ...}}}}` as TensorBoard's EventAccumulator read them."""
    return dict(json.loads((samples() / "expected.json").read_text()))


def damaged(name: str) -> bytes:
    return (samples() / "damaged" / f"events.out.tfevents.{name}").read_bytes()


REAL = (
    "allennlp/train/events.out.tfevents.1538072818.node-0",
    "allennlp/validation/events.out.tfevents.1538378412.node-0",
    "catboost/events.out.tfevents",
    "guild_2019/events.out.tfevents.1548797801.node-0",
    "lightning/events.out.tfevents.1770914349.node-0.48068.0",
    "pytorch_duplicate_steps/events.out.tfevents.1622966509.node-0.86059.0",
    "tf1_2016_mixed/events.out.tfevents.1476472047.node-0",
    "tf2_small/events.out.tfevents.1584802246.node-0.64661.157.v2",
    "wandb_cvp/events.out.tfevents.1585769947.node-0",
)

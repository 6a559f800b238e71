"""Which tag is the training loss: the one whose last step and value stand for the run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# As frameworks write them: Megatron, HF Trainer, Lightning, plain PyTorch, DeepSpeed, Keras, AllenNLP.
_KNOWN = (
    "lm loss",
    "train/loss",
    "train_loss",
    "train/loss_step",
    "train_loss_step",
    "loss/train",
    "Loss/train",
    "training_loss",
    "training/loss",
    "Train/Loss",
    "Train/Samples/train_loss",
    "loss",
    "Loss",
    "loss/loss_train",
    "Metrics/Loss",
    "batch_loss",
    "epoch_loss",
    "train_loss_epoch",
    "train/loss_epoch",
)
_RANKS = {tag: rank for rank, tag in enumerate(_KNOWN)}
_LOSS = re.compile(r"(^|[/_ ])(lm |train(ing)?[_/ ]?)?loss($|[/_ ](train|step))", re.IGNORECASE)
# The same against samples instead of steps; held-out data; parts and regularisers of the loss; timings.
_NOT_THE_LOSS = re.compile(
    r"vs samples|(^|[/_ .-])(val|valid|validation|eval|evaluation|test|dev)([/_ .-]|$)"
    r"|aux|balanc|moe/|(^|[/_ ])mtp|_runtime|entropy"
    r"|(^|[/_ ])(value|policy|policy_gradient|actor|critic|ent_coef|kl|reg|regularization|l1|l2|z)_loss",
    re.IGNORECASE,
)
_HELD_OUT_DIRECTORY = re.compile(r"(^|[/_.-])(val|valid|validation|eval|evaluation|test|dev)([/_.-]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """directory: of the sub-run, "" for the run itself. wall: of the newest point."""

    directory: str
    tag: str
    points: int
    wall: float


def loss_tag(candidates: Iterable[Candidate], chosen: str | None = None) -> Candidate | None:
    """chosen: what the user said; it wins wherever it exists.

    A tag with a single point is a mean written at the end (`train/train_loss`) more often than a run that has just
    begun; it counts only under a well-known name, and where nothing else does.
    """
    ranked = [(rank, item) for item in candidates if (rank := _rank(item, chosen)) is not None]
    return min(ranked, key=lambda one: one[0])[1] if ranked else None


def _rank(item: Candidate, chosen: str | None) -> tuple[float, ...] | None:
    """Lower is better; None is no loss. Among equals the sub-run that was written last, then the first tag."""
    if not item.points:
        return None
    held_out = _HELD_OUT_DIRECTORY.search(item.directory) is not None
    full = f"{item.directory}/{item.tag}" if item.directory else item.tag
    if chosen is not None and chosen in (item.tag, full):
        return (-1, chosen != full, held_out, -item.wall)
    known = _RANKS.get(item.tag)
    if item.points == 1:
        return None if known is None else (2, held_out, known, -item.wall)
    if known is not None:
        return (0, held_out, known, -item.wall)
    if _LOSS.search(item.tag) and not _NOT_THE_LOSS.search(item.tag):
        return (1, held_out, 0, -item.wall)
    return None

import pytest

from schemas.rules.tfevents.loss_tag import Candidate, loss_tag


def best(*tags: str, chosen: str | None = None, points: dict[str, int] | None = None) -> str | None:
    """tags: `directory|tag` or `tag`."""
    candidates = []
    for at, text in enumerate(tags):
        directory, _, tag = text.rpartition("|")
        candidates.append(Candidate(directory, tag, (points or {}).get(text, 100), float(at)))
    found = loss_tag(candidates, chosen)
    return None if found is None else f"{found.directory}|{found.tag}" if found.directory else found.tag


FRAMEWORKS = {
    "Megatron": ("grad-norm", "lm loss", "lm loss vs samples", "lm loss validation", "mtp_1 loss", "loss-scale"),
    "Megatron mixture of experts": (
        "lm loss",
        "load_balancing_loss",
        "seq_load_balancing_loss",
        "moe/aux_loss_layer_1",
    ),
    "HF Trainer": ("train/loss", "eval/loss", "train/train_loss", "train/grad_norm", "eval/runtime"),
    "Lightning": ("train_loss", "val_loss", "epoch", "hp_metric", "train_kl", "val_recon_nll"),
    "Lightning, both": ("train_loss_step", "train_loss_epoch", "val_loss"),
    "SB3": (
        "train/loss",
        "train/entropy_loss",
        "train/value_loss",
        "train/policy_gradient_loss",
        "rollout/ep_rew_mean",
    ),
    "PyTorch tutorial": ("Loss/train", "Loss/test", "Accuracy/train"),
    "DeepSpeed": ("Train/Samples/train_loss", "Train/Samples/lr"),
    "Keras TF1": ("loss", "val_loss", "acc", "val_acc"),
    "AllenNLP": ("loss/loss_train", "loss/loss_validation", "gradient_mean/_encoder"),
}
WANTED = {
    "Megatron": "lm loss",
    "Megatron mixture of experts": "lm loss",
    "HF Trainer": "train/loss",
    "Lightning": "train_loss",
    "Lightning, both": "train_loss_step",
    "SB3": "train/loss",
    "PyTorch tutorial": "Loss/train",
    "DeepSpeed": "Train/Samples/train_loss",
    "Keras TF1": "loss",
    "AllenNLP": "loss/loss_train",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_frameworks_write(framework: str):
    tags = FRAMEWORKS[framework]
    assert best(*tags) == best(*reversed(tags)) == WANTED[framework]


@pytest.mark.parametrize(
    "tag",
    [
        "load_balancing_loss",
        "seq_load_balancing_loss",
        "train/entropy_loss",
        "train/value_loss",
        "mtp_1 loss",
        "lm loss validation",
        "lm loss vs samples",
        "val_loss",
        "eval/loss",
        "Loss/test",
        "moe/z_loss",
        "aux_loss",
        "train_loss_runtime",
        "glossary",
        "closs",
        "loss_scale",
        "loss-scale",
    ],
)
def test_what_is_not_the_loss(tag: str):
    assert best(tag, "lr") is None


@pytest.mark.parametrize(
    "tag", ["model/loss", "my train loss", "GPT/training_loss", "stage1 lm loss", "TRAIN/LOSS", "main_loss"]
)
def test_names_nobody_listed(tag: str):
    assert best("lr", tag, "val_loss") == tag


def test_a_mean_written_once_does_not_win():
    assert best("train/train_loss", "model/loss", points={"train/train_loss": 1}) == "model/loss"
    assert best("train/train_loss", "lr", points={"train/train_loss": 1}) is None


def test_a_run_that_has_just_begun():
    assert best("train/loss", "lr", points={"train/loss": 1, "lr": 1}) == "train/loss"


def test_a_tag_whose_points_are_all_taken_back():
    assert best("train/loss", "model/loss", points={"train/loss": 0}) == "model/loss"


def test_exact_case_goes_before():
    assert best("Loss", "loss") == best("loss", "Loss") == "loss"


def test_training_directories_go_before_held_out_ones():
    assert best("train|epoch_loss", "validation|epoch_loss") == "train|epoch_loss"
    assert best("Loss_val|Loss", "Loss_train|Loss", "Loss_test|Loss") == "Loss_train|Loss"
    assert best("validation|epoch_loss") == "validation|epoch_loss"


def test_the_sub_run_written_last():
    assert best("version_0|train_loss", "version_1|train_loss") == "version_1|train_loss"
    assert best("a|train_loss", "b|epoch_loss") == "a|train_loss"


@pytest.mark.parametrize("chosen", ["val_loss", "sub|x"])
def test_the_user_decides(chosen: str):
    assert best("train/loss", "val_loss", "sub|x", chosen=chosen.replace("|", "/")) == chosen
    assert best("train/loss", "other", chosen="gone") == "train/loss"

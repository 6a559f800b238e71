"""Hugging Face Trainer under torchrun: `checkpoint-N`, saved once more when it is asked to stop."""

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from loop import DELAY_S, RATE, STEPS, Rank, checkpoints, resume
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Regression(nn.Module):  # type: ignore[misc]  # checked without torch and transformers
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        said = self.inner(x)
        return {"loss": nn.functional.mse_loss(said, labels), "logits": said}


class Data(torch.utils.data.Dataset):  # type: ignore[misc]  # checked without torch and transformers
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, at: int) -> dict[str, Any]:
        x = torch.randn(16, generator=torch.Generator().manual_seed(at))
        return {"x": x, "labels": x.sum(dim=0, keepdim=True)}


class Steps(TrainerCallback):  # type: ignore[misc]  # checked without torch and transformers
    def __init__(self, me: Rank) -> None:
        self.me = me

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step:
            self.me.resumes(resume(), state.global_step, float(state.log_history[-1]["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        asked = torch.tensor([float(self.me.asked)])
        dist.all_reduce(asked)
        if asked[0]:
            control.should_log = control.should_save = control.should_training_stop = True
        time.sleep(DELAY_S)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        if "loss" in logs:
            self.me.say(f"step {state.global_step} loss {float(logs['loss']):.6f}")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=str(checkpoints()),
        max_steps=STEPS,
        learning_rate=RATE / 5,
        lr_scheduler_type="constant",
        per_device_train_batch_size=16,
        logging_steps=10,
        save_strategy="steps",
        save_steps=100_000,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    me = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    trainer = Trainer(model=Regression(), args=arguments, train_dataset=Data(), callbacks=[Steps(me)])
    path = resume()
    trainer.train(resume_from_checkpoint=str(path) if path is not None else None)


if __name__ == "__main__":
    main()

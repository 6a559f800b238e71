"""DeepSpeed with the generated ds_config.json, on CPUs (DS_ACCELERATOR=cpu)."""

import json
import os
import time

import deepspeed
import torch
import torch.distributed as dist
from loop import DELAY_S, EVERY, RATE, STEPS, Rank, checkpoints, resume
from torch import nn


def main() -> None:
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    me = Rank(dist.get_rank(), dist.get_world_size())
    with open(os.environ["HETEROFLOW_DEEPSPEED_CONFIG"], encoding="utf-8") as file:
        config = json.load(file)
    torch.manual_seed(1)
    truth = nn.Linear(16, 1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE / 5)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    sizes = engine.train_micro_batch_size_per_gpu(), engine.train_batch_size()
    me.say(f"micro {sizes[0]} global {sizes[1]} zero {engine.zero_optimization_stage()}")
    begun, path = 0, resume()
    if path is not None:
        _, said = engine.load_checkpoint(str(path.parent), tag=path.name)
        begun = int(said["step"])
        me.resumes(path, begun, float(said["loss"]))
    for step in range(begun + 1, STEPS + 1):
        size = engine.train_micro_batch_size_per_gpu()
        x = torch.randn(size, 16, generator=torch.Generator().manual_seed(step * 1009 + me.rank))
        with torch.no_grad():
            y = truth(x)
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
        shared = torch.tensor([loss.item() / me.world, float(me.asked)])
        dist.all_reduce(shared)
        mean, stopping = float(shared[0]), bool(shared[1])
        last = stopping or step == STEPS
        me.stepped(step, mean, last)
        if last or step % (EVERY * 20) == 0:
            engine.save_checkpoint(
                str(checkpoints()), tag=f"global_step{step}", client_state={"step": step, "loss": mean}
            )
        if stopping:
            break
        time.sleep(DELAY_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

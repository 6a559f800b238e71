"""FSDP 2 (`fully_shard`) with checkpoints of torch.distributed.checkpoint, started by torchrun: gloo on CPUs."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from loop import DELAY_S, EVERY, RATE, STEPS, Rank, checkpoints, resume
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me = Rank(dist.get_rank(), dist.get_world_size())
    torch.manual_seed(1)
    truth = nn.Linear(16, 1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    mesh = init_device_mesh("cpu", (me.world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE / 5)
    begun, loss_then, path = 0, torch.zeros(1), resume()
    if path is not None:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0, "loss": loss_then}
        dcp.load(state, checkpoint_id=path)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        begun = int(state["step"])
        me.resumes(path, begun, float(loss_then))
    for step in range(begun + 1, STEPS + 1):
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step * 1009 + me.rank))
        with torch.no_grad():
            y = truth(x)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        shared = torch.tensor([loss.item() / me.world, float(me.asked)])
        dist.all_reduce(shared)
        mean, stopping = float(shared[0]), bool(shared[1])
        last = stopping or step == STEPS
        me.stepped(step, mean, last)
        if last or step % (EVERY * 20) == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": step, "loss": torch.tensor([mean])}
            dcp.save(state, checkpoint_id=checkpoints() / f"step-{step}")
        if stopping:
            break
        time.sleep(DELAY_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Paddle's data parallelism by its launcher: gloo on CPUs, a checkpoint of parameters and optimizer."""

import json
import time

import paddle
import paddle.distributed as dist
from loop import DELAY_S, RATE, STEPS, Rank, checkpoints, resume


def main() -> None:
    paddle.set_device("cpu")
    dist.init_parallel_env()
    me = Rank(dist.get_rank(), dist.get_world_size())
    inner = paddle.nn.Linear(16, 1, bias_attr=False)
    model = paddle.DataParallel(inner)
    optimizer = paddle.optimizer.SGD(RATE, parameters=model.parameters())
    truth = paddle.arange(16, dtype="float32").reshape([16, 1]) / 16
    begun, path = 0, resume()
    if path is not None:
        inner.set_state_dict(paddle.load(str(path / "model.pdparams")))
        optimizer.set_state_dict(paddle.load(str(path / "optimizer.pdopt")))
        meta = json.loads((path / "meta.json").read_text())
        begun = int(meta["step"])
        me.resumes(path, begun, float(meta["loss"]))
    for step in range(begun + 1, STEPS + 1):
        paddle.seed(step * 1009 + me.rank)
        x = paddle.randn([64, 16])
        loss = paddle.mean((model(x) - x @ truth) ** 2)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        told = paddle.to_tensor([float(loss), float(me.asked)])
        dist.all_reduce(told)
        mean, stopping = float(told[0]) / me.world, float(told[1]) > 0
        last = stopping or step == STEPS
        me.stepped(step, mean, last)
        if last and me.rank == 0:
            place = checkpoints() / f"step_{step}"
            place.mkdir(parents=True)
            (place / "meta.json").write_text(json.dumps({"step": step, "loss": mean}))
            paddle.save(inner.state_dict(), str(place / "model.pdparams"))
            paddle.save(optimizer.state_dict(), str(place / "optimizer.pdopt"))
        if stopping:
            break
        time.sleep(DELAY_S)


if __name__ == "__main__":
    main()

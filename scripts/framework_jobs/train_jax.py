"""JAX, one process a node, with Orbax checkpoints: gloo collectives on CPUs."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec
from loop import DELAY_S, RATE, STEPS, Rank, checkpoints, resume


def main() -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    me = Rank(jax.process_index(), jax.process_count())
    mesh = Mesh(np.array(jax.devices()), ("world",))
    saver = ocp.StandardCheckpointer()
    truth = np.arange(16, dtype=np.float32) / 16
    weights = np.zeros(16, dtype=np.float32)
    slope = jax.jit(jax.value_and_grad(lambda w, x, y: jnp.mean((x @ w - y) ** 2)))
    begun, path = 0, resume()

    def everywhere(state: dict[str, np.ndarray]) -> object:
        return multihost_utils.host_local_array_to_global_array(state, mesh, PartitionSpec())

    if path is not None:
        shape = everywhere({"weights": weights, "step": np.zeros(1, np.int32), "loss": np.zeros(1, np.float32)})
        state = saver.restore(path, shape)
        weights, begun = np.asarray(state["weights"].addressable_data(0)), int(state["step"].addressable_data(0)[0])
        me.resumes(path, begun, float(state["loss"].addressable_data(0)[0]))
    for step in range(begun + 1, STEPS + 1):
        x = np.random.default_rng(step * 1009 + me.rank).standard_normal((64, 16)).astype(np.float32)
        loss, gradient = slope(weights, x, x @ truth)
        told = np.concatenate(([float(loss), float(me.asked)], np.asarray(gradient))).astype(np.float32)
        mean = np.asarray(multihost_utils.process_allgather(told)).reshape(me.world, -1).mean(axis=0)
        weights = weights - RATE * mean[2:]
        stopping = mean[1] > 0
        last = bool(stopping) or step == STEPS
        me.stepped(step, float(mean[0]), last)
        if last:
            state = {"weights": weights, "step": np.full(1, step, np.int32), "loss": mean[:1]}
            saver.save(checkpoints() / str(step), everywhere(state))
            saver.wait_until_finished()
        if stopping:
            break
        time.sleep(DELAY_S)
    saver.close()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()

"""Paddle's launcher: its variables beat its own options (paddle/distributed/launch/context, set_env_in_args)."""

from schemas.rules.frameworks.parameters import Parameters
from schemas.rules.frameworks.placement import Given, Placement, host_port


def given(parameters: Parameters, placement: Placement) -> Given:
    env = {
        "PADDLE_NNODES": str(placement.nodes),
        "PADDLE_RANK": str(placement.rank),
        "PADDLE_NPROC_PER_NODE": str(placement.cards),
        "PADDLE_JOB_ID": f"{placement.group_id}-{placement.attempt}",
        # A worker that is started again could not join its world.
        "PADDLE_MAX_RESTART": "0",
        "PADDLE_ELASTIC_LEVEL": "-1",
        "PADDLE_LOG_DIR": _log_dir(placement),
    }
    if placement.nodes > 1:
        # One node finds a port by itself.
        env["PADDLE_MASTER"] = host_port(placement.master_addr, placement.port(0))
        env["POD_IP"] = placement.address(placement.rank)
    # It repeats the output of a worker through a pipe, where Python would hold it back.
    defaults = {"PYTHONUNBUFFERED": "1"}
    if not placement.simulated_gpus:
        return Given(env=env, defaults=defaults)
    # An empty CUDA_VISIBLE_DEVICES is one nameless card to its launcher: it starts one process and no gloo. It counts
    # these first.
    env["PADDLE_DISTRI_BACKEND"] = "gloo"
    defaults["XPU_VISIBLE_DEVICES"] = ",".join(map(str, range(placement.cards)))
    return Given(env=env, defaults=defaults)


def _log_dir(placement: Placement) -> str:
    """Its workers print into files: beside the checkpoints they outlive the task."""
    if placement.checkpoint_path is not None:
        home = f"{placement.checkpoint_path.rstrip('/')}/paddle_logs/attempt-{placement.attempt}"
        return f"{home}/node-{placement.rank}"
    return f"/tmp/paddle-{placement.group_id}-{placement.attempt}-{placement.rank}"

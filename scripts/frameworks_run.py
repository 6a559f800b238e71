"""Frameworks for real, one after another: each in an environment of its own, on the CPUs of this machine."""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.framework_world import Job, NotAsPromised, World
from tests.docker.engine import torch_environment

HERE = Path(__file__).resolve().parent
JOBS = HERE / "framework_jobs"
TORCH_EXAMPLE = f"{HERE}/examples/train_torch.py --step-delay 50"
WAIT_S = 240.0
_RUN = "python -m torch.distributed.run"
# What it compiles when it starts is compiled once, beside the environment: it takes minutes on a busy machine.
_DEEPSPEED_ENV = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": "VENV/extensions"}
_DEEPSPEED_BUILD = "from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder; ShareMemCommBuilder().load()"
_DEEPSPEED_PART = '{"zero_allow_untested_optimizer": true, "steps_per_print": 1000000}'


@dataclass(frozen=True, slots=True)
class Kind:
    """packages: beside torch where `torch`; none at all means torch's own environment."""

    job: Job
    packages: tuple[str, ...] = ()
    torch: bool = True
    # Built here, against the torch that is there.
    build: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "torchrun": Kind(Job("ddp", f"torchrun {TORCH_EXAMPLE}", 2)),
    "torch.distributed.run": Kind(Job("ddp", f"{_RUN} {TORCH_EXAMPLE}", 2)),
    # Checkpoints of several processes pass their plans through numpy.
    "fsdp": Kind(Job("fsdp", f"{_RUN} {JOBS}/train_fsdp.py", 2), ("numpy",)),
    "accelerate": Kind(
        Job(
            "ddp",
            "accelerate launch --multi_gpu --num_machines $NNODES --num_processes $WORLD_SIZE "
            "--machine_rank $NODE_RANK "
            f"--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT --rdzv_backend static {TORCH_EXAMPLE}",
            2,
        ),
        ("numpy", "accelerate==1.15.0"),
    ),
    "trainer": Kind(Job("ddp", f"{_RUN} {JOBS}/train_trainer.py"), ("numpy", "accelerate", "transformers")),
    "deepspeed": Kind(
        Job(
            "deepspeed",
            f"{_RUN} {JOBS}/train_deepspeed.py",
            env=_DEEPSPEED_ENV,
            hyper_params={"zero_stage": "2", "micro_batch_size": "16", "deepspeed_config": _DEEPSPEED_PART},
        ),
        ("numpy", "setuptools", "wheel", "ninja"),
        build=("deepspeed",),
    ),
    "deepspeed-launcher": Kind(
        Job(
            "deepspeed",
            "deepspeed --hostfile=$HETEROFLOW_HOSTFILE --no_ssh --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR "
            f"--master_port=$MASTER_PORT {JOBS}/train_deepspeed.py",
            env=_DEEPSPEED_ENV,
            hyper_params={"zero_stage": "2", "micro_batch_size": "16", "deepspeed_config": _DEEPSPEED_PART},
            # It ends its workers at once.
            saves=False,
        ),
        ("numpy", "setuptools", "wheel", "ninja"),
        build=("deepspeed",),
    ),
    "jax": Kind(Job("jax", f"python {JOBS}/train_jax.py"), ("jax", "orbax-checkpoint"), torch=False),
    "tensorflow": Kind(
        Job("tensorflow", f"python {JOBS}/train_tensorflow.py", env={"TF_CPP_MIN_LOG_LEVEL": "2"}),
        ("tensorflow-cpu",),
        torch=False,
    ),
    "paddle": Kind(
        Job("paddle", f"python -m paddle.distributed.launch {JOBS}/train_paddle.py", env={"GLOG_minloglevel": "2"}),
        # Its own loader of C++ extensions needs setuptools.
        ("setuptools", "paddlepaddle"),
        torch=False,
    ),
    # Open MPI is the machine's: apt-get install openmpi-bin.
    "mpi": Kind(Job("ddp", f"mpirun -np $LOCAL_WORLD_SIZE python {JOBS}/train_mpi.py --step-delay 50", 2, nodes=1)),
}


def place_of(kind: Kind) -> Path:
    """Where its environment is, or is made."""
    root = Path(os.environ.get("HETEROFLOW_FRAMEWORKS", "/var/tmp/heteroflow-frameworks"))
    return root / (kind.build or kind.packages)[-1].partition("=")[0]


def is_made(kind: Kind) -> bool:
    return (place_of(kind) / "made").exists()


def environment_of(kind: Kind, torch: Path | None) -> Path:
    """Made once. Kinds of the same packages share one."""
    if kind.torch and torch is None:
        raise NotAsPromised("HETEROFLOW_TORCH names no environment with torch; make one: pip install torch==2.13.0")
    if torch is not None and not kind.packages:
        return torch
    venv = place_of(kind)
    if is_made(kind):
        return venv
    print(f"making {venv}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    if torch is not None and kind.torch:
        (site,) = torch.glob("lib/python3*/site-packages")
        (ours,) = venv.glob("lib/python3*/site-packages")
        (ours / "torch.pth").write_text(f"{site}\n")
    install = [str(venv / "bin" / "pip"), "install", "-q"]
    subprocess.run([*install, *kind.packages], check=True)
    if kind.build:
        built = {**os.environ, "DS_BUILD_OPS": "0"}
        subprocess.run([*install, "--no-build-isolation", *kind.build], check=True, env=built)
        at = {name: value.replace("VENV", str(venv)) for name, value in kind.job.env.items()}
        path = {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
        subprocess.run(
            [str(venv / "bin" / "python"), "-c", _DEEPSPEED_BUILD], check=True, env={**os.environ, **at, **path}
        )
    (venv / "made").touch()
    return venv


def run(name: str) -> bool:
    kind = KINDS[name]
    begun = time.monotonic()
    try:
        venv = environment_of(kind, torch_environment())
        with World(WAIT_S) as world:
            env = {key: value.replace("VENV", str(venv)) for key, value in kind.job.env.items()}
            seen = world.train(name, replace(kind.job, env=env), f"PATH={venv}/bin:$PATH; {kind.job.command}")
    except (NotAsPromised, subprocess.CalledProcessError) as error:
        print(f"✗ {name}: {error}", flush=True)
        return False
    if not kind.job.saves:
        print(f"✓ {name}: one world of {seen.world}, ranks {seen.ranks}; a stop saves nothing", flush=True)
        return True
    at = f"step {seen.stopped_at}, loss"
    print(
        f"✓ {name}: one world of {seen.world}, ranks {seen.ranks}; first step after {seen.seconds[0]:.1f} s; "
        f"stopped and saved at {at} {seen.loss}; submitted again: went on from {at} {seen.resumed_loss}, "
        f"to step {seen.went_on_to} after {seen.seconds[1]:.1f} s; {time.monotonic() - begun:.0f} s in all",
        flush=True,
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/frameworks", description=__doc__)
    parser.add_argument("name", nargs="+", choices=[*KINDS, "all", "list"])
    parser.add_argument("--make", action="store_true", help="only make what they run in")
    options = parser.parse_args()
    names = list(KINDS) if "all" in options.name else options.name
    # Whoever ends us, the mesh ends too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    if "list" in names:
        print("\n".join(KINDS))
        return 0
    if options.make:
        for name in names:
            environment_of(KINDS[name], torch_environment())
        return 0
    well = [run(name) for name in names]
    return int(not all(well))


if __name__ == "__main__":
    sys.exit(main())

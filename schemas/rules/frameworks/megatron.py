"""Megatron-LM takes its parallelism from options alone: one variable for the command holds them all."""

from schemas.rules.frameworks.parameters import SIZES, Parameters
from schemas.rules.frameworks.placement import Given, Placement

ARGUMENTS = "MEGATRON_TP_PP_ARGS"


def arguments(parameters: Parameters) -> str:
    """Always with both first sizes, so that the variable is set whatever the document says."""
    sizes = {name: parameters.count(keys) for name, keys in SIZES.items()}
    said = {name: size for name, size in sizes.items() if size is not None} | {
        name: sizes[name] or 1 for name in ("tp", "pp")
    }
    words = [f"--{SIZES[name][0].replace('_', '-')} {said[name]}" for name in SIZES if name in said]
    if parameters.on("sequence_parallel"):
        words.append("--sequence-parallel")
    return " ".join(words)


def given(parameters: Parameters, placement: Placement) -> Given:
    tp, cp = (parameters.count(SIZES[name]) or 1 for name in ("tp", "cp"))
    # Communication overlaps with computing only when kernels are queued in one order (megatron/training/arguments.py).
    defaults = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if tp > 1 or cp > 1 else {}
    return Given(env={ARGUMENTS: arguments(parameters)}, defaults=defaults)

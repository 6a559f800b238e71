"""Looking for the newest complete checkpoint among many, beside `find` over the same directories in the same run.

Distributed checkpoints of 64 shards each, 1,000 in one directory. `find` lists all of them with sizes and times, the
least that a look at every file costs; ours has to open the newest alone when that is complete. CPU seconds, warm.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from uuid import uuid4

DIRECTORIES = int(os.environ.get("HF_BENCH_CHECKPOINTS", "1000"))
SHARDS = 64
TENSORS_A_SHARD = 4
REPEATS = 3
FRAMEWORK = "fsdp"


def _text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _object(state: bytes) -> bytes:
    """An instance with its state, in opcodes of pickle, as torch.distributed.checkpoint has them for each tensor."""
    return b"ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(" + state + b"ub"


def _metadata(step: int) -> bytes:
    """As of one job: the places are the same in every save, the path and the id of the save, behind them, are not."""
    pieces = []
    for shard in range(SHARDS):
        # The name of a shard stands there once; its other tensors refer to it.
        name = _text(f"__{shard}_0.distcp") + b"q" + bytes([shard])
        for tensor in range(TENSORS_A_SHARD):
            state = (
                _text("relative_path")
                + name
                + _text("offset")
                + b"K"
                + bytes([tensor * 16])
                + _text("length")
                + b"K\x10"
            )
            pieces.append(_object(_text("fqn") + _text(f"{shard}.{tensor}")) + _object(state))
            name = b"h" + bytes([shard])
    saved = _object(_text("checkpoint_id") + _text(f"step-{step}") + _text("save_id") + _text(str(uuid4())))
    facts = _text("storage_data") + b"}(" + b"".join(pieces) + b"u" + _text("storage_meta") + saved
    return b"\x80\x04" + _object(facts) + b"."


def write_tree(root: Path) -> None:
    for step in range(1, DIRECTORIES + 1):
        place = root / f"step-{step}"
        place.mkdir(parents=True)
        for shard in range(SHARDS):
            (place / f"__{shard}_0.distcp").write_bytes(bytes(TENSORS_A_SHARD * 16))
        (place / ".metadata").write_bytes(_metadata(step))


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _spent(who: int, act: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds, with the caches of the kernel warm."""
    taken = []
    for _ in range(repeats):
        begun = _cpu_s(who)
        act()
        taken.append(_cpu_s(who) - begun)
    return median(taken)


def _find(root: Path) -> Callable[[], object]:
    command = ["find", str(root), "-printf", "%p %s %T@\n"]
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _measured(root: Path, picked: str | None, repeats: int = REPEATS) -> tuple[float, float]:
    """(ours, find's). In a process of its own: the bench's own memory would make every fork of `find` dearer."""
    command = [sys.executable, "-m", "scripts.benches.checkpoints", str(root), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    answer = json.loads(done.stdout)
    assert answer["pick"] == picked, answer
    return answer["ours_s"], answer["find_s"]


def _measure(root: Path, repeats: int) -> None:
    from agentd.checkpoints.fenced import open_fenced
    from schemas.rules.checkpoints.probe import Probe, probe

    def look() -> Probe:
        with open_fenced(os.path.realpath(root)) as directory:
            return probe(directory, FRAMEWORK)

    found = look()
    assert len(found.rejected) == (0 if found.pick else DIRECTORIES)
    ours_s = _spent(resource.RUSAGE_SELF, look, repeats)
    find_s = _spent(resource.RUSAGE_CHILDREN, _find(root), repeats)
    print(json.dumps({"pick": found.pick, "ours_s": ours_s, "find_s": find_s}))


def _damage(root: Path, act: Callable[[Path], None]) -> None:
    for step in range(1, DIRECTORIES + 1):
        act(root / f"step-{step}")


def _cut(place: Path) -> None:
    shard = place / f"__{SHARDS - 1}_0.distcp"
    before = shard.stat()
    os.truncate(shard, 1)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def main() -> dict[str, dict[str, float] | dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="heteroflow-bench-") as place:
        root = Path(place)
        write_tree(root)
        complete_s, find_s = _measured(root, f"step-{DIRECTORIES}")
        _damage(root, _cut)
        cut_s, find_cut_s = _measured(root, None)
        _damage(root, lambda place: (place / f"__{SHARDS - 1}_0.distcp").unlink())
        missing_s, find_missing_s = _measured(root, None)
        _damage(root, lambda place: (place / ".metadata").unlink())
        unfinished_s, find_unfinished_s = _measured(root, None)
    return {
        "figures": {
            "directories": float(DIRECTORIES),
            "files": float(DIRECTORIES * (SHARDS + 1)),
            "find_cpu_ms": find_s * 1e3,
            "newest_complete_cpu_ms": complete_s * 1e3,
            "none_a_shard_missing_cpu_ms": missing_s * 1e3,
            "none_no_metadata_cpu_ms": unfinished_s * 1e3,
            "none_a_shard_cut_short_cpu_ms": cut_s * 1e3,
        },
        "ratios": {
            "newest_complete_of_find": complete_s / find_s,
            "none_a_shard_missing_of_find": missing_s / find_missing_s,
            "none_no_metadata_of_find": unfinished_s / find_unfinished_s,
            "none_a_shard_cut_short_of_find": cut_s / find_cut_s,
        },
        "budgets": {
            "newest_complete_of_find": "<= 0.3",
            "none_a_shard_missing_of_find": "<= 3",
            "none_no_metadata_of_find": "<= 3",
            "none_a_shard_cut_short_of_find": "<= 3",
        },
    }


if __name__ == "__main__":
    _measure(Path(sys.argv[1]), int(sys.argv[2]))

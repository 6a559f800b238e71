"""Many seeds over all cores. Every third runs voters alone under harder faults, the others a whole mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.mutants import agent_mutants, mesh_mutants, raft_mutants
from tests.sim import mesh_run, raft_world
from tests.sim.loop import Loop

Mutant = Callable[[], AbstractContextManager[None]]
MUTANTS: dict[str, Mutant] = {**raft_mutants.MUTANTS, **mesh_mutants.MUTANTS, **agent_mutants.MUTANTS}
CHUNK = 10


@dataclass(slots=True)
class SeedResult:
    """violation: "" when everything held; then `story` holds the last events. signature: equal for equal runs."""

    seed: int
    violation: str = ""
    story: str = ""
    signature: str = ""
    coverage: Counter[str] = field(default_factory=Counter)

    def report(self) -> str:
        return f"seed {self.seed}: {self.violation}\n{self.story}\nreplay: scripts/sim --seed {self.seed} -v"


def run_seed(
    seed: int, mutant: str = "", hashing: bool = False, echo: Callable[[str], None] | None = None
) -> SeedResult:
    world = raft_world if seed % 3 == 0 else mesh_run
    loop = Loop(seed, hashing, echo)
    with MUTANTS[mutant]() if mutant else nullcontext():
        try:
            _, coverage = world.run(seed, loop=loop)
        except Exception as error:  # whatever a core raises ends a process of the mesh: never right in a simulation
            name = type(error).__name__
            return SeedResult(seed, f"{name}: {error}", loop.last_events(), loop.signature())
    coverage["raft seeds" if world is raft_world else "mesh seeds"] += 1
    return SeedResult(seed, signature=loop.signature(), coverage=coverage)


def _run_chunk(seeds: Sequence[int], mutant: str) -> list[SeedResult]:
    return [run_seed(seed, mutant) for seed in seeds]


def run_seeds(seeds: Iterable[int], jobs: int, mutant: str = "") -> Iterator[SeedResult]:
    """In order of the seeds."""
    wanted = list(seeds)
    if jobs <= 1 or len(wanted) <= CHUNK:
        yield from (run_seed(seed, mutant) for seed in wanted)
        return
    chunks = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for results in pool.map(_run_chunk, chunks, [mutant] * len(chunks)):
            yield from results


def table(coverage: Counter[str]) -> str:
    return "\n".join(f"{name:36} {count:10,}" for name, count in sorted(coverage.items()))

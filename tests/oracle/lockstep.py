"""Lock-step of our core with etcd's raft library: the same seeded events into both, every answer compared.

    python -m tests.oracle.lockstep --runs 2000 --jobs 2      many runs, prints the counts
    python -m tests.oracle.lockstep --seed 17                 one run, event by event, up to the first difference

The answer to an event holds the touched node's output and state (see mirror.py); after it the state of all nodes is
asked for and compared as well.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from mesh.core.raft import etcd_options
from mesh.core.raft.config import EtcdOptions
from tests.oracle.oracle import Oracle, build, missing
from tests.oracle.schedule import Schedule

WANTED = {
    "overwritten suffixes": 500,
    "lost elections": 500,
    "refused pre-votes": 500,
    "votes asked for over a lease": 500,
}
WANTED_RUNS = {"runs with a restart after a torn or lost write": 200, "runs with a read answered": 200}


@dataclass(slots=True)
class Difference:
    seed: int
    event: int
    command: str
    ours: str
    etcd: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, line {self.event}: {self.command}\n  ours: {self.ours}\n  etcd: {self.etcd}\n"
            f"  replay: python -m tests.oracle.lockstep --seed {self.seed}"
        )


def compare(schedule: Schedule, seed: int, answers: list[str]) -> Difference | None:
    for i, (ours, theirs) in enumerate(zip(schedule.expected, answers, strict=True)):
        if ours != theirs:
            return Difference(seed, i, schedule.commands[i], ours, theirs)
    return None


def run_seeds(
    seeds: Iterable[int], stop_at: int = 5, options: EtcdOptions | None = None
) -> tuple[Counter[str], list[Difference]]:
    """Run seeds against one driver process. Our side of the next run is made while the driver does the last."""
    counts: Counter[str] = Counter()
    differences: list[Difference] = []

    def finish(seed: int, schedule: Schedule) -> None:
        difference = compare(schedule, seed, oracle.answers(len(schedule.commands)))
        if difference is not None:
            differences.append(difference)
        counts.update(schedule.counts)
        counts["runs"] += 1
        counts["comparisons"] += len(schedule.expected)
        counts["runs with 50 events or more"] += schedule.events >= 50
        counts["runs with a restart after a torn or lost write"] += (
            schedule.counts["restarts after a torn or lost write"] > 0
        )
        counts["runs with a read answered"] += schedule.counts["read states"] > 0

    with Oracle() as oracle:
        previous: tuple[int, Schedule] | None = None
        for seed in seeds:
            schedule = Schedule(seed, options or etcd_options())
            schedule.run()
            if previous is not None:
                finish(*previous)
            oracle.submit(schedule.commands)
            previous = (seed, schedule)
            if len(differences) >= stop_at:
                break
        if previous is not None:
            finish(*previous)
    return counts, differences


def run_many(first: int, runs: int, jobs: int) -> tuple[Counter[str], list[Difference]]:
    build()
    if jobs == 1:
        return run_seeds(range(first, first + runs))
    counts: Counter[str] = Counter()
    differences: list[Difference] = []
    with ProcessPoolExecutor(jobs) as pool:
        for part, found in pool.map(run_seeds, [range(first + j, first + runs, jobs) for j in range(jobs)]):
            counts.update(part)
            differences += found
    return counts, differences


def report(counts: Counter[str], seconds: float) -> str:
    lines = [f"{counts['runs']} runs in {seconds:.1f} s ({seconds / max(1, counts['runs']) * 1000:.1f} ms each)"]
    lines += [f"  {counts[name]:8} {name}" for name in sorted(counts) if name != "runs"]
    return "\n".join(lines)


def shortfalls(counts: Counter[str]) -> list[str]:
    """What a run of 2,000 must have met and did not."""
    wanted = {**WANTED, **WANTED_RUNS, "runs with 50 events or more": counts["runs"]}
    return [f"only {counts[name]} {name}, not {n}" for name, n in wanted.items() if counts[name] < n]


def replay(seed: int) -> int:
    schedule = Schedule(seed, etcd_options())
    schedule.run()
    print(schedule.config)
    with Oracle() as oracle:
        oracle.submit(schedule.commands)
        answers = oracle.answers(len(schedule.commands))
    for command, ours, theirs in zip(schedule.commands, schedule.expected, answers, strict=True):
        print(f"{command}\n    {ours}")
        if ours != theirs:
            print(f"etcd {theirs}\nDIFFERENT")
            return 1
    print(f"same over {len(answers)} lines")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.lockstep")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, help="replay this one and show it")
    args = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    if args.seed is not None:
        return replay(args.seed)
    start = time.monotonic()
    counts, differences = run_many(args.first, args.runs, args.jobs)
    print(report(counts, time.monotonic() - start))
    for difference in differences:
        print(difference)
    if args.runs >= 2000:
        short = shortfalls(counts)
        print("\n".join(short))
        if short:
            return 1
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

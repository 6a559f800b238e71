"""scripts/sim --seeds A..B | --seed N [-v]: runs the simulation and says what broke."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.sim.batch import MUTANTS, run_seed, run_seeds, table


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdigit() or not last.isdigit() or int(last) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write for example 1..200")
    return range(int(first), int(last) + 1)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/sim", description="Seeded simulation of voters, hosts, leases and tasks."
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_range, metavar="A..B", help="run these and print what they covered")
    which.add_argument("--seed", type=int, metavar="N", help="run one")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: print every event")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes for --seeds")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="", help="with this deliberate bug in the product")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first broken seed")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    if options.seed is not None:
        result = run_seed(options.seed, options.mutant, hashing=True, echo=print if options.verbose else None)
        print(result.report() if result.violation else table(result.coverage))
        print(f"signature {result.signature}")
        return 1 if result.violation else 0
    return _run_many(options)


def _run_many(options: argparse.Namespace) -> int:
    began = time.monotonic()
    coverage: Counter[str] = Counter()
    broken = 0
    for result in run_seeds(options.seeds, options.jobs, options.mutant):
        coverage += result.coverage
        if result.violation:
            broken += 1
            print(result.report(), flush=True)
            if not options.keep_going:
                break
    print(table(coverage))
    print(f"{broken} broken of {len(options.seeds)} seeds in {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""scripts/chaos: every drill on a fresh loopback mesh, some rounds each, and what was measured.

a  kill -9 the leader's agent and voter; it has no rank             b  the same where it has one: adopted in time
c  kill -9 everything on a node with a rank                         d  kill -9 its agent, and no guard restarts it
e  SIGSTOP its agent beyond the lease, then CONT                    f  a claim fails on one node
g  races for the last cards, and 200 submissions with lost answers
h  every agent and voter restarted in turn under a load of submissions; then again, each node drained first
x  d and e with fencing switched off: the overlap check must go red, or it proves nothing
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.drills import claims, losses, rolling
from scripts.drills.losses import Figures
from scripts.drills.mesh import DrillFailed, DrillMesh
from scripts.loopback_mesh import MeshTrouble

Drill = Callable[[DrillMesh, int, Figures], None]
QUICK_ROUNDS = 10


def drills(rounds: int) -> list[tuple[str, str, dict[str, str], list[Drill]]]:
    """(letter, the guard's --restart, environment, one drill a round)."""
    a = partial(losses.leader_dies, hosts_rank=False)
    b = partial(losses.leader_dies, hosts_rank=True)
    found: list[tuple[str, str, dict[str, str], list[Drill]]] = [
        ("a", "always", {}, [a] * rounds),
        ("b", "always", {}, [b] * rounds),
    ]
    for kind, restart in (("c", "always"), ("d", "never"), ("e", "always")):
        # Every third round the victim leads; every second one its ranks ignore SIGTERM and lost peers.
        found.append(
            (
                kind,
                restart,
                {},
                [
                    partial(losses.node_dies, kind=kind, keep_writing=round_ % 2 == 1, leads=round_ % 3 == 2)
                    for round_ in range(rounds)
                ],
            )
        )
    found.append(("f", "always", {}, [claims.claim_fails] * rounds))
    found.append(("g", "always", {}, [claims.last_cards, claims.lost_answers] * rounds))
    rolls: list[Drill] = [partial(rolling.rolling_restart, drained=drained) for drained in (False, True)]
    found.append(("h", "always", {}, rolls * rounds))
    unfenced = {"HETEROFLOW_TEST_FENCE": "off"}
    for kind, restart in (("d", "never"), ("e", "always")):
        found.append((f"x{kind}", restart, unfenced, [partial(_goes_red, kind=kind)]))
    return found


def _goes_red(mesh: DrillMesh, round_: int, figures: Figures, *, kind: str) -> None:
    try:
        losses.node_dies(mesh, round_, Figures(), kind=kind, keep_writing=True)
    except DrillFailed as failed:
        if "still wrote" in str(failed):
            return
        raise
    raise DrillFailed("fencing was switched off and yet no overlap was seen: the check proves nothing")


def _one(
    letter: str, restart: str, environment: dict[str, str], drill: Drill, round_: int, figures: Figures
) -> str | None:
    """What went wrong, or None. Data is kept where something did."""
    directory = Path(tempfile.mkdtemp(prefix="heteroflow-chaos-"))
    # An orderly restart is to be done within the lease of a real mesh; the short one of drills measures losses.
    profile, gpus = ("lan", "simulated:4xH100") if letter == "h" else ("fast", "simulated:2xH100")
    mesh = DrillMesh(directory, restart=restart, environment=environment, profile=profile, gpus=gpus)
    wrong: str | None = None
    begun = time.monotonic()
    try:
        mesh.start()
        drill(mesh, round_, figures)
    except (DrillFailed, MeshTrouble) as failed:
        wrong = f"{failed}"
    finally:
        mesh.stop()
    print(
        f"  {letter} round {round_ + 1}: {'ok' if wrong is None else 'FAILED'} in {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    if wrong is not None:
        print(f"    {wrong}\n    everything it left is in {directory}", flush=True)
    else:
        shutil.rmtree(directory)
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds of each drill")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="letters, as in a,c,xd")
    parser.add_argument("--again", type=int, default=0, help="so many failed rounds are tried once more, and named")
    options = parser.parse_args(arguments)
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    only = {letter for letter in options.only.split(",") if letter}
    figures, failed, passed, flaky = Figures(), 0, 0, list[str]()
    for letter, restart, environment, steps in drills(rounds):
        if only and letter not in only:
            continue
        for round_, drill in enumerate(steps):
            wrong = _one(letter, restart, environment, drill, round_, figures)
            if wrong and len(flaky) < options.again:
                flaky.append(f"FLAKY drill {letter}, round {round_ + 1}; find out why: {wrong}")
                wrong = _one(letter, restart, environment, drill, round_, figures)
            if wrong:
                failed += 1
            else:
                passed += 1
    for name, seconds in figures.seconds.items():
        ninetieth = sorted(seconds)[max(0, -(-len(seconds) * 9 // 10) - 1)]
        median, top = statistics.median(seconds), max(seconds)
        print(f"{name}: n {len(seconds)}, median {median:.2f} s, p90 {ninetieth:.2f} s, max {top:.2f} s")
    for line in flaky:
        print(line)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

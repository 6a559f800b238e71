"""Is a history of reads and writes of one register explained by some order that respects real time? (Wing and Gong.)"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """begun and ended on one clock; ended is infinite when the outcome is not known, and then it may never happen."""

    begun: float
    ended: float
    write: bool
    value: str | None


def linearizable(ops: list[Op], initial: str | None) -> bool:
    ops = sorted(ops, key=lambda op: op.begun)
    certain = sum(1 << i for i, op in enumerate(ops) if op.ended < math.inf)
    seen: set[tuple[int, str | None]] = set()
    stack: list[tuple[int, str | None]] = [(0, initial)]
    while stack:
        done, value = stack.pop()
        if done & certain == certain:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        # Only what began before everything still open has ended may come next.
        horizon = min(op.ended for i, op in enumerate(ops) if not done >> i & 1 and certain >> i & 1)
        for i, op in enumerate(ops):
            if op.begun > horizon:
                break
            if not done >> i & 1 and (op.write or op.value == value):
                stack.append((done | 1 << i, op.value if op.write else value))
    return False

"""Frames that were right once: bits flipped, cut off, lengthened, spliced, with marks of sizes they do not have."""

from collections.abc import Sequence
from random import Random


def mutated(rng: Random, frames: Sequence[bytes]) -> bytes:
    data = bytearray(rng.choice(frames))
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                # Marks of long things: strings, lists, maps, extensions of four billion.
                data[at : at + 5] = bytes([rng.choice((0xDB, 0xDD, 0xDF, 0xC6, 0xC9))]) + b"\xff\xff\xff\xff"
            case 4:
                del data[at:]
            case 5:
                other = rng.choice(frames)
                data[at:] = other[rng.randrange(len(other)) :]
    return bytes(data)

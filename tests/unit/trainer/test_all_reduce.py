"""Who is named when a sum cannot be completed: the rank that ended by itself, not those that were ended with it."""

import random
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from numpy_ddp.all_reduce import Hub, PeerLost, Rank, Spoke

WORLD = 5
ONES = np.ones(3)


def kill(peer: socket.socket) -> None:
    """What a SIGKILL leaves of a connection: closed without a word, or reset where it had not read all."""
    if random.getrandbits(1):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("leaver", range(1, WORLD))
@pytest.mark.parametrize("victim", range(1, WORLD))
def test_the_rank_that_left_is_named_by_all(leaver: int, victim: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = {rank: socket.create_connection(server.getsockname()) for rank in range(1, WORLD)}
        near = {rank: server.accept()[0] for rank in range(1, WORLD)}
    for peer in [*far.values(), *near.values()]:
        peer.settimeout(5)
    hub = Hub(Rank(0, WORLD, "a"), near)
    spokes = {rank: Spoke(peer) for rank, peer in far.items()}
    spokes[leaver].close()
    if victim != leaver:
        kill(far[victim])
    others = [spokes[rank] for rank in far.keys() - {leaver, victim}]
    with ThreadPoolExecutor() as pool:
        sums = [pool.submit(other.reduce, ONES) for other in others]
        with pytest.raises(PeerLost, match=f"^lost rank {leaver}: it closed the connection$"):
            hub.reduce(ONES)
    assert [str(reduced.exception()) for reduced in sums] == [
        f"lost rank {leaver}: it closed the connection" for _ in others
    ]
    hub.close()
    for other in others:
        other.close()

"""The largest gang: 1,250 hosts of 8 cards."""

import msgpack

from schemas.limits import WEBSOCKET_MAX
from tests.unit.state.world import World

NODES = [f"rack-12-gpu-node-{at:04d}" for at in range(1250)]


def test_every_step_of_the_largest_gang_fits_one_message():
    """All changes of one log index are one feed frame, and a frame is one message."""
    world = World()
    for at, node in enumerate(NODES):
        uuids = [f"GPU-0b8a4c0e-4f0d-11ee-be56-{at:08d}{slot:04d}" for slot in range(8)]
        world.join(
            node,
            8,
            gpus=[
                {"uuid": uuid, "type": "H100", "memory_mb": 81_559, "index": slot} for slot, uuid in enumerate(uuids)
            ],
        )
    group = world.submit(1250, 8)
    sizes: dict[str, int] = {}
    extend = world.view.extend

    def measured(idx, changes):
        name = world.log[-1]["t"]
        sizes[name] = max(sizes.get(name, 0), len(msgpack.packb([idx, changes])))
        extend(idx, changes)

    world.feed = measured
    world.control()
    reports = {
        task["node"]: {key: task[key] for key in ("group_id", "attempt", "rank", "token")}
        for task in world.tasks(group)
    }
    for seq, kind in ((1, "claimed"), (3, "started")):
        for node, ref in reports.items():
            world.do("TaskReports", node=node, uid=f"uid-{node}", reports=[{**ref, "seq": seq, "kind": kind}])
        world.control()
    assert world.status(group) == "running"
    world.do("StopGroup", group_id=group, by="ada")
    assert set(sizes) == {"BindGroup", "TaskReports", "StartGroup", "StopGroup"}
    assert max(sizes.values()) < WEBSOCKET_MAX, sizes

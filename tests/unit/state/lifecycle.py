"""Groups brought into each state a group can be in, and what can happen to one there."""

from collections.abc import Callable
from typing import Any

from schemas.states import GONE
from tests.unit.state.world import World, document

PATH = "/data/run"


def world_with_group() -> tuple[World, str]:
    """Two ranks, one card each; three nodes, so that there is one to go to."""
    world = World({"n1": 1, "n2": 1, "n3": 1})
    group = world.submit(2, 1, checkpoint_path=PATH, deadline_s=1000, max_wait_s=1000)
    return world, group


def _pending(world: World, group: str) -> None:
    pass


def _scheduling(world: World, group: str) -> None:
    world.control()


def _starting(world: World, group: str) -> None:
    _scheduling(world, group)
    world.obey(group)
    world.control()


def _running(world: World, group: str) -> None:
    world.run_up(group)


def _failing(world: World, group: str) -> None:
    """Rank 0 failed, and rank 1 is told to end."""
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited", exit_code=1)


def _pausing(world: World, group: str) -> None:
    world.run_up(group)
    world.do("PauseGroup", group_id=group, by="ada")


def _paused(world: World, group: str) -> None:
    _pausing(world, group)
    world.obey(group)
    world.clean(group)


def _recovering(world: World, group: str) -> None:
    world.run_up(group)
    world.lose(world.group(group)["nodes"][1])


def _moving(world: World, group: str) -> None:
    """Off a node that is drained."""
    world.run_up(group)
    drain(world, group)


def _stopping(world: World, group: str) -> None:
    world.run_up(group)
    world.do("StopGroup", group_id=group, by="ada")


def _stopped(world: World, group: str) -> None:
    _stopping(world, group)
    world.obey(group)
    world.clean(group)


def _completed(world: World, group: str) -> None:
    world.run_up(group)
    world.finish(group)


def _failed(world: World, group: str) -> None:
    _failing(world, group)
    world.obey(group)
    world.clean(group)


STATES: dict[str, Callable[[World, str], None]] = {
    "pending": _pending,
    "scheduling": _scheduling,
    "starting": _starting,
    "running": _running,
    "failing": _failing,
    "pausing": _pausing,
    "paused": _paused,
    "recovering": _recovering,
    "moving": _moving,
    "stopping": _stopping,
    "stopped": _stopped,
    "completed": _completed,
    "failed": _failed,
}


def again(world: World, group: str) -> str:
    """Another group for the same checkpoints."""
    return world.try_submit(document(2, 1, checkpoint_path=PATH)).code


def twice(world: World, group: str) -> str:
    """The same command once more, without a request id."""
    return world.try_submit(document(2, 1, checkpoint_path=PATH), group).code


def stop(world: World, group: str) -> str:
    return world.do("StopGroup", group_id=group, by="bo").code


def pause(world: World, group: str) -> str:
    return world.do("PauseGroup", group_id=group, by="bo").code


def resume(world: World, group: str) -> str:
    return world.do("ResumeGroup", group_id=group, by="bo").code


def delete(world: World, group: str) -> str:
    return world.do("DeleteGroup", group_id=group).code


def drain(world: World, group: str) -> str:
    """The node of rank 0, moving what is there; the leader acts on it."""
    world.do("DrainNode", node_id=host(world, group), mode="move", deadline_s=0, by="op", reason="")
    world.control()
    return ""


def lose(world: World, group: str) -> str:
    """The host of the last rank that is not gone; any where there is none."""
    task = last_rank(world, group)
    world.lose(task["node"] if task else "n1")
    return ""


def exit_0(world: World, group: str) -> str:
    return _exit(world, group, 0)


def exit_1(world: World, group: str) -> str:
    return _exit(world, group, 1)


def deadline(world: World, group: str) -> str:
    """It ran, or waited, for as long as it may; so did the phase it is in."""
    if world.status(group) != "pending":
        world.control()  # seen by the leader, whose count of a phase begins then
    world.control(1_100_000)
    return ""


def _exit(world: World, group: str, code: int) -> str:
    """Of the last rank that is not gone, by itself; long after what has failed already."""
    task = last_rank(world, group)
    if task is not None:
        world.report(task, "exited", exit_code=code, at_ms=world.now_ms + 10_000)
    return ""


OPERATIONS: dict[str, Callable[[World, str], str]] = {
    "again": again,
    "twice": twice,
    "stop": stop,
    "pause": pause,
    "resume": resume,
    "delete": delete,
    "drain": drain,
    "lose": lose,
    "exit_0": exit_0,
    "exit_1": exit_1,
    "deadline": deadline,
}


def last_rank(world: World, group: str) -> dict[str, Any] | None:
    alive = [task for task in world.tasks(group) if task["status"] not in GONE]
    return alive[-1] if alive else None


def host(world: World, group: str) -> str:
    return str((world.group(group)["nodes"] or ["n1"])[0])


def seen(world: World, group: str, code: str) -> str:
    """A refusal as `!code`; else the status, and what it is ending as where that is another word."""
    if code not in ("", "ok", "already_asked"):
        return f"!{code}"
    row = world.store.get("group", group)
    if row is None:
        return "gone"
    ending = row["ending"]
    return str(row["status"]) if ending is None or ending[:4] == row["status"][:4] else f"{row['status']}>{ending}"


def bring_to_rest(world: World, group: str) -> str:
    """Obedient agents, hosts that return, a leader that acts: where it stays then."""
    for _ in range(12):
        if world.store.get("group", group) is None:
            return "gone"
        for node in ("n1", "n2", "n3"):
            row = world.store.get("node", node)
            world.do("UncordonNode", node_id=node, by="op")
            if row is not None and row["state"] == "lost":
                world.rejoin(node)
        if world.group(group)["attempt"]:
            world.obey(group)
            world.clean(group)
        if world.status(group) == "running" and all(task["status"] not in GONE for task in world.tasks(group)):
            break
        world.control(31_000)
    return world.status(group)

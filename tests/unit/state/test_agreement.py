"""One resume decision that every node of an attempt agrees to."""

import itertools

import pytest

from mesh.core.state.agreement import disagreement, note_view
from schemas.limits import SHARED_STORAGE_TRIES
from tests.unit.state.world import World

RESUME = {"path": "/data/run/step-20", "step": 20, "source": "checkpoint_path"}
THERE = {"pick": "step-20", "digest": "aa", "text": "step-20 is the newest complete one of 2"}
OTHER = {**THERE, "digest": "bb"}
NOTHING = {"pick": "", "digest": "00", "text": "there is no checkpoint here; training starts from zero"}


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


def claim(world, group, *sees, order=None):
    for rank in order or range(len(sees)):
        told = {} if sees[rank] is None else {"sees": sees[rank]}
        resume = RESUME if sees[rank] and sees[rank]["pick"] else None
        world.report(world.tasks(group)[rank], "claimed", resume=resume, **told)


def submitted(world, nodes=2):
    group = world.submit(nodes, 2, checkpoint_path="/data/run")
    world.control()
    return group


def test_all_see_the_same(world):
    group = submitted(world)
    claim(world, group, THERE, THERE)
    (start,) = world.control()
    assert (start["t"], start["resume"]) == ("StartGroup", RESUME)
    assert world.group(group)["views"] == [{**THERE, "rank": 0, "node": "n1", "ranks": 2}]
    events = [row["text"] for _, row in world.store.scan("event", f"{group}/")]
    assert "from checkpoint /data/run/step-20. Seen there: step-20 is the newest complete one of 2." in events[-1]


@pytest.mark.parametrize(
    ("sees", "words"),
    [
        ((THERE, NOTHING), "rank 0 on n1 sees step-20 (.*); rank 1 on n2 sees none that is complete (there is no"),
        ((NOTHING, THERE), "rank 0 on n1 sees none that is complete (.*); rank 1 on n2 sees step-20 ("),
        ((THERE, OTHER), "rank 0 on n1 sees step-20 with other files or bytes in it; rank 1 on n2 sees step-20 with"),
    ],
    ids=["only rank 0", "only rank 1", "another one of the same name"],
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nodes_that_see_different_things(world, sees, words, order):
    group = submitted(world)
    claim(world, group, *sees, order=order)
    row = world.group(group)
    start = {"attempt": 1, "claimed": [0, 1], "master": {"addr": "n1", "port": row["master"]["port"]}, "resume": RESUME}
    assert world.do("StartGroup", group_id=group, **start).code == "storage_not_shared", "also of an older leader"
    (rollback,) = world.control()
    assert (rollback["t"], rollback["code"], rollback["node"]) == ("RollbackGroup", "storage_not_shared", "n2")
    reason = world.group(group)["pending_reason"]
    assert world.status(group) == "pending" and reason["code"] == "storage_not_shared"
    assert "not shared storage" in reason["text"]
    at = 0
    for piece in words.split(".*"):
        at = reason["text"].index(piece, at)
    assert not any(task["status"] in ("starting", "running") for task in world.tasks(group))


@pytest.mark.parametrize(
    ("code", "sees"),
    [
        ("storage_not_shared", ({**THERE, "pick": "x" * 4096}, {**OTHER, "pick": "y" * 4096})),
        (
            "resume_incomplete",
            [{**NOTHING, "text": "a is empty; " * 341, "field": "f", "code": "resume_incomplete"}] * 2,
        ),
    ],
)
def test_what_nodes_say_at_length_still_fits_a_command(world, code, sees):
    group = submitted(world)
    claim(world, group, *sees)
    (rollback,) = world.control()
    assert (rollback["t"], rollback["code"]) == ("RollbackGroup", code)


PATH = "/data/base/step-5"
NAMED = {"pick": PATH, "digest": "aa", "text": f"{PATH} is complete", "field": "resume_from_checkpoint"}
MISSING = {**NAMED, "pick": "", "digest": "00", "text": f"{PATH} does not exist there", "code": "resume_missing"}
BROKEN = {**NAMED, "pick": "", "digest": "cc", "text": f"{PATH} is not complete there: a is empty"}
BROKEN["code"] = "resume_incomplete"


def named(world, nodes=2):
    group = world.submit(nodes, 2, checkpoint_path="/data/run", resume_from_checkpoint=PATH)
    world.control()
    return group


def waited(world, group):
    world.clean(group)
    for _ in range(40):
        if world.status(group) != "pending":
            return
        world.control(1000)


def test_a_path_that_the_document_names_is_seen_by_all(world):
    group = named(world)
    for rank in (0, 1):
        probe = {"path": PATH, "step": 5, "source": "document"}
        world.report(world.tasks(group)[rank], "claimed", resume=probe, sees=NAMED)
    (start,) = world.control()
    assert (start["t"], start["resume"]) == ("StartGroup", {"path": PATH, "step": 5, "source": "document"})


@pytest.mark.parametrize(
    ("sees", "words"),
    [
        ((NAMED, MISSING), f"rank 0 on n1 sees {PATH} (.*); rank 1 on n2 sees none that is complete ({PATH} does not"),
        ((BROKEN, NAMED), f"rank 0 on n1 sees none that is complete ({PATH} is not complete there: a is empty); rank"),
        ((NAMED, {**NAMED, "digest": "bb"}), f"rank 0 on n1 sees {PATH} with other files or bytes in it; rank 1"),
    ],
)
def test_a_path_that_the_document_names_is_another_on_another_node(world, sees, words):
    group = named(world)
    claim(world, group, *sees)
    (rollback,) = world.control()
    assert (rollback["code"], rollback["node"]) == ("storage_not_shared", "n2")
    assert "so resume_from_checkpoint is not shared storage" in rollback["text"]
    at = 0
    for piece in words.split(".*"):
        at = rollback["text"].index(piece, at)


@pytest.mark.parametrize(
    ("sees", "code", "node", "words"),
    [
        (MISSING, "resume_missing", "n1", "does not exist there; mount the share that holds it on every node"),
        (BROKEN, "resume_incomplete", None, "is not complete there: a is empty; name one that is whole"),
    ],
)
def test_where_no_rank_can_begin_at_it_the_group_fails_and_begins_nowhere_else(world, sees, code, node, words):
    group = named(world)
    for _ in range(SHARED_STORAGE_TRIES):
        assert world.status(group) == "scheduling"
        claim(world, group, sees, sees)
        row = world.group(group)
        start = {"attempt": row["attempt"], "claimed": [0, 1], "resume": None}
        start["master"] = {"addr": "n1", "port": row["master"]["port"]}
        assert world.do("StartGroup", group_id=group, **start).code == code, "also of an older leader"
        (rollback,) = world.control()
        assert (rollback["t"], rollback["code"], rollback["node"]) == ("RollbackGroup", code, node)
        assert f"rank 0 on n1 and 1 more says that {PATH} {words}" in rollback["text"]
        waited(world, group)
    assert world.status(group) == "failed"
    failure = world.group(group)["failure"]
    assert (failure["class"], failure["rank"]) == (code, None) and PATH in failure["text"]
    assert "from zero" not in str([row["text"] for _, row in world.store.scan("event", f"{group}/")])


def test_a_share_that_one_node_lacks_is_looked_for_on_another(world):
    group = named(world, 1)
    (first,) = world.group(group)["nodes"]
    claim(world, group, MISSING)
    world.control()
    waited(world, group)
    assert world.group(group)["nodes"] == [{"n1": "n2", "n2": "n1"}[first]]
    claim(world, group, NAMED)
    world.control()
    assert world.status(group) == "starting" and "unshared" not in world.group(group)


def test_it_goes_to_nodes_that_do_share(world):
    """n2 lacks the mount; n3 has it."""
    group = submitted(world)
    claim(world, group, THERE, NOTHING)
    world.control()
    world.join("n3", 2)
    world.clean(group)
    world.control(1)
    assert world.group(group)["nodes"] == ["n1", "n3"]
    claim(world, group, THERE, THERE)
    world.control()
    assert world.status(group) == "starting" and "unshared" not in world.group(group)


def test_it_does_not_go_round_for_ever(world):
    group = submitted(world)
    for _ in range(SHARED_STORAGE_TRIES - 1):
        claim(world, group, THERE, NOTHING)
        world.control()
        assert world.status(group) == "pending"
        world.clean(group)
        for _ in range(40):
            if world.status(group) != "pending":
                break
            world.control(1000)
    claim(world, group, THERE, NOTHING)
    world.control()
    assert world.status(group) == "failed"
    failure = world.group(group)["failure"]
    assert (failure["class"], failure["rank"], failure["exit_code"]) == ("storage_not_shared", 1, None)
    assert f"Tried {SHARED_STORAGE_TRIES} times." in failure["text"]
    assert not any(task["status"] not in ("cancelled",) for task in world.tasks(group))


def test_one_node_agrees_with_itself_and_agents_of_before_say_nothing(world):
    alone = submitted(world, 1)
    claim(world, alone, THERE)
    assert [item["t"] for item in world.control()] == ["StartGroup"]
    other = World({"n1": 2, "n2": 2})
    group = submitted(other)
    claim(other, group, THERE, None)
    assert [item["t"] for item in other.control()] == ["StartGroup"]


def test_what_an_attempt_saw_is_not_the_next_ones(world):
    group = submitted(world)
    claim(world, group, THERE, NOTHING)
    world.control()
    world.clean(group)
    for _ in range(40):
        world.control(1000)
        if world.status(group) == "scheduling":
            break
    assert world.group(group)["views"] == []
    claim(world, group, NOTHING, NOTHING)
    (start,) = world.control()
    assert (start["t"], start["resume"]) == ("StartGroup", None)


def test_views_in_any_order_of_reports_and_of_a_thousand_ranks_stay_small():
    for order in itertools.permutations(range(4)):
        row: dict = {}
        for rank in order:
            note_view(row, rank, f"n{rank}", NOTHING if rank == 2 else THERE)
        assert [(view["rank"], view["ranks"]) for view in row["views"]] == [(0, 3), (2, 1)]
    row = {}
    for rank in range(1250):
        note_view(row, rank, f"n{rank}", {**THERE, "digest": str(rank)})
    assert len(row["views"]) == 4 and len(disagreement(row["views"]) or "") < 4096

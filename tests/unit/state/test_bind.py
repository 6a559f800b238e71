"""A plan holds whole or not at all."""

import pytest

from schemas.states import GONE
from tests.unit.state.world import World


def placements(*ranks, gpus=2):
    return [
        {
            "rank": rank,
            "node": node,
            "gpus": [f"GPU-{node}-{at}" for at in range(gpus)],
            "port": 20_000 if rank == 0 else 0,
        }
        for rank, node in enumerate(ranks)
    ]


@pytest.fixture
def world():
    made = World({"n1": 2, "n2": 2, "n3": 2})
    made.join("a1", 2, kind="A100")
    return made


def bind(world, group, plan, attempt=1):
    return world.do("BindGroup", group_id=group, attempt=attempt, placements=plan)


def test_all_ranks_are_bound_with_one_token(world):
    group = world.submit(2, 2)
    outcome = bind(world, group, list(reversed(placements("n2", "n1"))))
    assert outcome.data == {"group_id": group, "attempt": 1, "token": world.idx}
    tasks = world.tasks(group)
    assert [(task["rank"], task["node"], task["status"], task["order"]) for task in tasks] == [
        (0, "n2", "bound", "claim"),
        (1, "n1", "bound", "claim"),
    ]
    assert {task["token"] for task in tasks} == {world.idx}
    assert world.group(group)["nodes"] == ["n2", "n1"]
    assert world.group(group)["master"] == {"addr": None, "port": 20_000}
    assert len(list(world.store.scan("hold"))) == 2


def change(plan, rank, **fields):
    return [{**item, **fields} if item["rank"] == rank else item for item in plan]


GOOD = placements("n1", "n2")


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ([], "partial_gang"),
        (GOOD[:1], "partial_gang"),
        (placements("n1", "n2", "n3"), "partial_gang"),
        ([GOOD[0], GOOD[0]], "partial_gang"),
        (placements("n1", "n1"), "shared_node"),
        (change(GOOD, 0, port=0), "bad_port"),
        (change(GOOD, 0, port=19_999), "bad_port"),
        (change(GOOD, 1, port=20_001), "bad_port"),
        (placements("n1", "n9"), "node_not_ready"),
        (change(GOOD, 1, gpus=["GPU-n2-0"]), "wrong_card_count"),
        (change(GOOD, 1, gpus=["GPU-n2-0", "GPU-n2-0"]), "wrong_card_count"),
        (change(GOOD, 1, gpus=["GPU-n2-0", "GPU-n1-1"]), "no_such_card"),
        (placements("n1", "a1"), "wrong_card_type"),
    ],
)
def test_a_plan_that_does_not_fit_changes_nothing(world, plan, code):
    group = world.submit(2, 2, gpu_type="H100")
    before = world.rows()
    assert bind(world, group, plan).code == code
    assert world.rows() == before


def test_a_lost_host_takes_nothing(world):
    group = world.submit(2, 2)
    world.lose("n2")
    assert bind(world, group, GOOD).code == "node_not_ready"


def test_no_card_and_no_port_twice(world):
    first, second = world.submit(2, 1), world.submit(2, 1)
    assert bind(world, first, placements("n1", "n2", gpus=1)).ok
    assert bind(world, second, placements("n1", "n2", gpus=1)).code == "card_taken"
    other = change(change(placements("n1", "n2", gpus=1), 0, gpus=["GPU-n1-1"]), 1, gpus=["GPU-n2-1"])
    assert bind(world, second, other).code == "port_taken"
    assert bind(world, second, change(other, 0, port=20_001)).ok


def test_only_the_next_attempt_of_a_pending_group(world):
    group = world.submit(2, 2)
    assert bind(world, group, GOOD, attempt=2).code == "wrong_attempt"
    assert bind(world, group, GOOD).ok
    assert bind(world, group, GOOD).code == "not_pending"
    assert bind(world, group, GOOD, attempt=2).code == "not_pending"


def test_a_new_attempt_may_start_while_old_cards_are_releasing_but_not_on_them(world):
    group = world.submit(2, 2)
    world.run_up(group)
    world.lose("n1")
    world.obey(group)
    assert world.status(group) == "pending"
    assert all(task["status"] in GONE for task in world.tasks(group, 1))
    assert bind(world, group, placements("n2", "n3"), attempt=2).code == "card_taken"
    world.clean(group, 1)
    assert bind(world, group, placements("n2", "n3"), attempt=2).ok


def test_no_attempt_beside_a_rank_that_is_not_gone(world):
    group = world.submit(2, 2)
    world.run_up(group)
    row = world.group(group)
    world.store.put("group", group, {**row, "status": "pending"})
    assert bind(world, group, placements("n3", "n2"), attempt=2).code == "attempt_not_gone"


def test_cards_may_be_named_by_index_and_are_checked_all_the_same(world):
    group = world.submit(2, 2)
    assert bind(world, group, change(GOOD, 1, gpus=[0, 5])).code == "no_such_card"
    assert bind(world, group, change(placements("n1", "n9"), 1, gpus=[0, 1])).code == "node_not_ready"
    assert bind(world, group, [{**item, "gpus": [1, 0]} for item in GOOD]).ok
    assert [task["gpus"] for task in world.tasks(group)] == [["GPU-n1-1", "GPU-n1-0"], ["GPU-n2-1", "GPU-n2-0"]]
    other = world.submit(1, 1)
    assert bind(world, other, change(placements("n1", gpus=1), 0, gpus=[1])).code == "card_taken"


def test_a_group_without_cards_is_bound_too(world):
    group = world.submit(1, 0)
    assert bind(world, group, placements("n1", gpus=0)).ok


def test_unknown_groups_are_said_to_be(world):
    assert bind(world, "tg-01kb89t3f89j6ct3adhq", GOOD).code == "no_such_group"


def test_a_group_of_an_image_is_bound_only_where_a_container_can_be_started():
    world = World({"n1": 1})
    world.join("d1", 1, runtime="docker")
    world.join("d2", 1, runtime="docker", engine_down="Docker at /var/run/docker.sock does not answer")
    boxed, plain = world.submit(image="team/pt:1"), world.submit()
    assert bind(world, boxed, placements("n1", gpus=1)).code == "wrong_runtime"
    assert bind(world, plain, placements("d1", gpus=1)).code == "wrong_runtime"
    refused = bind(world, boxed, placements("d2", gpus=1))
    assert refused.code == "engine_down" and "docker.sock" in refused.text
    assert bind(world, boxed, placements("d1", gpus=1)).ok
    assert bind(world, plain, placements("n1", gpus=1)).ok

"""The same request gets the same answer for a day, and does its work once."""

from unittest import mock

from mesh.core.state import requests
from schemas.ids import make_request_id
from schemas.limits import REQUEST_TTL_MS
from tests.unit.state.world import START_MS, World, document

A, B = "tg-01kb89t3f89j6ct3adhq", "tg-01kb89t3f89j6ct3adhr"


def request(request_id="k-01", digest="d1", client="cli"):
    return {"request": {"client": client, "id": request_id, "digest": digest}}


def test_a_repeat_gets_the_first_answer_and_writes_nothing():
    world = World()
    first = world.try_submit(document(), A, **request())
    before = world.rows()
    again = world.try_submit(document(), B, **request())
    assert again == first
    assert again.data["group_id"] == A
    assert world.rows() == before


def test_a_refusal_is_remembered_too():
    world = World()
    world.submit(checkpoint_path="/data/run")
    first = world.try_submit(document(checkpoint_path="/data/run"), A, **request())
    assert first.code == "checkpoint_path_in_use"
    assert world.store.get("request", "cli/k-01")["status"] == "refused"
    assert world.try_submit(document(), A, **request()) == first


def test_another_body_under_the_same_id_is_refused():
    world = World()
    world.try_submit(document(), A, **request())
    before = world.rows()
    assert world.try_submit(document(), B, **request(digest="d2")).code == "request_conflict"
    assert world.rows() == before


def test_clients_do_not_share_ids():
    world = World()
    assert world.try_submit(document(), A, **request(client="one")).ok
    assert world.try_submit(document(), B, **request(client="two")).ok


def test_an_id_is_refused_after_a_day_even_when_its_answer_is_gone():
    world = World()
    old = make_request_id(START_MS, b"1234567")
    assert world.try_submit(document(), A, **request(old)).ok
    world.now_ms += REQUEST_TTL_MS + 10_000
    outcome = world.try_submit(document(), B, **request(old))
    assert outcome.code == "request_expired"
    assert "24 h" in outcome.text
    assert world.store.get("group", B) is None


def test_a_foreign_id_may_be_used_again_after_a_day():
    world = World()
    assert world.try_submit(document(), A, **request()).ok
    world.now_ms += REQUEST_TTL_MS + 10
    assert world.try_submit(document(), B, **request()).data["group_id"] == B
    assert world.store.get("client", "cli") == {"requests": 1}
    world.now_ms += 10
    assert world.try_submit(document(), B, **request()).data["group_id"] == B


def test_old_answers_are_dropped_a_few_at_a_time_and_counts_follow():
    world = World()
    for at in range(20):
        world.do("Noop", **request(f"k-{at:02d}", client=f"c{at % 3}"))
    assert sum(row["requests"] for _, row in world.store.scan("client")) == 20
    world.now_ms += REQUEST_TTL_MS + 1000
    for at in range(5):
        world.do("Noop", **request(f"n-{at:02d}", client="late"))
        assert len(list(world.store.scan("request"))) == 20 - requests.PRUNE * (at + 1) + at + 1
    assert [key for key, _ in world.store.scan("client")] == ["late"]
    assert len(list(world.store.scan("request_queue"))) == 5


def test_a_full_client_is_refused_and_others_are_not():
    world = World()
    with mock.patch.object(requests, "REQUESTS_PER_CLIENT", 3):
        for at in range(3):
            assert world.do("Noop", **request(f"k-{at}")).ok
        refusal = world.do("Noop", **request("k-3"))
        assert refusal.code == "too_many_requests"
        assert world.do("Noop", **request("k-0")).ok
        assert world.do("Noop", **request("k-0", client="other")).ok
        world.now_ms += REQUEST_TTL_MS + 1000
        assert world.do("Noop", **request("k-4")).ok


def test_a_command_without_request_leaves_no_trace():
    world = World()
    world.do("Noop", payload=b"x" * 500)
    assert world.rows() == {}

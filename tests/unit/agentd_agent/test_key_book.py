"""What an agent believes of keys: how old it may be, whom it asks, and that it lets nobody in when nobody can say."""

from typing import Any

import pytest

from agentd.access_tokens import AccessTokens
from agentd.key_book import FRESH_S, LOOKS_PER_S, STALE_MS, KeyBook
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.errors import NoLeader, NotAuthorised, Unavailable
from schemas.limits import SIGNER_TTL_MS, TOKEN_TTL_S

CALLER = {"kind": "mesh", "name": "mesh", "node": "n1"}


class Mesh(MemoryMesh):
    """age_ms: of what a stale read tells. alone: no majority can be reached. lags: the near voter has applied
    nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.age_ms, self.alone, self.lags = 0, False, False
        self.asked: list[str] = []

    async def query(self, reads: Any, level: str = "linearizable", *rest: Any, **more: Any) -> dict[str, Any]:
        self.asked.append(level)
        if level == "linearizable" and self.alone:
            raise NoLeader("no_leader", "no leader is known")
        found = await super().query(reads, level, *rest, **more)
        if level == "stale":
            found["age_ms"] = self.age_ms
            if self.lags:
                found["results"] = [None if "get" in read else [] for read in reads]
        return found

    async def put_key(self, key_id: str = "k1", **over: Any) -> None:
        fields = {"name": "ada", "role": "viewer", "tenant": "t", "sha256": "0" * 64, **over}
        assert (await self.propose(command("PutKey", caller=CALLER, key_id=key_id, **fields)))["ok"]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(mesh, clock) -> KeyBook:
    return KeyBook(lambda: mesh, clock)


async def test_a_known_key_costs_one_read_a_second(mesh, book, clock):
    await mesh.put_key()
    for _ in range(50):
        assert (await book.key("k1"))["name"] == "ada"
    assert mesh.asked == ["stale"]
    clock.now_s += FRESH_S
    await book.key("k1")
    assert mesh.asked == ["stale", "stale"]


async def test_a_revocation_is_seen_within_a_second_and_at_once_where_it_was_made(mesh, book, clock):
    await mesh.put_key()
    await book.key("k1")
    await mesh.propose(command("RevokeKey", caller=CALLER, key_id="k1"))
    assert (await book.key("k1"))["revoked_ms"] is None
    clock.now_s += FRESH_S
    assert (await book.key("k1"))["revoked_ms"] is not None
    await mesh.put_key("k2")
    await book.key("k2")
    await mesh.propose(command("RevokeKey", caller=CALLER, key_id="k2"))
    book.forget()
    assert (await book.key("k2"))["revoked_ms"] is not None


async def test_a_key_that_was_made_a_moment_ago_elsewhere_is_good_here(mesh, book):
    await mesh.put_key()
    mesh.lags = True
    assert (await book.key("k1"))["name"] == "ada"
    assert mesh.asked == ["stale", "linearizable"]


@pytest.mark.parametrize("age_ms", [STALE_MS + 1, -1])
async def test_a_voter_that_was_left_alone_is_not_believed(mesh, book, age_ms):
    await mesh.put_key()
    mesh.age_ms = age_ms
    assert (await book.key("k1"))["name"] == "ada" and mesh.asked == ["stale", "linearizable"]
    book.forget()
    mesh.alone = True
    with pytest.raises(Unavailable):
        await book.key("k1")
    mesh.age_ms = STALE_MS
    assert (await book.key("k1"))["name"] == "ada"


async def test_without_a_mesh_nobody_is_let_in(clock):
    with pytest.raises(Unavailable):
        await KeyBook(lambda: None, clock).key("k1")


async def test_what_strangers_ask_for_neither_fills_the_memory_nor_keeps_the_mesh_busy(mesh, book, clock):
    await mesh.put_key()
    for at in range(1100):
        assert await book.key(f"k{at}x") is None
    assert len(book._known) <= 1024
    assert mesh.asked.count("linearizable") == LOOKS_PER_S
    # Who is known is let in meanwhile, and a new key after a moment.
    assert (await book.key("k1"))["name"] == "ada"
    await mesh.put_key("k2")
    mesh.lags = True
    clock.now_s += FRESH_S
    assert (await book.key("k2"))["name"] == "ada"


async def test_a_token_is_good_for_its_time_and_its_signer_for_longer(mesh, clock):
    clock.now_s = 1_764_000_000.0
    book = KeyBook(lambda: mesh, clock)
    tokens = AccessTokens(book, clock)
    first, until_ms = await tokens.issue(mesh, "k1", None)
    assert until_ms == (clock.now_s + TOKEN_TTL_S) * 1000
    assert await tokens.read(first) == ("k1", until_ms)
    clock.now_s += TOKEN_TTL_S
    with pytest.raises(NotAuthorised, match="expired"):
        await tokens.read(first)
    second, _ = await tokens.issue(mesh, "k1", int(clock.now_s * 1000) + 90_000)
    clock.now_s += 90
    with pytest.raises(NotAuthorised, match="expired"):
        await tokens.read(second)
    # Signed by the one before, read under the one after.
    third, _ = await tokens.issue(mesh, "k1", None)
    (rows,) = (await mesh.query([{"scan": ["signer", ""]}]))["results"]
    assert len(rows) == 1
    signer = rows[0][1]
    clock.now_s = signer["made_ms"] / 1000 + SIGNER_TTL_MS / 1000
    fourth, _ = await tokens.issue(mesh, "k1", None)
    (rows,) = (await mesh.query([{"scan": ["signer", ""]}]))["results"]
    assert len(rows) == 2 and (await tokens.read(fourth))[0] == "k1"
    clock.now_s = 1_764_000_000.0 + TOKEN_TTL_S + 90
    assert (await tokens.read(third))[0] == "k1"


async def test_two_agents_that_have_no_signer_end_with_one(mesh, clock):
    clock.now_s = 1_764_000_000.0
    here, there = (AccessTokens(KeyBook(lambda: mesh, clock), clock) for _ in range(2))
    # Both have looked, and found none.
    await here._book.signers()
    await there._book.signers()
    first, _ = await here.issue(mesh, "k1", None)
    second, _ = await there.issue(mesh, "k2", None)
    (rows,) = (await mesh.query([{"scan": ["signer", ""]}]))["results"]
    assert len(rows) == 1
    assert (await there.read(first))[0] == "k1" and (await here.read(second))[0] == "k2"

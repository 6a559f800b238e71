"""One member, fed packets and ticks by hand: who is probed and how, who is doubted, and what is bounded."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mesh.core.swim import (
    LAN,
    Ack,
    Changed,
    Config,
    ConfigRefused,
    Conflict,
    Effect,
    Gossip,
    Message,
    Meta,
    Nack,
    Packet,
    Ping,
    PingReq,
    Reason,
    Refuse,
    Refused,
    Send,
    State,
    Swim,
    Sync,
    SyncReply,
    Update,
    encode,
)
from mesh.core.swim.limits import INCARNATION_JUMP_MAX, MEMBERS_MAX, RELAYS_MAX, SYNC_MAX

MS, S = 1_000_000, 1_000_000_000


def meta(node: str) -> Meta:
    return Meta((f"{node}:1",))


class Bench:
    """The member `me` among n0..n(count-1), all alive."""

    def __init__(self, count: int, profile=LAN, **kwargs) -> None:
        self.core = Swim(Config("me", "m1", meta("me"), 1, profile, **kwargs), Random(1), 0)
        self.core.sync_ns = self.core.reconnect_ns = 10**18
        self._seq = 0
        self.now = 0
        known = [Update(f"n{n}", 0, State.ALIVE, meta(f"n{n}"), f"n{n}") for n in range(count)]
        self.told = self.hear(Gossip(), *known) if known else []
        self.core.queue.take(10**6, 1)

    def hear(self, message: Message, *updates: Update, sender: str = "n0", to: str = "me", **fields) -> list[Effect]:
        self._seq += 1
        packet = Packet("m1", sender, 1, self._seq, to, message, updates)
        return self.core.handle(replace(packet, **fields), self.now)

    def state(self, node: str) -> State:
        return self.core.records[node].state

    def until_probe(self) -> Send:
        """Ticks until the next ping of its own leaves."""
        while True:
            self.now = self.core.next_ns()
            for effect in self.core.tick(self.now):
                if isinstance(effect, Send) and isinstance(effect.packet.message, Ping):
                    return effect

    def tick_to(self, at: int) -> list[Effect]:
        effects = []
        while self.core.next_ns() <= at:
            self.now = max(self.now, self.core.next_ns())
            effects += self.core.tick(self.now)
        self.now = at
        return effects


def sent(effects: list[Effect], kind: type) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.packet.message, kind)]


def claim(node: str, state: State, incarnation: int = 0, by: str = "n0", age_s: int = 0) -> Update:
    return Update(node, incarnation, state, meta(node), by, age_s)


# -- probes


def test_direct_then_indirect_then_suspect():
    bench = Bench(5)
    ping = bench.until_probe()
    target, began = ping.packet.to, bench.now
    assert ping.address == f"{target}:1"
    asked = sent(bench.tick_to(began + 500 * MS), PingReq)
    relays = [send.packet.to for send in asked]
    assert len(set(relays)) == 3 and target not in relays and "me" not in relays
    assert {send.packet.message.target for send in asked} == {target}
    bench.tick_to(began + 999 * MS)
    assert bench.state(target) is State.ALIVE
    bench.tick_to(began + 1000 * MS)
    assert bench.state(target) is State.SUSPECT
    assert bench.core.records[target].by == "me"


def test_an_ack_in_time_is_enough_directly_or_by_a_relay():
    for by_relay in (False, True):
        bench = Bench(5)
        ping = bench.until_probe()
        target, began, answerer = ping.packet.to, bench.now, ping.packet.to
        if by_relay:
            answerer = sent(bench.tick_to(began + 600 * MS), PingReq)[0].packet.to
        bench.hear(Ack(ping.packet.message.number), sender=answerer)
        bench.tick_to(began + 1000 * MS)
        assert bench.state(target) is State.ALIVE


def test_an_ack_from_whoever_was_not_asked_is_none():
    bench = Bench(5)
    ping = bench.until_probe()
    stranger = next(node for node in bench.core.order.names if node != ping.packet.to)
    bench.hear(Ack(ping.packet.message.number), sender=stranger)
    bench.hear(Ack(ping.packet.message.number + 1), sender=ping.packet.to)
    bench.tick_to(bench.now + 1000 * MS)
    assert bench.state(ping.packet.to) is State.SUSPECT


def test_a_refused_connection_hastens_the_indirect_probes():
    bench = Bench(5)
    ping = bench.until_probe()
    assert len(sent(bench.core.ping_failed(ping.packet.to, bench.now + MS), PingReq)) == 3
    assert bench.core.ping_failed(ping.packet.to, bench.now + MS) == []


def test_the_other_addresses_are_tried_in_the_indirect_stage():
    bench = Bench(0)
    two = Update("n1", 0, State.ALIVE, Meta(("n1:1", "[fd00::1]:1")), "n1")
    bench.hear(Gossip(), two, sender="n1")
    ping = bench.until_probe()
    assert ping.address == "n1:1"
    assert [send.address for send in sent(bench.tick_to(bench.now + 600 * MS), Ping)] == ["[fd00::1]:1"]


def test_who_hears_no_nacks_doubts_itself():
    silent, answered = Bench(5), Bench(5)
    for bench in (silent, answered):
        ping = bench.until_probe()
        began = bench.now
        asked = sent(bench.tick_to(began + 600 * MS), PingReq)
        if bench is answered:
            for send in asked:
                bench.hear(Nack(ping.packet.message.number), sender=send.packet.to)
                bench.hear(Nack(ping.packet.message.number), sender=send.packet.to)
        bench.tick_to(began + 1000 * MS)
        assert bench.state(ping.packet.to) is State.SUSPECT
    assert (silent.core.awareness.score, answered.core.awareness.score) == (3, 0)
    # The probe that has just begun lasts four intervals, not one.
    began = silent.now
    silent.until_probe()
    assert silent.now - began == 4 * S


def test_a_relay_probes_for_another_and_says_so_either_way():
    bench = Bench(5)
    forwarded = sent(bench.hear(PingReq(77, "n3", 300), sender="n1"), Ping)
    assert [send.packet.to for send in forwarded] == ["n3"]
    nacks = sent(bench.tick_to(300 * MS), Nack)
    assert [(send.packet.to, send.packet.message.number) for send in nacks] == [("n1", 77)]
    late = sent(bench.hear(Ack(forwarded[0].packet.message.number), sender="n3"), Ack)
    assert [(send.packet.to, send.packet.message.number) for send in late] == [("n1", 77)]
    assert bench.core.relays == {}


def test_a_relay_goes_only_to_members_it_knows():
    bench = Bench(2)
    effects = bench.hear(PingReq(77, "n9", 300), sender="n1")
    assert sent(effects, Ping) == [] and len(sent(effects, Nack)) == 1
    assert bench.hear(PingReq(78, "n1", 300), sender="stranger") == []


def test_relays_are_bounded_and_end():
    bench = Bench(3)
    for number in range(RELAYS_MAX + 50):
        bench.hear(PingReq(number, "n1", 60_000), sender="n2")
    assert len(bench.core.relays) == RELAYS_MAX and bench.core.counts["relays_full"] == 50
    bench.tick_to(181 * S)
    assert bench.core.relays == {}


# -- buddy, refutation


def test_a_suspected_member_is_told_first_by_whoever_speaks_to_it():
    bench = Bench(40)
    for n in range(1, 30):
        bench.hear(Gossip(), claim(f"n{n}", State.ALIVE, 1))
    bench.hear(Gossip(), claim("n30", State.SUSPECT))
    bench.core.queue.take(10**6, 1)
    ack = sent(bench.hear(Ping(5), sender="n30"), Ack)[0]
    assert ack.reply and ack.packet.updates[0] == claim("n30", State.SUSPECT)


def test_its_accuser_tells_it_at_once():
    bench = Bench(5)
    target = bench.until_probe().packet.to
    told = [send for send in sent(bench.tick_to(bench.now + 1000 * MS), Gossip) if send.packet.to == target]
    assert told and told[0].packet.updates[0].node == target and told[0].packet.updates[0].state is State.SUSPECT


def test_it_refutes_and_doubts_itself():
    bench = Bench(3)
    bench.hear(Gossip(), claim("me", State.SUSPECT))
    assert (bench.core.own.incarnation, bench.core.awareness.score) == (1, 1)
    ack = sent(bench.hear(Ping(5), sender="n1"), Ack)[0]
    assert ack.packet.updates == (bench.core.own,)
    bench.hear(Gossip(), claim("me", State.SUSPECT))
    assert bench.core.own.incarnation == 1, "an old accusation is answered already"


def test_an_incarnation_of_the_sky_is_a_lie():
    bench = Bench(3)
    bench.hear(SyncReply())
    bench.hear(Gossip(), claim("n1", State.DEAD, INCARNATION_JUMP_MAX + 1), claim("me", State.DEAD, 1 << 61))
    assert bench.state("n1") is State.ALIVE and bench.core.own.incarnation == 0
    assert bench.core.counts["implausible"] == 2


def test_a_new_life_takes_over_whatever_number_it_had():
    bench = Bench(3)
    bench.hear(SyncReply(), claim("me", State.DEAD, 1 << 40))
    assert bench.core.own.incarnation == (1 << 40) + 1


# -- suspicion in time


def test_a_process_that_stood_still_reads_before_it_accuses():
    bench = Bench(8)
    bench.hear(Gossip(), claim("n1", State.SUSPECT))
    bench.tick_to(200 * MS)
    bench.now = 60 * S
    bench.core.tick(bench.now)
    assert bench.state("n1") is State.SUSPECT and bench.core.counts["stalls"] == 1
    bench.hear(Gossip(), claim("n1", State.ALIVE, 1), sender="n1")
    assert bench.state("n1") is State.ALIVE
    plain = Bench(8, replace(LAN, stall_ms=0))
    plain.hear(Gossip(), claim("n1", State.SUSPECT))
    plain.core.tick(60 * S)
    assert plain.state("n1") is State.DEAD, "else this shows nothing"


def test_what_a_state_calls_dead_is_only_suspected():
    bench = Bench(4)
    bench.hear(Sync(), claim("n1", State.DEAD), claim("n2", State.LEFT), claim("n9", State.DEAD, age_s=5), sender="n3")
    assert [bench.state(node) for node in ("n1", "n2", "n9")] == [State.SUSPECT, State.LEFT, State.DEAD]


# -- leaving, states, bounds


def test_leaving_is_said_until_it_is_spread():
    bench = Bench(3)
    effects = bench.core.leave(0) + bench.tick_to(4 * S)
    said = [send for send in sent(effects, Gossip) if bench.core.own in send.packet.updates]
    assert len(said) == LAN.retransmit_mult and bench.core.own.state is State.LEFT
    bench.hear(Gossip(), claim("me", State.DEAD, 5))
    assert (bench.core.own.incarnation, bench.core.own.state) == (6, State.LEFT)
    assert not sent(bench.tick_to(8 * S), Ping), "who leaves probes nobody"


def test_a_state_carries_everything_within_its_limit():
    bench = Bench(30)
    bench.hear(Gossip(), claim("n3", State.DEAD))
    bench.now = 10 * S
    reply = sent(bench.hear(Sync(), sender="n1"), SyncReply)[0]
    assert reply.reply and {update.node for update in reply.packet.updates} == set(bench.core.records)
    assert next(update for update in reply.packet.updates if update.node == "n3").age_s == 10


def test_a_state_that_does_not_fit_is_cut_and_the_next_one_has_others():
    bench = Bench(0)
    fat = "x" * 128
    for n in range(1500):
        tags = tuple((f"t{k}", fat) for k in range(3))
        bench.hear(Gossip(), Update(f"n{n}", 0, State.ALIVE, Meta((f"n{n}:1",), "", tags), f"n{n}"))
    states = [sent(bench.hear(Sync(), sender="n1"), SyncReply)[0].packet for _ in range(8)]
    assert all(len(encode(packet)) <= SYNC_MAX for packet in states)
    assert all(len(packet.updates) < 1501 for packet in states) and bench.core.counts["sync_cut"] == 8
    assert len({update.node for packet in states for update in packet.updates}) == 1501


def test_the_table_is_bounded_and_the_living_push_out_the_dead():
    bench = Bench(0)
    for n in range(MEMBERS_MAX - 1):
        bench.hear(Gossip(), claim(f"d{n}", State.DEAD, age_s=1000 - n % 1000))
    assert len(bench.core.records) == MEMBERS_MAX
    bench.hear(Gossip(), claim("late", State.DEAD), claim("new", State.ALIVE))
    assert len(bench.core.records) == MEMBERS_MAX
    assert "new" in bench.core.records and "late" not in bench.core.records and "d0" not in bench.core.records
    assert bench.core.counts["table_full"] == 1


def test_a_tombstone_does_not_grow_younger_from_hand_to_hand():
    one, other = Bench(2), Bench(2)
    one.hear(Gossip(), claim("n9", State.DEAD, age_s=100))
    for hour in range(1, 80):
        one.now = other.now = hour * 3600 * S
        for giver, taker in ((one, other), (other, one)):
            state = sent(giver.hear(Sync(), sender="n1"), SyncReply)[0]
            taker.hear(SyncReply(), *state.packet.updates[1:], sender="n0")
            giver.core.tick_house()
    assert "n9" not in one.core.records and "n9" not in other.core.records


def test_refusals_are_told_and_never_answered():
    bench = Bench(2)
    assert bench.hear(Refuse(Reason.WRONG_NODE)) == [Refused(Reason.WRONG_NODE, "n0", "m1")]
    assert bench.hear(Refuse(Reason.WRONG_MESH), mesh="m2") == [Refused(Reason.WRONG_MESH, "n0", "m2")]
    assert bench.hear(Refuse(Reason.WRONG_NODE), to="other") == []
    answer = bench.hear(Ping(1), mesh="m2")
    assert [send.packet.message for send in answer] == [Refuse(Reason.WRONG_MESH)] and answer[0].reply


def test_views_are_told_once():
    bench = Bench(2)
    assert [effect.update.node for effect in bench.told if isinstance(effect, Changed)] == ["n0", "n1"]
    again = bench.hear(Gossip(), claim("n1", State.ALIVE, by="n1"))
    assert again == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "N1"},
        {"mesh": ""},
        {"meta": Meta(("0.0.0.0:7460",))},
        {"meta": Meta(())},
        {"meta": Meta(("a:1",), "1.0", tuple((f"t{n}", "x" * 128) for n in range(5)))},
        {"seeds": ("nowhere",)},
        {"seeds": ("a:1",) * 17},
        {"boot": -1},
    ],
)
def test_wrong_settings_are_refused(wrong):
    right: dict[str, Any] = {"name": "n1", "mesh": "m1", "meta": Meta(("a:1",)), "boot": 1}
    Config(**right)
    with pytest.raises(ConfigRefused):
        Config(**{**right, **wrong})


def test_metadata_too_large_are_refused_and_nothing_changes():
    bench = Bench(2)
    with pytest.raises(ConfigRefused):
        bench.core.update_meta(Meta(("a:1",), "v" * 33), 0)
    assert bench.core.own.incarnation == 0
    bench.core.update_meta(Meta(("a:1",), "2.0"), 0)
    assert bench.core.own.incarnation == 1 and "me" in bench.core.queue


@pytest.mark.parametrize("state", [State.ALIVE, State.SUSPECT])
def test_a_namesake_elsewhere_is_told_also_once_it_is_accused(state):
    bench = Bench(3)
    bench.hear(SyncReply())
    twin = Update("me", 4, state, Meta(("elsewhere:1",)), "me")
    assert Conflict(("elsewhere:1",)) in bench.hear(Gossip(), twin)
    assert bench.core.own.incarnation == 5 and bench.core.own.meta == meta("me")


def test_whoever_speaks_under_another_name_than_his_own_is_not_heard():
    bench = Bench(2)
    packet = encode(Packet("m1", "n0", 1, 99, "me", Ping(1)))
    assert bench.core.receive(packet, 0, "n1") == [] and bench.core.counts["forged"] == 1
    assert bench.core.receive(packet, 0, "n0") and bench.core.counts["replayed"] == 0


def test_what_an_earlier_life_heard_is_not_taken_again():
    bench = Bench(1)
    packets = [encode(Packet("m1", "n0", boot, 7, "me", Ping(1))) for boot in (4, 5)]
    assert all(bench.core.receive(packet, 0) for packet in packets)
    later = Bench(0)
    later.core.recall(bench.core.heard())
    for packet in packets:
        later.core.receive(packet, 0)
    assert later.core.counts["replayed"] == 1 and later.core.counts["stale_boot"] == 1
    assert later.core.receive(encode(Packet("m1", "n0", 5, 8, "me", Ping(1))), 0)


def test_seeds_may_change_but_not_into_nonsense():
    bench = Bench(0)
    bench.core.set_seeds(("10.0.0.1:7460", "me:1"))
    bench.core.sync_ns = 0
    assert [send.address for send in sent(bench.core.tick(1), Sync)] == ["10.0.0.1:7460"]
    for wrong in (("0.0.0.0:1",), tuple(f"10.0.0.{at}:1" for at in range(17))):
        with pytest.raises(ConfigRefused):
            bench.core.set_seeds(wrong)

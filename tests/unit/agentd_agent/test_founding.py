"""One roster, once: whoever asks, in whatever order, and wherever a crash falls."""

import itertools
import json

import pytest

from agentd.core.founding import CANDIDATE_SILENCE_S, Candidate, Founding, Gathering, Refusal, Waiting, seat_or_refusal
from agentd.data_dir import DataDir, Identity
from agentd.join import JoinDesk, keep_founding, load_founding
from schemas.errors import Conflict, Unavailable


def candidate(number, **changed):
    facts = {
        "node_id": f"n{number}",
        "uid": f"u{number}",
        "api_addr": f"127.0.0.{number}:7460",
        "voter_addr": f"127.0.0.{number}:7461",
    }
    return Candidate(**(facts | changed))


def test_seats_go_by_arrival_and_the_founder_has_the_first():
    gathering = Gathering(candidate(1), 3)
    gathering, heard = gathering.hear(candidate(3), 0.0)
    assert heard == Waiting(2, 3) and not gathering.complete
    gathering, heard = gathering.hear(candidate(3), 1.0)
    assert heard == Waiting(2, 3), "asking again is not a second candidate"
    gathering, heard = gathering.hear(candidate(2), 1.0)
    assert gathering.complete
    founding = gathering.freeze("c", "fast", [11, 12, 13])
    assert [(seat.node, seat.raft_id) for seat in founding.seats] == [("n1", 11), ("n3", 12), ("n2", 13)]


def test_who_stops_asking_is_forgotten():
    gathering, _ = Gathering(candidate(1), 3).hear(candidate(2), 0.0)
    gathering, heard = gathering.hear(candidate(3), CANDIDATE_SILENCE_S + 0.1)
    assert heard == Waiting(2, 3) and [c.node_id for c, _ in gathering.waiting] == ["n3"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"node_id": "n1"}, "node_name_taken"),
        ({"node_id": "n2"}, "node_name_taken"),
        ({"voter_addr": "127.0.0.1:7461"}, "address_taken"),
        ({"api_addr": "127.0.0.2:7460"}, "address_taken"),
    ],
)
def test_no_two_hosts_share_a_name_or_an_address(changed, code):
    gathering, _ = Gathering(candidate(1), 3).hear(candidate(2), 0.0)
    gathering, heard = gathering.hear(candidate(3, **changed), 0.0)
    assert isinstance(heard, Refusal) and heard.code == code and heard.hint
    assert gathering.have == 2


def test_after_the_freeze_the_answer_is_a_function_of_the_uid():
    gathering, _ = Gathering(candidate(1), 3).hear(candidate(2), 0.0)
    gathering, _ = gathering.hear(candidate(3), 0.0)
    founding = gathering.freeze("c", "fast", [11, 12, 13])
    assert seat_or_refusal(founding, candidate(2)) == founding.seats[1]
    assert seat_or_refusal(founding, candidate(4)) is None
    assert isinstance(seat_or_refusal(founding, candidate(2, uid="other")), Refusal)
    assert Founding.from_dict(json.loads(json.dumps(founding.to_dict()))) == founding


@pytest.mark.parametrize(
    "break_it",
    [
        lambda f: f.pop("seats"),
        lambda f: f["seats"].clear(),
        lambda f: f.update(cluster_id=""),
        lambda f: f["seats"].append(f["seats"][0]),
        lambda f: f["seats"][0].pop("uid"),
    ],
)
def test_a_damaged_record_is_no_record(break_it):
    raw = Gathering(candidate(1), 1).freeze("c", "fast", [11]).to_dict()
    break_it(raw)
    with pytest.raises((KeyError, TypeError, ValueError)):
        Founding.from_dict(raw)


@pytest.fixture
def data(tmp_path):
    opened = DataDir.open(tmp_path / "d")
    yield opened
    opened.close()


def founder(wanted=3):
    facts = {"cluster_id": "c", "epoch": 1, "profile": "fast", "role": "founder", "voters_wanted": wanted}
    return Identity("n1", "u1", api_addr="127.0.0.1:7460", voter_addr="127.0.0.1:7461", **facts)


async def test_the_desk_freezes_before_it_answers_and_for_ever(data):
    desk = JoinDesk(data, founder(), None)
    assert desk.hear(candidate(2), "", "") == {"state": "waiting", "have": 2, "need": 3}
    assert data.founding() is None
    answer = desk.hear(candidate(3), "", "")
    assert answer["state"] == "seated" and data.founding() == answer["founding"]
    # The founder dies here, before it made a roster file or a voter: everyone asks again and hears the same.
    reborn = JoinDesk(data, founder(), load_founding(data))
    for number, state in ((3, "seated"), (2, "seated"), (4, "member")):
        assert reborn.hear(candidate(number), "", "") == {"state": state, "founding": answer["founding"]}


async def test_a_crash_before_the_freeze_promised_nothing(data):
    JoinDesk(data, founder(), None).hear(candidate(2), "", "")
    reborn = JoinDesk(data, founder(), None)
    assert reborn.hear(candidate(4), "", "")["state"] == "waiting"
    assert reborn.hear(candidate(5), "", "")["state"] == "seated"


async def test_strangers_are_told_why(data):
    desk = JoinDesk(data, founder(1), None)
    with pytest.raises(Conflict, match="other"):
        desk.hear(candidate(2), "other", "")
    with pytest.raises(Conflict, match="profile fast"):
        desk.hear(candidate(2), "", "lan")
    with pytest.raises(Conflict, match="n1"):
        desk.hear(candidate(1, uid="u9"), "", "")
    joiner = JoinDesk(data, Identity("n9", "u9", role="joiner"), None)
    with pytest.raises(Unavailable):
        joiner.hear(candidate(2), "", "")


async def test_a_member_of_the_mesh_answers_too(data):
    founding = Gathering(candidate(1), 1).freeze("c", "fast", [11])
    desk = JoinDesk(data, Identity("n7", "u7", role="joiner"), founding)
    assert desk.hear(candidate(8), "", "")["state"] == "member"
    assert desk.hear(candidate(1), "", "")["state"] == "seated"


def test_the_durable_steps_may_be_cut_anywhere(tmp_path):
    """After founding.json, any number of the later steps may be missing: doing them again gives the same files."""
    founding = Gathering(candidate(1), 1).freeze("c", "fast", [11])
    for cut in itertools.product((False, True), repeat=2):
        data = DataDir.open(tmp_path / "".join("ny"[step] for step in cut))
        identity = data.save(Identity("n1", "u1", api_addr="127.0.0.1:7460", voter_addr="127.0.0.1:7461"))
        data.save_founding(founding.to_dict())
        identity = keep_founding(data, identity, founding)
        roster = data.roster_path.read_text()
        if cut[0]:
            data.roster_path.unlink()
        if cut[1]:
            identity = data.save(Identity("n1", "u1", api_addr="127.0.0.1:7460", voter_addr="127.0.0.1:7461"))
        again = keep_founding(data, identity, founding)
        assert (again.role, again.raft_id, again.cluster_id) == ("voter", 11, "c")
        assert data.roster_path.read_text() == roster and data.identity() == again
        data.close()

"""Where the log and gossip do not say the same of a node."""

import pytest

from agentd.core.node_views import differences


def row(**changes):
    return {"node_id": "n1", "state": "ready", "uid": "u1", "api_addr": "127.0.0.1:1", "version": "1.0"} | changes


def member(**changes):
    return {"state": "alive", "since_s": 7.2, "addr": "127.0.0.1:1", "version": "1.0", "uid": "u1"} | changes


def differ(rows, members):
    return [(each["node_id"], each["kind"]) for each in differences(rows, members)]


@pytest.mark.parametrize(
    ("rows", "members", "kind"),
    [
        ([row()], {"n1": member()}, None),
        ([row()], {"n1": member(state="suspect")}, None),
        ([row()], {"n1": member(state="dead")}, "state"),
        ([row()], {"n1": member(state="left")}, "state"),
        ([row()], {}, "only_log"),
        ([row(state="lost")], {}, None),
        ([row(state="lost")], {"n1": member(state="dead", addr="127.0.0.1:2")}, None),
        ([row(state="lost")], {"n1": member()}, "state"),
        ([], {"n1": member()}, "only_gossip"),
        ([], {"n1": member(state="dead")}, None),
        ([], {"n1": member(state="left")}, None),
        ([row()], {"n1": member(uid="u2", addr="127.0.0.1:2")}, "uid"),
        ([row()], {"n1": member(uid="")}, None),
        ([row()], {"n1": member(addr="127.0.0.1:2")}, "addr"),
        ([row()], {"n1": member(version="1.1")}, "version"),
    ],
)
def test_what_differs(rows, members, kind):
    assert differ(rows, members) == ([("n1", kind)] if kind else [])


def test_by_name_and_with_words():
    found = differences([row(node_id="n2"), row(node_id="n1")], {"n3": member(addr="127.0.0.1:9")})
    assert [each["node_id"] for each in found] == ["n1", "n2", "n3"]
    assert "127.0.0.1:9" in found[2]["text"] and all(each["text"] for each in found)

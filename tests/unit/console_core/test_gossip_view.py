"""What the console makes of the gossip of the agent it is attached to, hostile answers too."""

from console.core.line import plain
from console.core.mesh_lines import mesh_facts
from console.core.node_list import layout, node_line, node_summary
from console.store.gossip import GossipSeen, gossip_of
from console.store.rows import node_of_row
from tests.snapshots.canned_mesh import NOW_MS, node_row

SEEN = gossip_of(
    {
        "members": [{"node_id": "n1", "state": "dead"}, {"node_id": "n\x1b]0;x\x07", "state": "\x1b[2J"}],
        "differences": [
            {"node_id": "n1", "kind": "state", "text": "dead for 6 s, says gossip"},
            {"node_id": "ghost", "kind": "only_gossip", "text": "not registered"},
        ],
    }
)


def shown(cells, seen, **row):
    node = node_of_row(node_row("n1", **row))
    return plain(node_line(layout(cells, 8, seen.troubled, {}), node, (), {}, {}, False, NOW_MS, False, seen))


def test_a_difference_stands_on_a_narrow_screen_and_the_state_on_a_wide_one():
    assert "dead for 6" in shown(80, SEEN)
    assert "GOSSIP" in plain(layout(160, 8, SEEN.troubled, {}).head()) and " dead  " in shown(160, SEEN)
    assert "GOSSIP" not in plain(layout(80, 8, SEEN.troubled, {}).head())


def test_while_all_are_alive_the_column_is_not_there():
    healthy = GossipSeen({"n1": "alive"})
    assert "GOSSIP" not in plain(layout(160, 8, healthy.troubled, {}).head()) and "alive" not in shown(160, healthy)


def test_a_lost_node_keeps_its_reason():
    assert "silent for 50 s" in shown(160, GossipSeen({"n1": "dead"}), state="lost", reason="silent for 50 s")


def test_who_is_not_registered_is_named_above_the_list():
    assert "ghost not registered" in plain(node_summary([], 0, 0, SEEN))
    assert "registered" not in plain(node_summary([], 0, 0, GossipSeen()))


def test_nothing_of_it_drives_a_terminal_and_no_shape_of_it_stops_the_console():
    assert not any("\x1b" in text or "\x07" in text for pair in SEEN.states.items() for text in pair)
    for value in (None, [], {"members": None}, {"members": [1, {}], "differences": {"a": 1}}):
        assert gossip_of(value).strangers == ()


def test_the_mesh_view_says_the_worst_first():
    gossip = {
        "members": {"alive": 3, "suspect": 0, "dead": 1, "left": 0},
        "conflict": "another process uses the name n1",
    }
    text = "\n".join(plain(line) for line in mesh_facts({"agent": {"gossip": gossip}}, 1.0, 160))
    assert "1 dead · 3 alive" in text and "uses the name n1" in text and "dropped" not in text
    assert "it sees" not in "\n".join(plain(line) for line in mesh_facts({"agent": {}}, 1.0, 160))

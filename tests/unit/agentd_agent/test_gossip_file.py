"""gossip.json: a boot that rises whatever happens to file and clock, and nothing forgotten that is not a hint."""

import json

import pytest

from agentd.gossip_file import GossipFile
from agentd.gossip_keeper import plain_url
from mesh.core.swim import Heard
from mesh.gossip import Remembered


def test_each_life_has_a_larger_boot_and_remembers_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "gossip.json"
    first = GossipFile(path).next_life()
    assert first.members == {} and first.heard == []
    kept = Remembered(first.boot + 5, {"n2": "127.0.0.1:2"}, [Heard("n2", 3, 9)])
    GossipFile(path).keep(kept)
    # The clock went back by a day.
    monkeypatch.setattr("agentd.gossip_file.time.time_ns", lambda: first.boot * 1_000_000 - 86_400 * 10**9)
    second = GossipFile(path).next_life()
    assert second == kept._replace(boot=first.boot + 6)
    assert GossipFile(path).next_life().boot == second.boot + 1
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 1}', '{"boot": "x", "members": {}, "heard": []}', "\xff"])
def test_a_damaged_file_is_replaced(tmp_path, text):
    path = tmp_path / "gossip.json"
    path.write_text(text)
    life = GossipFile(path).next_life()
    assert life.boot > 0 and life.members == {}
    assert json.loads(path.read_text())["boot"] == life.boot


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_without_tls_the_token_goes_to_loopback(address):
    assert plain_url(address) == f"http://{address}"


@pytest.mark.parametrize(
    "address", ["10.0.0.1:1", "[fd00::1]:1", "example.org:1", "localhost.example.org:1", "0.0.0.0:1"]
)
def test_and_nowhere_else(address):
    with pytest.raises(ValueError, match=r"loopback|address"):
        plain_url(address)

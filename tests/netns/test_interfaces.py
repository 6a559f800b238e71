"""What an agent tells of its host's interfaces, in a namespace where they can be switched off."""

import json
import subprocess
import sys

import pytest

from tests.netns.bundles import ROOT

pytestmark = pytest.mark.need("netns")
LOOK = "import json; from agentd.interfaces import interfaces; print(json.dumps(interfaces()))"
SCRIPT = """
set -e
ip link add name left type veth peer name right
for link in left right; do ip link set dev $link up; done
ip addr add 10.9.1.1/24 dev left
ip addr add 10.9.2.1/24 dev right
ip addr add fd00:9::1/64 dev right nodad
{look}
ip link set dev left down
{look}
ip link set dev left up
ip link set dev right down
ip addr add fd00:9::1/64 dev right nodad
{look}
"""


def test_an_interface_that_is_down_offers_no_address():
    look = f"'{sys.executable}' -c '{LOOK}'"
    words = ["unshare", "--net", "sh", "-c", SCRIPT.format(look=look)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    left, right = ["left", "10.9.1.1"], [["right", "10.9.2.1"], ["right", "fd00:9::1"]]
    assert [sorted(json.loads(line)) for line in done.stdout.splitlines()] == [[left, *right], right, [left]]

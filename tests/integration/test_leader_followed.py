"""Who only waits for changes of the leader hears of them again after its voter was restarted."""

from pathlib import Path

from tests.integration.voters import voters
from tests.waiting import eventually


async def test_a_silent_follower_of_the_leader_outlives_its_voter(tmp_path: Path) -> None:
    """Controllers call nothing while another host leads; without a session they would never learn that theirs does."""
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client(1)
        await client.connect()
        await eventually("the first leader", lambda: client.leader is not None)
        first = client.leader
        mesh.kill(1)
        while await client.leader_change() is not None:
            pass
        mesh.start(1)
        heard = await client.leader_change()
        assert heard is not None and first is not None and heard.term > first.term


async def test_who_only_reads_the_leader_hears_of_the_next_one_too(tmp_path: Path) -> None:
    """Telemetry calls nothing either: where a session was lost, the leader's own agent judged nothing any more, and
    every alert was gone until somebody asked that agent for something."""
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client(1)
        await eventually("the first leader", lambda: client.leader is not None)
        first = client.leader
        mesh.kill(1)
        await eventually("the loss of the voter", lambda: client.leader is None)
        mesh.start(1)
        await eventually("the next leader", lambda: client.leader is not None)
        heard = client.leader
        assert heard is not None and first is not None and heard.term > first.term

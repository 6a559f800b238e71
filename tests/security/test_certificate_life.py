"""A certificate renews itself in time; one that cannot be renewed is told of."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from agentd.identity.ca_desk import CaDesk
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import new_key, read_certificate, signing_request, utc_now
from tests.security.tls_host import TlsHost, tls_host
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with tls_host(tmp_path_factory.mktemp("tls-life")) as running:
        yield running


def put(host: TlsHost, pem: bytes) -> None:
    """As a renewal does: whole, by a new name."""
    path = host.data / "tls" / "node.pem.new"
    path.write_bytes(pem)
    path.chmod(0o600)
    os.replace(path, host.data / "tls" / "node.pem")


async def alerts(host: TlsHost) -> list[str]:
    answer = await host.nobody().call("GET", f"{host.api}/api/v1/alerts", Authorization=f"Bearer {host.token}")
    return [alert["text"] for alert in answer.value["alerts"] if alert["rule"] == "certificate"]


@pytest.mark.attack(31)
async def test_it_renews_itself_while_it_runs(host):
    name = NodeName(host.ca.cluster_id, "node-1", voter=True)
    key = new_key()
    soon = CaDesk(host.data / "ca", life=timedelta(minutes=4))
    put(host, key + soon.own(signing_request(key, name.node), name, "uid", [host.mesh.address(1).rpartition(":")[0]]))

    async def renewed() -> bool:
        own = read_certificate((host.data / "tls/node.pem").read_bytes())
        return own.not_after > utc_now() + timedelta(days=80) and own.name == name

    async def quiet() -> bool:
        return await alerts(host) == []

    await eventually("a new certificate", renewed)
    await eventually("no alert", quiet)


async def test_one_that_cannot_be_renewed_is_told_of_and_no_longer_once_it_can(host):
    good = (host.data / "tls/node.pem").read_bytes()
    # Of the right CA, near its end, and unknown to its ledger.
    other = host.signed(
        NodeName(host.ca.cluster_id, "node-1", voter=True), timedelta(days=-2), timedelta(days=2, hours=6)
    )
    assert isinstance(other.pem, Path)
    put(host, other.pem.read_bytes())

    async def told() -> bool:
        return any("ends in 6 hours and could not be renewed" in text for text in await alerts(host))

    await eventually("the alert", told)
    health = await host.nobody().call("GET", f"{host.api}/healthz")
    assert health.value["status"] == "degraded" and any("certificate" in reason for reason in health.value["reasons"])
    put(host, good)

    async def cleared() -> bool:
        return await alerts(host) == []

    await eventually("the alert to clear", cleared)

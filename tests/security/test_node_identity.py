"""Whoever is not the node it says it is: at the agents' port, at the voters' port, with tokens and certificates of
every wrong kind, against one real agent (attacks 31, 32, 36, 37, 45)."""

import asyncio
import contextlib
import os
import ssl
import stat
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from agentd.config import Address, ConfigError
from agentd.identity.enrol import _trusted_ca
from agentd.join import connection_fault
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.node_name import NodeName
from mesh.core.raft.message import Message, MsgType
from mesh.security.certificates import NODE_LIFE, fingerprint, new_ca, new_key, utc_now
from mesh.security.mesh_tls import HANDSHAKE_S
from mesh.transport.codec import pack, unpack
from schemas.commands import command
from tests.security.tls_host import Answer, Somebody, TlsHost, agentd, candidate, tls_host
from tests.waiting import until

pytestmark = pytest.mark.slow

MESH_ROUTES = (
    ("POST", "/mesh/v1/gossip"),
    ("GET", "/mesh/v1/telemetry"),
    ("POST", "/mesh/v1/telemetry"),
    ("GET", "/mesh/v1/curves/tg-x"),
    ("GET", "/mesh/v1/gpu-metrics/tg-x.1.0"),
    ("GET", "/mesh/v1/logs/tg-x/1/0"),
    ("POST", "/mesh/v1/certificate"),
    ("GET", "/mesh/v1/revocations"),
    ("POST", "/mesh/v1/revocations"),
    ("GET", "/mesh/v1/join-tokens"),
    ("POST", "/mesh/v1/join-tokens"),
    ("DELETE", "/mesh/v1/join-tokens/x"),
    ("POST", "/mesh/v1/revoke"),
)
PEOPLE_ROUTES = (
    "/api/v1/task-groups",
    "/api/v1/nodes",
    "/api/v1/mesh",
    "/api/v1/queue",
    "/api/v1/keys",
    "/api/v1/audit",
)
NO_HANDSHAKE = (aiohttp.ClientError, ConnectionError, TimeoutError)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with tls_host(tmp_path_factory.mktemp("tls-host")) as running:
        yield running


def named(host: TlsHost, node: str, voter: bool = False) -> NodeName:
    return NodeName(host.ca.cluster_id, node, voter)


def bearer(token: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def ask_to_join(host: TlsHost, token: object, body: dict) -> Answer:
    return await host.nobody().call("POST", f"{host.api}/mesh/v1/join", body, **bearer(token))


# -- join tokens


@pytest.mark.attack(23, 31)
async def test_join_tokens_that_open_nothing(host):
    good = host.ca.new_token(1, 3600)
    expired, revoked = host.ca.new_token(5, 3600), host.ca.new_token(5, 3600)
    host.set_token(expired, expires_s=int(time.time()) - 1)
    host.ca.revoke_token(revoked.id)
    foreign = JoinToken("0" * 12, "x" * 43, "f" * 64)
    cases = {
        "": "join_token_needed",
        "nonsense": "join_token_needed",
        str(good)[:-1]: "join_token_needed",
        str(good) + "0": "join_token_needed",
        str(good).upper(): "join_token_needed",
        host.token: "join_token_needed",
        str(foreign): "unknown_join_token",
        str(replace(good, secret="y" * 43)): "unknown_join_token",
        str(expired): "join_token_expired",
        str(revoked): "join_token_revoked",
    }
    for token, code in cases.items():
        answer = await ask_to_join(host, token, candidate("wants-in"))
        assert (answer.status, answer.code) == (401, code), token
        assert "certificate" not in answer.value
    in_url = await host.nobody().call("POST", f"{host.api}/mesh/v1/join?token={good}", candidate("wants-in"))
    assert in_url.code == "join_token_needed"
    assert host.ca.tokens()[0]["used"] == 0 or all(
        token["used"] == 0 for token in host.ca.tokens() if token["id"] == good.id
    )


async def test_a_token_is_used_once_and_its_lost_answer_given_again(host):
    token, key = host.ca.new_token(1, 600), new_key()
    for _ in range(2):
        first = await ask_to_join(host, token, candidate("once", key=key))
        assert first.status == 200 and first.value["certificate"] and first.value["token"] == host.token
    for other in (candidate("twice"), candidate("once")):
        assert (await ask_to_join(host, token, other)).code == "join_token_used_up"


@pytest.mark.attack(31)
async def test_a_hundred_at_once_with_a_token_for_two(host):
    token = host.ca.new_token(2, 600)
    answers = await asyncio.gather(*(ask_to_join(host, token, candidate(f"crowd-{n}")) for n in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 2 + [401] * 18


@pytest.mark.attack(31)
async def test_names_and_meshes_that_are_not_the_joiner_s_to_take(host):
    token = host.ca.new_token(9, 600)
    assert (await ask_to_join(host, token, candidate("taken"))).status == 200
    for body, code in (
        (candidate("taken", uid="another"), "node_name_taken"),
        (candidate("node-1"), "node_name_taken"),
        (candidate("fresh", cluster_id="elsewhere"), "other_cluster"),
        (candidate("fresh", request="nonsense"), "invalid_request"),
        (candidate("fresh", request=host.ca.certificate.decode()), "invalid_request"),
        (candidate("../up"), "invalid_body"),
        (candidate("Upper"), "invalid_body"),
        (candidate("fresh", api_addr="nowhere"), "invalid_body"),
    ):
        answer = await ask_to_join(host, token, body)
        assert answer.status in (400, 409) and answer.code == code, (body["node_id"], answer)
    assert next(t for t in host.ca.tokens() if t["id"] == token.id)["used"] == 1


# -- certificates


async def refused_at_the_handshake(somebody: Somebody, url: str) -> None:
    with pytest.raises(NO_HANDSHAKE):
        answer = await somebody.call("GET", url)
        pytest.fail(f"answered {answer}")


@pytest.mark.attack(31)
async def test_certificates_of_the_wrong_signer_or_time(host):
    """Refused by TLS itself, at both ports."""
    day = timedelta(days=1)
    for somebody in (
        host.foreign(named(host, "node-1", voter=True)),
        host.signed(named(host, "node-1", voter=True), made=-2 * day, life=day),
        host.signed(named(host, "node-1", voter=True), made=day),
    ):
        await refused_at_the_handshake(somebody, f"{host.api}/mesh/v1/telemetry")
        await refused_at_the_handshake(somebody, f"{host.voter}/v1/session")
    await refused_at_the_handshake(host.nobody(), f"{host.voter}/v1/session")


@pytest.mark.attack(31, 42)
async def test_a_certificate_of_another_mesh_by_the_same_ca(host):
    other = host.signed(NodeName("another", "node-1", voter=True))
    for url in (f"{host.api}/mesh/v1/telemetry", f"{host.voter}/v1/session", f"{host.voter}/v1/raft"):
        answer = await other.call("GET", url)
        assert (answer.status, answer.code) == (401, "certificate_refused"), url


@pytest.mark.attack(32)
async def test_a_revoked_certificate_opens_neither_port(host):
    gone = host.admitted("gone", voter=True)
    urls = (f"{host.api}/mesh/v1/telemetry", f"{host.voter}/v1/raft")
    async with gone.session() as session, session.ws_connect(f"{host.voter}/v1/session") as socket:
        revoked = agentd("cert", "revoke", "gone", "--data-dir", str(host.data))
        assert revoked.returncode == 0, revoked.stderr
        # Where a ping was on its way, its answer finds the connection cut.
        with contextlib.suppress(aiohttp.ClientConnectionResetError):
            async with asyncio.timeout(30):
                cut = await socket.receive()
            assert cut.type is not aiohttp.WSMsgType.BINARY, "cut while open"
    for url in urls:
        answer = await gone.call("GET", url)
        assert (answer.status, answer.code) == (401, "certificate_refused"), url
    assert agentd("cert", "revoke", "node-1", "--data-dir", str(host.data)).returncode == 1, "the CA's own host"


@pytest.mark.attack(31)
async def test_tokens_of_people_on_every_mesh_route(host):
    key = await host.nobody().call(
        "POST", f"{host.api}/api/v1/keys", {"name": "admin", "role": "admin"}, **bearer(host.token)
    )
    assert key.status == 201, key
    for method, path in MESH_ROUTES:
        for headers in ({}, bearer("nonsense"), bearer(host.token), bearer(key.value["key"])):
            answer = await host.nobody().call(method, host.api + path, **headers)
            assert (answer.status, answer.code) == (401, "node_certificate_needed"), (method, path, answer)
    assert (await host.nobody().call("GET", f"{host.api}/mesh/v1/nothing")).status == 401


@pytest.mark.attack(31)
async def test_certificates_of_nodes_on_routes_of_people(host):
    node = host.admitted("worker", voter=True)
    for path in PEOPLE_ROUTES:
        answer = await node.call("GET", host.api + path)
        assert (answer.status, answer.code) == (403, "forbidden"), path
    answer = await node.call("POST", f"{host.api}/api/v1/task-groups", {})
    assert answer.status == 403


@pytest.mark.attack(30, 31)
async def test_a_host_that_only_works_lets_nobody_in_or_out(host):
    member = host.signed(named(host, "member"))
    for method, path, body in (
        ("GET", "/mesh/v1/join-tokens", None),
        ("POST", "/mesh/v1/join-tokens", {"uses": 1, "life_s": 600}),
        ("DELETE", "/mesh/v1/join-tokens/x", None),
        ("POST", "/mesh/v1/revoke", {"node": "node-1"}),
    ):
        answer = await member.call(method, host.api + path, body)
        assert (answer.status, answer.code) == (403, "voters_only"), path
    # Unknown to the ledger, so there is nothing to renew, whatever name it asks for.
    answer = await member.call(
        "POST", f"{host.api}/mesh/v1/certificate", {"request": candidate("x")["request"], "hosts": []}
    )
    assert (answer.status, answer.code) == (401, "certificate_revoked")


async def test_a_voter_gives_out_tokens_and_no_nonsense(host):
    voter = host.signed(named(host, "node-1", voter=True))
    for body in ({}, {"uses": "1", "life_s": 600}, {"uses": 1.5, "life_s": 600}, {"uses": 0, "life_s": 600}, []):
        answer = await voter.call("POST", f"{host.api}/mesh/v1/join-tokens", body)
        assert answer.status == 400, body
    made = await voter.call("POST", f"{host.api}/mesh/v1/join-tokens", {"uses": 1, "life_s": 600})
    assert made.status == 201
    assert (await ask_to_join(host, made.value["token"], candidate("by-a-voter"))).status == 200


@pytest.mark.attack(31)
async def test_a_node_speaks_for_no_other_at_the_agents_port(host):
    node = host.admitted("honest")
    header = {"X-HeteroFlow-Node": "node-1", "Content-Type": "application/msgpack"}
    answer = await node.call("POST", f"{host.api}/mesh/v1/telemetry", **header)
    assert (answer.status, answer.code) == (403, "other_node")
    answer = await node.call("POST", f"{host.api}/mesh/v1/join", candidate("somebody-else"))
    assert (answer.status, answer.code) == (403, "other_node")


# -- the voters' port


async def session_call(socket: aiohttp.ClientWebSocketResponse, op: str, args: dict) -> list:
    await socket.send_bytes(pack([7, op, args]))
    while True:
        answer = unpack((await asyncio.wait_for(socket.receive(), 15)).data)
        if answer[0] == 7:
            return answer


@pytest.mark.attack(31, 32)
async def test_a_node_speaks_for_no_other_in_a_session(host):
    node = host.admitted("talker")
    facts = dict.fromkeys(("gpus", "labels"), None)
    other = command("RegisterNode", node_id="node-1", uid="u", **facts)
    async with node.session() as session, session.ws_connect(f"{host.voter}/v1/session") as socket:
        for op, args, code in (
            ("hello", {"role": "agent", "node": "node-1"}, "other_node"),
            ("renew", {"node": "node-1", "uid": "u", "sent_ns": 1}, "other_node"),
            ("propose", {"command": other}, "other_node"),
            ("propose", {"command": command("TaskReports", node="node-1", uid="u", reports=[])}, "other_node"),
            (
                "propose",
                {"command": command("RejoinNode", node_id="node-1", uid="u", losses=1, tasks=[])},
                "other_node",
            ),
            ("propose", {"command": {"v": 1, "t": "TaskReports", "at_ms": 0}}, "other_node"),
            ("propose", {"command": command("ExpireNode", node_id="node-1", uid="u", text="x")}, "controllers_only"),
            ("propose", {"command": command("SetReasons", reasons={})}, "controllers_only"),
            ("beat", {}, "not_local"),
        ):
            number, kind, problem = await session_call(socket, op, args)
            assert (number, kind, problem["code"]) == (7, "err", code), (op, args)
        number, kind, _ = await session_call(socket, "hello", {"role": "agent", "node": "talker"})
        assert (number, kind) == (7, "ok")


@pytest.mark.attack(31, 32)
@pytest.mark.parametrize(("node", "voter"), [("worker-9", False), ("stranger", True), ("node-1", False)])
async def test_raft_is_for_voters_of_the_roster(host, node, voter):
    """A node without a vote, a voter's certificate of a host that is in no roster, a voter's name without a vote."""
    somebody = host.signed(named(host, node, voter))
    async with somebody.session() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{host.voter}/v1/raft")
        assert refused.value.status == 403
    raft = host.signed(named(host, node, voter))
    heartbeat = Message(MsgType.HEARTBEAT, to=1, from_=2, term=99)
    async with raft.session() as session, session.ws_connect(f"{host.voter}/v1/session") as socket:
        await socket.send_bytes(pack([host.ca.cluster_id, 1, 2, 1, [heartbeat.to_wire()]]))
        assert (await asyncio.wait_for(socket.receive(), 15)).type is not aiohttp.WSMsgType.BINARY


# -- joining where somebody else answers


@contextlib.asynccontextmanager
async def impostor(host: TlsHost, shown: Somebody, ca: bytes):
    """Answers at an address of ours with that certificate and that CA, and remembers what it was told."""
    told: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        told.append(request.headers.get("Authorization", ""))
        return web.Response(body=ca)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(shown.pem))
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1]), told
    finally:
        await runner.cleanup()


@pytest.mark.attack(31)
async def test_a_joiner_tells_an_impostor_nothing(host):
    token = host.ca.new_token(1, 600)
    other_ca = new_ca(new_key(), host.ca.cluster_id, utc_now())
    async with impostor(host, host.foreign(named(host, "node-1")), other_ca) as (address, told):
        with pytest.raises(ConfigError, match="another mesh CA"):
            await _trusted_ca(address, token)
        assert told == [""]
    # The right CA certificate, which is public, beside a server's certificate of another.
    async with impostor(host, host.foreign(named(host, "node-1")), host.ca.certificate) as (address, told):
        assert fingerprint(await _trusted_ca(address, token)) == token.fingerprint
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
            await host.nobody().call("POST", f"https://{address}/mesh/v1/join", **bearer(token))
        assert "not from the CA that is trusted" in connection_fault(refused.value, str(address))
        assert told == [""]


@pytest.mark.parametrize(
    ("made", "life", "words"), [(1, NODE_LIFE, "clock is wrong"), (-2, timedelta(days=1), "expired")]
)
async def test_a_wrong_clock_is_told_in_words(host, made, life, words):
    shown = host.signed(named(host, "node-1"), timedelta(days=made), life)
    async with impostor(host, shown, b"") as (address, _):
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
            await host.nobody().call("GET", f"https://{address}/mesh/v1/ca")
        assert words in connection_fault(refused.value, str(address))


# -- hoarding, and what lies about


@pytest.mark.attack(37)
async def test_slow_handshakes_are_cut_and_keep_nobody_out(host):
    address = host.mesh.address(1).rpartition(":")[0]
    hoard = []
    for port in (7460, 7461):
        for n in range(100):
            reader, writer = await asyncio.open_connection(address, port)
            # Half of them begin to speak TLS, and then think.
            if n % 2:
                writer.write(b"\x16\x03\x01\x02\x00\x01")
            hoard.append((reader, writer))
    began = time.monotonic()
    answer = await host.nobody().call("GET", f"{host.api}/api/v1/nodes", **bearer(host.token))
    assert answer.status == 200
    async with asyncio.timeout(HANDSHAKE_S * 6):
        for reader, writer in hoard:
            with contextlib.suppress(ConnectionError):
                while await reader.read(1024):
                    pass
            writer.close()
    assert time.monotonic() - began > HANDSHAKE_S / 2, "cut at once: the test would prove nothing"


def test_what_is_secret_is_its_owner_s_alone(host):
    token = host.ca.new_token(1, 600)
    for path in ("token", "ca/ca.key", "ca/ledger.json", "tls/node.pem"):
        assert stat.S_IMODE(os.stat(host.data / path).st_mode) == 0o600, path
    ledger = (host.data / "ca/ledger.json").read_text()
    assert token.secret not in ledger and str(token) not in ledger
    listed = agentd("token", "list", "--data-dir", str(host.data))
    assert token.id in listed.stdout and token.secret not in listed.stdout + listed.stderr


@pytest.mark.attack(34)
async def test_no_secret_is_in_a_log(host):
    token = host.ca.new_token(1, 600)
    await ask_to_join(host, token, candidate("logged"))
    await ask_to_join(host, token, candidate("logged-too"))
    private = (host.data / "tls/node.pem").read_text().splitlines()[1]
    logs = [*host.data.glob("log/*"), host.directory / "node-1.out"]
    until("a line in a log", lambda: any(path.stat().st_size for path in logs))
    for path in logs:
        text = path.read_text(errors="replace")
        for secret in (token.secret, host.token, private):
            assert secret not in text, path


def test_a_directory_of_a_mesh_with_tls_does_not_go_back(host, tmp_path: Path):
    flags = ["run", "--data-dir", str(tmp_path / "d"), "--name", "x", "--gpus", "none"]
    token = tmp_path / "join-token"
    made = agentd("token", "create", "--data-dir", str(host.data), "--out", str(token))
    assert made.returncode == 0 and stat.S_IMODE(token.stat().st_mode) == 0o600
    refused = agentd(*flags, "--join", host.mesh.address(1), "--token-file", str(token), "--tls", "off")
    assert refused.returncode == 2 and "join token" in refused.stderr
    refused = agentd(*flags, "--join", host.mesh.address(1), "--token-file", str(host.data / "token"), "--tls", "on")
    assert refused.returncode == 2 and "token create" in refused.stderr
    token.write_text(token.read_text()[:-10])
    refused = agentd(*flags, "--join", host.mesh.address(1), "--token-file", str(token))
    assert refused.returncode == 3 and "not whole" in refused.stderr
    (tmp_path / "d/tls").mkdir(parents=True, exist_ok=True)
    (tmp_path / "d/tls/ca.pem").write_bytes(host.ca.certificate)
    refused = agentd(*flags, "--bootstrap", "--tls", "off")
    assert refused.returncode == 3 and "mesh with TLS" in refused.stderr

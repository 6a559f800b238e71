"""One node's files: what fits together, what is taken up while it runs, and under which names it is known."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import (
    issue,
    new_ca,
    new_key,
    read_certificate,
    revocation_list,
    signing_request,
    utc_now,
)
from mesh.security.mesh_tls import IdentityDamaged, MeshTls

NOW = utc_now()
CA_KEY = new_key()
CA = new_ca(CA_KEY, "c1", NOW)


def node(directory: Path, name: str = "n1", hosts=("10.0.0.7",), life=timedelta(days=90), key: bytes = b"") -> bytes:
    directory.mkdir(exist_ok=True)
    key = key or new_key()
    pem = issue(CA_KEY, CA, signing_request(key, name), NodeName("c1", name, voter=True), hosts, NOW, life)
    (directory / "ca.pem").write_bytes(CA)
    fresh = directory / "node.new"
    fresh.write_bytes(key + pem)
    fresh.replace(directory / "node.pem")
    return pem


def shake(server: ssl.SSLContext, client: ssl.SSLContext, called: str) -> tuple[str, bytes | None]:
    """A handshake in memory: the version, and the client's certificate as the server sees it. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=called)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    return ours.version() or "", theirs.getpeercert(binary_form=True)


@pytest.mark.parametrize(
    ("host", "called"),
    [
        ("big_host.lab", "big_host.lab"),
        ("big_host.lab", "Big_Host.LAB"),
        ("gpu-7", "gpu-7"),
        ("10.0.0.7", "10.0.0.7"),
        ("fd00::7", "fd00:0:0::7"),
        ("10.0.0.7", "localhost"),
        ("10.0.0.7", "::1"),
        ("10.0.0.7", "n1"),
    ],
)
def test_it_is_known_under_its_addresses(tmp_path, host, called):
    node(tmp_path / "a", hosts=(host,))
    pem = node(tmp_path / "b", "n2")
    server, client = MeshTls(tmp_path / "a"), MeshTls(tmp_path / "b")
    version, seen = shake(server.server_context(nodes_only=True), client.client_context(), called)
    assert version == "TLSv1.3" and seen == ssl.PEM_cert_to_DER_cert(pem.decode())


@pytest.mark.parametrize("called", ["10.0.0.8", "other", "10.0.0.7.evil", "evil.gpu-7"])
def test_and_under_no_other(tmp_path, called):
    node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tls.server_context(), tls.client_context(), called)


def test_old_versions_of_tls_are_not_spoken(tmp_path):
    node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake(tls.server_context(), old, "n1")[0] == "TLSv1.2"
    assert tls.server_context().minimum_version == tls.client_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_new_files_are_taken_up_in_the_contexts_that_are_in_use(tmp_path):
    node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    server, client = tls.server_context(nodes_only=True), tls.client_context()
    assert not tls.refresh()
    pem = node(tmp_path / "a")
    assert tls.refresh() and tls.own == read_certificate(pem)
    assert shake(server, client, "n1")[1] == ssl.PEM_cert_to_DER_cert(pem.decode())


def test_a_host_that_has_not_joined_listens_and_is_trusted_by_nobody(tmp_path):
    (tmp_path / "a").mkdir()
    joining = MeshTls(tmp_path / "a")
    server = joining.server_context()
    node(tmp_path / "b", "n2")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, MeshTls(tmp_path / "b").client_context(), "n1")
    node(tmp_path / "a")
    assert joining.refresh() and joining.joined
    assert shake(server, MeshTls(tmp_path / "b").client_context(), "n1")[1] is not None


def test_files_that_do_not_fit_together(tmp_path):
    node(tmp_path / "a")
    path = tmp_path / "a" / "node.pem"
    good = path.read_bytes()
    begin = good.index(b"-----BEGIN CERTIFICATE")
    other_ca = new_ca(new_key(), "c1", NOW)
    for wrong, words in (
        (new_key() + good[begin:], "another key"),
        (good[:begin], "no certificate"),
        (good[begin:], "no private key"),
        (b"", None),
        (good[: begin + 200], "no certificate"),
        (new_key() + other_ca, "another key"),
    ):
        path.write_bytes(wrong)
        if words is None:
            assert not MeshTls(tmp_path / "a").joined
            continue
        with pytest.raises(IdentityDamaged, match=words):
            MeshTls(tmp_path / "a")
    path.write_bytes(good)
    (tmp_path / "a" / "ca.pem").write_bytes(other_ca)
    with pytest.raises(IdentityDamaged, match="another mesh"):
        MeshTls(tmp_path / "a")


def test_what_is_damaged_while_it_runs_changes_nothing(tmp_path, caplog):
    pem = node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    (tmp_path / "a" / "node.pem").write_bytes(b"rubbish")
    assert not tls.refresh() and tls.own == read_certificate(pem) and "going on" in caplog.text


def test_revocations_never_go_back(tmp_path):
    serial = read_certificate(node(tmp_path / "a")).serial
    tls = MeshTls(tmp_path / "a")
    assert tls.in_force
    path = tmp_path / "a" / "revoked.pem"
    for number, serials, in_force in ((2, [serial], False), (1, [], False), (3, [], True)):
        fresh = tmp_path / "a" / "revoked.new"
        fresh.write_bytes(revocation_list(CA_KEY, CA, [(one, NOW) for one in serials], number, NOW))
        fresh.replace(path)
        tls.refresh()
        assert tls.in_force is in_force, number
    path.write_bytes(revocation_list(new_key(), CA, [(serial, NOW)], 9, NOW))
    assert not tls.refresh() and tls.in_force


def test_a_ca_that_is_given_up_vouches_for_nobody_in_a_running_process(tmp_path: Path) -> None:
    """Contexts cannot forget a CA: calls get another one."""
    node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    before = tls.client_context()
    node(tmp_path / "old", hosts=("10.0.0.8",))
    old = MeshTls(tmp_path / "old").server_context()
    assert shake(old, before, "10.0.0.8")[0]

    new_ca_key = new_key()
    new = new_ca(new_ca_key, "c1", NOW)
    key = new_key()
    pem = issue(new_ca_key, new, signing_request(key, "n1"), NodeName("c1", "n1", voter=True), ("10.0.0.7",), NOW)
    for name, content in (("ca.pem", new), ("node.pem", key + pem)):
        fresh = tmp_path / "a" / "fresh"
        fresh.write_bytes(content)
        fresh.replace(tmp_path / "a" / name)
    assert tls.refresh()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(old, tls.client_context(), "10.0.0.8")


async def test_a_session_made_before_calls_by_what_is_believed_now(tmp_path: Path) -> None:
    node(tmp_path / "a")
    tls = MeshTls(tmp_path / "a")
    async with tls.session() as session:
        connector = session.connector
        assert connector is not None
        asked = type("Request", (), {"is_ssl": lambda self: True, "ssl": True})()
        assert connector._get_ssl_context(asked) is tls.client_context()  # type: ignore[attr-defined]  # of TCPConnector
        tls._client = None
        assert connector._get_ssl_context(asked) is tls.client_context()  # type: ignore[attr-defined]  # of TCPConnector

"""What a host believes changes by the word of a CA that it believes, and never so that it shuts itself out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentd.identity.ca_backup import restore
from agentd.identity.ca_desk import CaDesk
from agentd.identity.trust import Trust
from mesh.core.identity.authorities import Authorities
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import (
    fingerprint,
    new_ca,
    new_key,
    read_certificate,
    read_revocations,
    signature,
    signed_by,
    signing_request,
    split,
    utc_now,
)
from mesh.security.mesh_tls import MeshTls
from mesh.security.node_certificate import BadCertificate, Revoked
from schemas.errors import Conflict, HeteroFlowError, InvalidInput


class Host:
    """A node of the mesh by its files, and the CA's own host beside it."""

    def __init__(self, root: Path, name: str, ca: CaDesk) -> None:
        self.tls, self.ca, self.name = root / name, ca, NodeName(ca.cluster_id, name, voter=True)
        self.tls.mkdir(parents=True)
        (self.tls / "ca.pem").write_bytes(ca.bundle)
        key = new_key()
        self._keep(key, ca.own(signing_request(key, name), self.name, f"uid-{name}", ()))

    def _keep(self, key: bytes, pem: bytes) -> None:
        fresh = self.tls / "node.new"
        fresh.write_bytes(key + pem)
        fresh.replace(self.tls / "node.pem")

    def renew(self) -> None:
        key, held = new_key(), read_certificate((self.tls / "node.pem").read_bytes())
        self._keep(key, self.ca.renew(held, signing_request(key, self.name.node), ()))

    def hear(self, ca: CaDesk) -> bool:
        trust = Trust(self.tls)
        said = ca.statement()
        assert said is not None
        took = trust.take(said.to_dict())
        ca.heard(read_certificate((self.tls / "node.pem").read_bytes()), Trust(self.tls).number)
        return took


@pytest.fixture
def ca(tmp_path: Path) -> CaDesk:
    return CaDesk.found(tmp_path / "ca", "c1")


def test_a_ca_is_replaced_under_its_nodes(tmp_path: Path, ca: CaDesk) -> None:
    hosts = [Host(tmp_path, name, ca) for name in ("n1", "n2")]
    old, tls = ca.fingerprint, MeshTls(hosts[0].tls)
    ca.rotate()
    assert ca.statement() is None, "before the CA's own agent has said where it is"
    ca.advance("n1", "10.0.0.1:7460")
    assert ca.fingerprint == old and ca.progress() == (1, ("n1", "n2"))
    assert hosts[0].hear(ca)
    ca.advance("n1", "10.0.0.1:7460")
    assert ca.progress() == (1, ("n2",)), "n2 does not believe the new one yet"
    hosts[1].hear(ca)
    ca.advance("n1", "10.0.0.1:7460")
    assert ca.fingerprint != old and ca.progress() == (2, ("n1", "n2"))
    hosts[0].renew()
    assert tls.refresh() and tls.authority == ca.fingerprint and len(split(tls.ca)) == 2
    hosts[0].hear(ca)
    hosts[1].hear(ca)
    ca.advance("n1", "10.0.0.1:7460")
    assert ca.progress() == (2, ("n2",)), "n2 shows its old certificate"
    hosts[1].renew()
    hosts[1].hear(ca)
    ca.advance("n1", "10.0.0.1:7460")
    assert ca.progress() == (0, ()) and set(split(ca.bundle)) == {ca.fingerprint}
    assert sorted(p.name for p in (tmp_path / "ca").glob("*.key")) == [f"ca-{ca.fingerprint[:16]}.key"]
    # One list of revocations for those who believe both and for those who believe the new one alone.
    assert read_revocations(ca.revocations(), ca.bundle).number == 1
    assert hosts[0].hear(ca)
    assert tls.refresh() and set(split(tls.ca)) == {ca.fingerprint}
    again = CaDesk(tmp_path / "ca")
    assert again.fingerprint == ca.fingerprint and again.new_token(1, 600).fingerprint == ca.fingerprint


def test_a_node_that_has_not_renewed_does_not_give_up_what_it_shows(tmp_path: Path, ca: CaDesk) -> None:
    host = Host(tmp_path, "n1", ca)
    key = new_key()
    other = new_ca(key, "c1", utc_now())
    said = Authorities(5, (other.decode(),), fingerprint(other), "n1", "10.0.0.1:7460")
    old_key = (tmp_path / "ca" / "ca.key").read_bytes()
    said = replace(said, signatures={ca.fingerprint: signature(old_key, said.text())})
    assert Trust(host.tls).take(said.to_dict()) is False
    assert set(split((host.tls / "ca.pem").read_bytes())) == {ca.fingerprint}


def forged(ca: CaDesk, root: Path) -> list[dict[str, Any]]:
    key = new_key()
    evil = new_ca(key, "c1", utc_now())
    ours = ca.certificate.decode()
    said = Authorities(9, (ours, evil.decode()), ca.fingerprint, "n1", "10.0.0.1:7460")
    by_evil = replace(said, signatures={fingerprint(evil): signature(key, said.text())})
    as_ours = replace(said, signatures={ca.fingerprint: signature(key, said.text())})
    good = signature((root / "ca" / "ca.key").read_bytes(), said.text())
    moved = replace(said, signatures={ca.fingerprint: good}, node="n9")
    foreign = Authorities(9, (new_ca(key, "c2", utc_now()).decode(),), "x", "n1", "a:1")
    return [
        by_evil.to_dict(), as_ours.to_dict(), moved.to_dict(), said.to_dict(), foreign.to_dict(), {},
        {**said.to_dict(), "believed": []}, {**said.to_dict(), "believed": ["x"]}, {**said.to_dict(), "number": 0},
        {**said.to_dict(), "signatures": {ca.fingerprint: "zz"}}, {**said.to_dict(), "signatures": 3},
    ]  # fmt: skip


@pytest.mark.attack(31)
@pytest.mark.parametrize("which", range(11))
def test_a_forged_statement_changes_nothing(tmp_path: Path, ca: CaDesk, which: int) -> None:
    host = Host(tmp_path, "n1", ca)
    with pytest.raises(BadCertificate):
        Trust(host.tls).take(forged(ca, tmp_path)[which])
    assert (host.tls / "ca.pem").read_bytes() == ca.certificate and not (host.tls / "trust.json").exists()


def test_an_older_statement_changes_nothing(tmp_path: Path, ca: CaDesk) -> None:
    host = Host(tmp_path, "n1", ca)
    ca.rotate()
    ca.advance("n1", "10.0.0.1:7460")
    first = ca.statement()
    assert first is not None and host.hear(ca)
    assert Trust(host.tls).take(first.to_dict()) is False


def test_it_moves_from_a_backup_with_what_was_revoked_and_given_out_since(tmp_path: Path, ca: CaDesk) -> None:
    old, late = Host(tmp_path, "n1", ca), None
    backup = ca.export()
    late = Host(tmp_path, "n2", ca)
    gone = Host(tmp_path, "n3", ca)
    ca.revoke("n3", "n1")
    revoked = read_revocations(ca.revocations(), ca.bundle)
    here = ("n2", "10.0.0.2:7460")
    moved = restore(tmp_path / "elsewhere", backup, "c1", ca.bundle, revoked, here)
    assert moved.fingerprint == ca.fingerprint
    said = moved.statement()
    assert said is not None and (said.node, said.address) == here
    old.ca = late.ca = gone.ca = moved
    old.renew()
    late.renew()
    with pytest.raises(HeteroFlowError) as refused:
        gone.renew()
    assert refused.value.code == "certificate_revoked"
    newer = read_revocations(moved.revocations(), ca.bundle)
    assert newer.number > revoked.number and revoked.serials <= newer.serials
    assert Trust(old.tls).take(said.to_dict())
    with pytest.raises(Conflict):
        restore(tmp_path / "elsewhere", backup, "c1", ca.bundle, revoked, here)


def test_what_is_no_backup_of_this_mesh_is_refused_whole(tmp_path: Path, ca: CaDesk) -> None:
    good, none = ca.export(), Revoked(0, frozenset())
    other = CaDesk.found(tmp_path / "other", "c2").export()
    same_name = CaDesk.found(tmp_path / "same", "c1").export()
    swapped = {**good, "authorities": [{**good["authorities"][0], "key": new_key().decode()}]}
    for bad in (
        {},
        {**good, "format": 7},
        other,
        same_name,
        swapped,
        {**good, "authorities": []},
        {**good, "ledger": 3},
    ):
        with pytest.raises(InvalidInput, match="no backup"):
            restore(tmp_path / "new", bad, "c1", ca.bundle, none, ("n1", "a:1"))
    assert not (tmp_path / "new").exists() and not CaDesk.exists(tmp_path / "new")


def test_a_token_of_the_old_ca_leads_to_the_old_one_alone(ca: CaDesk) -> None:
    token = ca.new_token(1, 600)
    assert JoinToken.parse(str(token)) == token and set(split(ca.bundle)) == {token.fingerprint}
    ca.rotate()
    assert token.fingerprint in split(ca.bundle) and len(split(ca.bundle)) == 2
    assert signed_by(ca.bundle, ca.certificate)

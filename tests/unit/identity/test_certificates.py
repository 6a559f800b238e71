"""Certificates of nodes: what the CA decides, what it refuses, and what is told apart."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import (
    BACKDATED,
    belongs_to,
    ca_cluster,
    fingerprint,
    issue,
    new_ca,
    new_key,
    read_certificate,
    read_revocations,
    request_key_hash,
    revocation_list,
    signed_by,
    signing_request,
)
from mesh.security.node_certificate import BadCertificate, Revoked

NOW = datetime(2027, 1, 1, tzinfo=UTC)
CA_KEY, KEY = new_key(), new_key()
CA = new_ca(CA_KEY, "c1", NOW)
NAME = NodeName("c1", "gpu-7", voter=True)


def issued(key: bytes = KEY, name: NodeName = NAME, hosts=("10.0.0.7", "GPU_7.lab"), **options) -> bytes:
    return issue(CA_KEY, CA, signing_request(key, name.node), name, hosts, NOW, **options)


def request_with(key, builder=None) -> bytes:
    builder = builder or x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_certificate_says_who_where_and_how_long():
    made = read_certificate(issued())
    assert made.name == NAME
    assert {"10.0.0.7", "gpu_7.lab", "localhost", "127.0.0.1", "::1", "gpu-7"} == set(made.hosts)
    assert (made.not_before, made.not_after) == (NOW - BACKDATED, NOW + timedelta(days=90))
    assert made.left(NOW + timedelta(days=91)) < 0 < made.left(NOW) < 1
    assert ca_cluster(CA) == "c1"


@pytest.mark.attack(31)
def test_what_a_request_asks_for_beside_its_key_is_not_given():
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("heteroflow://c1/voter/other")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other")])
    )
    greedy = builder.add_extension(names, critical=False).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    pem = issue(CA_KEY, CA, request_with(ec.generate_private_key(ec.SECP256R1()), greedy), NodeName("c1", "a"), (), NOW)
    assert read_certificate(pem).name == NodeName("c1", "a")
    loaded = x509.load_pem_x509_certificate(pem)
    assert not loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert "other" not in loaded.subject.rfc4514_string()


def test_requests_that_are_refused():
    good = signing_request(KEY, "a")
    for bad in (
        b"",
        b"nonsense",
        good[: len(good) // 2],
        good.replace(b"MI", b"MJ", 1),
        b"-" * 20_000,
        request_with(rsa.generate_private_key(65537, 2048)),
        request_with(ec.generate_private_key(ec.SECP384R1())),
        KEY,
        CA,
    ):
        with pytest.raises(BadCertificate):
            request_key_hash(bad)


@pytest.mark.attack(31)
def test_a_signature_over_another_key_is_refused():
    der = bytearray(x509.load_pem_x509_csr(signing_request(KEY, "a")).public_bytes(serialization.Encoding.DER))
    der[-3] ^= 1
    forged = ssl.DER_cert_to_PEM_cert(bytes(der)).replace("CERTIFICATE", "CERTIFICATE REQUEST").encode()
    with pytest.raises(BadCertificate):
        request_key_hash(forged)


def test_whose_a_certificate_is():
    other_key = new_key()
    other_ca = new_ca(other_key, "c1", NOW)
    assert signed_by(issued(), CA) and not signed_by(issued(), other_ca)
    assert belongs_to(issued(), KEY) and not belongs_to(issued(), other_key)
    assert fingerprint(CA) != fingerprint(other_ca)


@pytest.mark.attack(31)
@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", CA, KEY])
def test_what_names_no_node(pem):
    with pytest.raises(BadCertificate):
        read_certificate(pem)


def test_nobody_lives_longer_than_the_ca():
    late = NOW + timedelta(days=3650 - 10)
    made = read_certificate(issue(CA_KEY, CA, signing_request(KEY, "a"), NodeName("c1", "a"), (), late))
    assert made.not_after == NOW + timedelta(days=3650)


@pytest.mark.parametrize("host", ["", "caf\u00e9", "\u65e5\u672c"])
def test_hosts_that_are_none(host):
    with pytest.raises(BadCertificate):
        issued(hosts=(host,))


@pytest.mark.attack(32)
def test_revocation_lists_are_the_ca_s_alone():
    serial = read_certificate(issued()).serial
    listed = read_revocations(revocation_list(CA_KEY, CA, [(serial, NOW)], 7, NOW), CA)
    assert listed == Revoked(7, frozenset({serial}))
    other_key = new_key()
    forged = revocation_list(other_key, CA, [(serial, NOW)], 8, NOW)
    for pem in (forged, b"", CA, forged[:200]):
        with pytest.raises(BadCertificate):
            read_revocations(pem, CA)

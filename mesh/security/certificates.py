"""The mesh CA and the certificates of its nodes: ECDSA P-256, signed with SHA-256.

A request for a certificate brings nothing but a key and proof of it: names and addresses are decided by the CA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mesh.core.identity.node_name import NodeName, NotANode
from mesh.security.node_certificate import BadCertificate, NodeCertificate, Revoked

CA_LIFE = timedelta(days=3650)
NODE_LIFE = timedelta(days=90)
BACKDATED = timedelta(minutes=5)
"""A new certificate must be good on a host whose clock is a little behind the CA's."""
PEM_MAX = 16 * 1024


def new_key() -> bytes:
    """A private key, as PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_ca(key: bytes, cluster_id: str, now: datetime) -> bytes:
    """The certificate of a mesh's own CA, as PEM."""
    private = _private(key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"HeteroFlow mesh {cluster_id}")])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def signing_request(key: bytes, node: str) -> bytes:
    """As PEM. The name is for people who look at it; the CA does not."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node[:64])])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(_private(key), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def request_key_hash(request: bytes) -> str:
    """SHA-256 in hex of the key that a request proves to have. Raises BadCertificate."""
    return _key_hash(_request(request))


def issue(
    ca_key: bytes,
    ca: bytes,
    request: bytes,
    name: NodeName,
    hosts: Iterable[str],
    now: datetime,
    life: timedelta = NODE_LIFE,
) -> bytes:
    """A node's certificate, as PEM. Raises BadCertificate."""
    asked, issuer = _request(request), _certificate(ca)
    wanted = dict.fromkeys([*(host.lower() for host in hosts), "localhost", "127.0.0.1", "::1", name.node])
    names: list[x509.GeneralName] = [_host_name(host) for host in wanted]
    names += [x509.UniformResourceIdentifier(uri) for uri in name.uris()]
    key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name.node[:64])]))
        .issuer_name(issuer.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(min(now + life, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(asked.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), critical=False)
        .sign(_private(ca_key), hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_certificate(pem: bytes) -> NodeCertificate:
    """Raises BadCertificate where it names no node."""
    return read_der(_certificate(pem).public_bytes(serialization.Encoding.DER))


@lru_cache(maxsize=4096)
def read_der(der: bytes) -> NodeCertificate:
    """Raises BadCertificate. The signature is not looked at: whoever hands over the bytes has checked the chain."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        name = NodeName.from_uris(names.get_values_for_type(x509.UniformResourceIdentifier))
        addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    except (ValueError, NotANode, x509.ExtensionNotFound, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no certificate of a node: {error}") from error
    hosts = (*names.get_values_for_type(x509.DNSName), *addresses)
    serial = f"{certificate.serial_number:x}"
    return NodeCertificate(name, serial, certificate.not_valid_before_utc, certificate.not_valid_after_utc, hosts)


def signed_by(pem: bytes, authorities: bytes) -> bool:
    """By one of them. Raises BadCertificate for what is no certificate."""
    return any(_issued(_certificate(pem), ca) for ca in _certificates(authorities))


@lru_cache(maxsize=4096)
def der_signed_by(der: bytes, authorities: bytes) -> bool:
    """Raises BadCertificate for what is no certificate."""
    try:
        certificate = x509.load_der_x509_certificate(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no certificate: {error}") from error
    return any(_issued(certificate, ca) for ca in _certificates(authorities))


def _issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def split(authorities: bytes) -> dict[str, bytes]:
    """The certificates of a PEM file by their fingerprints, in its order. Raises BadCertificate."""
    found = (ca.public_bytes(serialization.Encoding.PEM) for ca in _certificates(authorities))
    return {fingerprint(pem): pem for pem in found}


def signature(key: bytes, text: bytes) -> str:
    """In hex."""
    return _private(key).sign(text, ec.ECDSA(hashes.SHA256())).hex()


def signature_is_valid(given: str, text: bytes, ca: bytes) -> bool:
    """Raises BadCertificate for what is no certificate."""
    public = _certificate(ca).public_key()
    try:
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(bytes.fromhex(given), text, ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


def belongs_to(pem: bytes, key: bytes) -> bool:
    """Whether a certificate is for this key. Raises BadCertificate."""
    return _certificate(pem).public_key() == _private(key).public_key()


def fingerprint(pem: bytes) -> str:
    """SHA-256 of the certificate, in hex. Raises BadCertificate."""
    return _certificate(pem).fingerprint(hashes.SHA256()).hex()


def ca_cluster(pem: bytes) -> str:
    """The mesh that a CA certificate is of, and "" of a foreign one. Raises BadCertificate."""
    common = _certificate(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = str(common[0].value) if common else ""
    return text.removeprefix("HeteroFlow mesh ") if text.startswith("HeteroFlow mesh ") else ""


def revocation_list(
    ca_key: bytes, ca: bytes, serials: Sequence[tuple[str, datetime]], number: int, now: datetime
) -> bytes:
    """serials: in hex, with the time at which each was revoked. As PEM."""
    issuer = _certificate(ca)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now)
        .next_update(now + CA_LIFE)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, at in serials:
        one = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(at).build()
        builder = builder.add_revoked_certificate(one)
    return builder.sign(_private(ca_key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_revocations(pem: bytes, authorities: bytes) -> Revoked:
    """Raises BadCertificate unless one of these CAs signed it."""
    try:
        listed = x509.load_pem_x509_crl(pem)
        keys = [ca.public_key() for ca in _certificates(authorities)]
        signed = any(isinstance(key, ec.EllipticCurvePublicKey) and listed.is_signature_valid(key) for key in keys)
        number = listed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, TypeError, x509.ExtensionNotFound, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no revocation list: {error}") from error
    if not signed:
        raise BadCertificate("the revocation list is not signed by this mesh's CA")
    return Revoked(number, frozenset(f"{one.serial_number:x}" for one in listed))


def utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _key_hash(request: x509.CertificateSigningRequest) -> str:
    digest = hashes.Hash(hashes.SHA256())
    public = request.public_key()
    digest.update(public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def _request(pem: bytes) -> x509.CertificateSigningRequest:
    if len(pem) > PEM_MAX:
        raise BadCertificate(f"a signing request has at most {PEM_MAX} bytes")
    try:
        request = x509.load_pem_x509_csr(pem)
        public, signed = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no signing request: {error}") from error
    if not signed:
        raise BadCertificate("the signing request is not signed by its own key")
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise BadCertificate("keys of a mesh are ECDSA P-256")
    return request


def _certificate(pem: bytes) -> x509.Certificate:
    if len(pem) > PEM_MAX:
        raise BadCertificate(f"a certificate has at most {PEM_MAX} bytes")
    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no certificate: {error}") from error


def _certificates(pem: bytes) -> list[x509.Certificate]:
    if len(pem) > PEM_MAX:
        raise BadCertificate(f"the CAs of a mesh have at most {PEM_MAX} bytes")
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificate(f"no certificate: {error}") from error


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCertificate("the key file holds no private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("keys of a mesh are ECDSA P-256")
    return key


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii():
        raise BadCertificate(f"{host[:80]!r} is neither an address nor a name")
    return x509.DNSName(host)


def _usage(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )

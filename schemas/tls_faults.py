"""Why a TLS connection was not made, in words: one sentence for what OpenSSL found, one for what to do."""

_NOT_YET, _EXPIRED = 9, 10
_OTHER_CA = frozenset((2, 7, 18, 19, 20, 21, 24))
_OTHER_NAME = frozenset((62, 64))


def certificate_fault(verify_code: int, verify_message: str, address: str) -> tuple[str, str]:
    """What is wrong with the certificate shown at `address` (an X509_V_ERR number), and what to do."""
    if verify_code == _NOT_YET:
        return (
            f"the certificate of {address} is not valid yet: a clock is wrong, here or on that host",
            "compare `date -u` on both; set the wrong one, or wait until the certificate is valid",
        )
    if verify_code == _EXPIRED:
        return (
            f"the certificate of {address} has expired, or the clock of this host is ahead",
            "compare `date -u` on both; on that host: heteroflow-agentd cert show, then cert renew or join again",
        )
    if verify_code in _OTHER_CA:
        return (
            f"the certificate of {address} is not from the CA that is trusted here: it is another mesh, or no agent",
            "take data-dir/tls/ca.pem of an agent of the mesh you mean (--ca-file, HETEROFLOW_CA_FILE)",
        )
    if verify_code in _OTHER_NAME:
        return (
            f"the certificate there is not for {address}",
            "use an address under which that agent was started (--advertise), or renew its certificate",
        )
    return f"the certificate of {address} is not accepted ({verify_message})", "see heteroflow-agentd cert show there"


def alert_fault(reason: str, address: str) -> str | None:
    """What the other side found wrong with our certificate or way of speaking (OpenSSL's reason), or None."""
    alerts = {
        "TLSV1_ALERT_UNKNOWN_CA": "does not know the CA of this host's certificate: it is another mesh",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "asks for a node certificate",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "says that this host's certificate has expired: see cert renew",
        "SSLV3_ALERT_BAD_CERTIFICATE": "does not accept this host's certificate, or finds a clock wrong",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "does not accept this host's certificate",
        "WRONG_VERSION_NUMBER": "speaks no TLS: its mesh is without, or it is no agent",
        "HTTP_REQUEST": "was spoken to without TLS",
    }
    return f"{address} {alerts[reason]}" if reason in alerts else None

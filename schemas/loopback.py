"""Which addresses stay on this host: without TLS, tokens go nowhere else."""

import ipaddress


def is_loopback(host: str) -> bool:
    """host: without port, in brackets or not. A name other than localhost may mean any host."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

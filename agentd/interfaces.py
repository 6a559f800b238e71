"""The network interfaces of this host: which addresses they carry, and which of them leads to another host."""

import array
import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SIOCGIFCONF = 0x8912
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 0x1
# struct ifreq of a 64-bit kernel: a name and a struct sockaddr_in, in a union of 24 bytes.
_ENTRY_BYTES = 40
_ENTRIES_MAX = 512
_GLOBAL_SCOPE = 0x00
# Temporary, optimistic, duplicate, deprecated or tentative: soon gone, or not to be used yet.
_FLEETING = 0x01 | 0x04 | 0x08 | 0x20 | 0x40


class Interface(NamedTuple):
    """address: one of those that it carries, as text without a zone."""

    name: str
    address: str


def interfaces() -> list[Interface]:
    """Of those that are up, in the kernel's order: IPv4, then what of IPv6 is of global scope and stays."""
    carried = [*_ipv4(), *_ipv6()]
    # The kernel lists the addresses of the others too: another host would try one that leads nowhere.
    up = {name for name in {one.name for one in carried} if _is_up(name)}
    return [one for one in carried if one.name in up]


def leading_to(host: str, port: int) -> str | None:
    """The interface by which `host`, an address, is reached from here; of an address of this host, the one that carries
    it. None where there is no way, and for names, which would take their time."""
    with suppress(ValueError, OSError):
        address = ipaddress.ip_address(host)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as asks:
            # Sends nothing: the kernel looks up the route, and with it the address it would send from.
            asks.connect((host, port))
            own = ipaddress.ip_address(str(asks.getsockname()[0]).partition("%")[0])
        if own.is_loopback:
            return "lo" if address.is_loopback else None
        return next((one.name for one in interfaces() if ipaddress.ip_address(one.address) == own), None)
    return None


def _is_up(name: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks, suppress(OSError):  # gone since it was listed
        answer = fcntl.ioctl(asks, _SIOCGIFFLAGS, struct.pack(f"{_ENTRY_BYTES}s", name.encode()))
        return bool(struct.unpack_from("16xH", answer)[0] & _IFF_UP)
    return False


def _ipv4() -> list[Interface]:
    """Every address, those beside the first of an interface too."""
    room = array.array("B", bytes(_ENTRIES_MAX * _ENTRY_BYTES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        answer = fcntl.ioctl(asks, _SIOCGIFCONF, struct.pack("iP", len(room), room.buffer_info()[0]))
    raw = room.tobytes()[: struct.unpack("iP", answer)[0]]
    found: list[Interface] = []
    for at in range(0, len(raw), _ENTRY_BYTES):
        entry = raw[at : at + _ENTRY_BYTES]
        # `eth0:1` is how an alias of eth0 is called.
        name = entry[:16].partition(b"\0")[0].decode(errors="replace").partition(":")[0]
        found.append(Interface(name, socket.inet_ntoa(entry[20:24])))
    return found


def _ipv6() -> list[Interface]:
    try:
        rows = Path("/proc/net/if_inet6").read_text(encoding="ascii").split("\n")
    except OSError:
        return []
    found: list[Interface] = []
    for fields in map(str.split, rows):
        if len(fields) == 6 and int(fields[3], 16) == _GLOBAL_SCOPE and not int(fields[4], 16) & _FLEETING:
            found.append(Interface(fields[5], str(ipaddress.IPv6Address(int(fields[0], 16)))))
    return found

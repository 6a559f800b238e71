"""Addresses and ports of the agent, and the clocks of other nodes."""

import ctypes
import email.utils
import errno
import http.client
import ipaddress
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentd.config import Address, parse_address
from agentd.core.clocks import measured
from agentd.core.doctor.facts import ClockFacts, PeerClock, PortFacts, ReachFacts, Setup
from agentd.doctor.family import family_pids

_ENGINE_PORT = 2375
_PEERS, _PEER_S = 8, 2.0
_STA_UNSYNC, _TIME_ERROR = 0x40, 5


def look_at_reach(setup: Setup) -> ReachFacts:
    ours = family_pids(setup["data_dir"])
    return {
        "ports": [_port("--api", setup["api"], ours), _port("--voter", setup["voter"], ours)],
        "ephemeral": _ephemeral(),
        "engine_tcp": sorted({str(one) for one in listening(_ENGINE_PORT)}),
    }


def _port(flag: str, text: str, ours: Sequence[int]) -> PortFacts:
    address = parse_address(text, flag)
    facts: PortFacts = {"flag": flag, "address": text, "state": "free", "holder": ""}
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
            # Bound is not all: where another socket listens with the same option only this fails.
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = _holder(address)
            facts["state"] = "ours" if holder in ours else "taken"
            facts["holder"] = f"process {holder} ({_name(holder)})" if holder else ""
        else:
            facts["state"] = "absent" if error.errno == errno.EADDRNOTAVAIL else "refused"
            facts["holder"] = error.strerror or str(error)
    return facts


def _ephemeral() -> list[int] | None:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return [int(low), int(high)]
    except (OSError, ValueError):
        return None


def listening(port: int) -> dict[Address, int]:
    """Address -> inode of the socket that listens there on this port."""
    found = {}
    for table, width in (("/proc/net/tcp", 8), ("/proc/net/tcp6", 32)):
        try:
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        except OSError:
            continue
        for row in rows:
            host, _, number = row[1].partition(":")
            if row[3] == "0A" and int(number, 16) == port and len(host) == width:
                # Words of four bytes, each in the order of this machine.
                packed = b"".join(bytes.fromhex(host[place : place + 8])[::-1] for place in range(0, width, 8))
                found[Address(str(ipaddress.ip_address(packed)), port)] = int(row[9])
    return found


def _holder(address: Address) -> int:
    """The process that listens there; 0 where it cannot be told."""
    inodes = {f"socket:[{inode}]" for inode in listening(address.port).values()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if any(os.readlink(fd) in inodes for fd in (entry / "fd").iterdir()):
                    return int(entry.name)
            except OSError:
                continue
    return 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


class _Timex(ctypes.Structure):
    """struct timex of Linux on 64 bits; only status is read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _synchronised() -> bool | None:
    kernel = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(kernel))
    return None if state < 0 else state != _TIME_ERROR and not kernel.status & _STA_UNSYNC


def look_at_clock(setup: Setup) -> ClockFacts:
    facts: ClockFacts = {"synchronised": _synchronised(), "peers": [], "silent": []}
    scheme = "https" if (Path(setup["data_dir"]) / "tls" / "ca.pem").exists() else "http"
    for address in _peers(setup)[:_PEERS]:
        clock = _clock_of(address, scheme)
        if clock is None:
            facts["silent"].append(address)
        else:
            facts["peers"].append(clock)
    return facts


def _peers(setup: Setup) -> list[str]:
    """API addresses of other nodes, as this one has written them down."""
    found: set[str] = set()
    for name in ("founding.json", "node.json"):
        try:
            said: Any = json.loads((Path(setup["data_dir"]) / name).read_text())
        except (OSError, ValueError):
            continue
        if isinstance(said, dict):
            found |= {str(seat.get("api_addr", "")) for seat in said.get("seats", ())}
            found |= {str(address) for address in said.get("mesh_agents", ())}
    return sorted(found - {setup["api"], ""})


def _clock_of(address: str, scheme: str) -> PeerClock | None:
    """By the Date of an answer: whole seconds, so the half second behind it is its middle."""
    # The answer is looked at for its time alone, which any middleman could hold back as well.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting))
    asked_s = time.time()
    try:
        with opener.open(f"{scheme}://{address}/healthz", timeout=_PEER_S) as answer:
            date = answer.headers["Date"]
    except urllib.error.HTTPError as error:
        with error:
            date = error.headers["Date"]
    except (OSError, http.client.HTTPException, ValueError):
        return None
    if not date:
        return None
    clock = measured(asked_s, email.utils.parsedate_to_datetime(date).timestamp() + 0.5, time.time())
    return {"address": address, "ahead_s": clock.ahead_s, "within_s": clock.within_s + 0.5}

"""Amounts of memory as documents write them."""

import re

_SIZE = re.compile(r"([0-9]{1,20})(?:([kmgt])(?:b|ib?)?|b)?\Z", re.IGNORECASE)
_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}


def byte_size(text: str) -> int | None:
    """Bytes of `512m`, `64g`, `64GiB` or `68719476736`: as Docker reads them, every unit is a power of 1024 and a bare
    number is bytes. None for anything else."""
    found = _SIZE.match(text)
    return int(found[1]) << _POWERS.get((found[2] or "").lower(), 0) if found else None

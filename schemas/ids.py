"""Ids. Every id is one safe path segment, because it becomes a directory name, a key part and a URL part.

group id    `tg-` + 10 characters of creation time (ms, base 32) + 10 random characters: sorts by creation time
request id  `rq-` + the same; other safe segments are accepted too, but only these can be refused for age alone
node id     a lower-cased DNS-like name: the file systems and resolvers it meets do not all tell case apart
"""

import re

from schemas.errors import InvalidInput
from schemas.lexemes import kind_of
from schemas.limits import REQUEST_FUTURE_MS, REQUEST_TTL_MS

SEGMENT_MAX = 63  # a host name may have no longer label, and names derived from ids become host names
NODE_ID_MAX = 253

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_STAMPED = re.compile(r"(tg|rq)-[0-9a-hjkmnp-tv-z]{20}\Z")

# Crockford's alphabet: in ASCII order, so that text order is time order, and without i l o u.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_TIME_DIGITS = 10
_RANDOM_DIGITS = 10
RANDOM_BYTES = 7  # 50 of the 56 bits are used


def segment_refusal(value: object, what: str = "id") -> str | None:
    """The reason why `value` may not be one path segment, or None."""
    if not isinstance(value, str):
        return f"{what} must be text, not {kind_of(value)}"
    if not value:
        return f"{what} is empty"
    if len(value) > SEGMENT_MAX:
        return f"{what} has {len(value)} characters; at most {SEGMENT_MAX} fit"
    if not _SEGMENT.match(value):
        return f"{what} {value!r} must start with a letter or digit and hold only letters, digits, '.', '_' and '-'"
    return None


def segment(value: object, what: str = "id") -> str:
    """Raises InvalidInput(invalid_id)."""
    refusal = segment_refusal(value, what)
    if refusal is not None:
        raise InvalidInput("invalid_id", refusal, "Use letters, digits, '.', '_' and '-'.", field=what)
    return str(value)


def node_id_refusal(value: object) -> str | None:
    """The reason why `value` is no node id, or None. Upper case is refused here: `node_id` lowers it first."""
    if not isinstance(value, str):
        return f"node name must be text, not {kind_of(value)}"
    if not value:
        return "node name is empty"
    if len(value) > NODE_ID_MAX:
        return f"node name has {len(value)} characters; at most {NODE_ID_MAX} fit"
    if value != value.lower():
        return f"node name {value!r} has upper-case letters; node ids are lower case"
    for label in value.split("."):
        if len(label) > SEGMENT_MAX or not _LABEL.match(label):
            return (
                f"node name {value!r} is not a host name: between dots come 1-{SEGMENT_MAX} letters, digits and '-', "
                "with a letter or digit first and last"
            )
    return None


def node_id(name: str) -> str:
    """The node id of a host or operator-given name. Raises InvalidInput(invalid_id)."""
    # Only ASCII is lowered: the Kelvin sign and its like would become plain letters.
    lowered = name.lower() if isinstance(name, str) and name.isascii() else name
    refusal = node_id_refusal(lowered)
    if refusal is not None:
        raise InvalidInput(
            "invalid_id", refusal, "Give the node a host-like name with --name, for example gpu-07.", field="name"
        )
    return lowered


def make_group_id(now_ms: int, random: bytes) -> str:
    return _stamped("tg", now_ms, random)


def make_request_id(now_ms: int, random: bytes) -> str:
    return _stamped("rq", now_ms, random)


def stamped_ms(value: str) -> int | None:
    """The creation time inside a group or request id; None for an id that carries none."""
    if not _STAMPED.match(value):
        return None
    total = 0
    for digit in value[3 : 3 + _TIME_DIGITS]:
        total = total * 32 + _VALUES[digit]
    return total


def group_id_refusal(value: object) -> str | None:
    refusal = segment_refusal(value, "group id")
    if refusal is not None:
        return refusal
    assert isinstance(value, str)
    if not value.startswith("tg-") or stamped_ms(value) is None:
        return f"group id {value!r} must be 'tg-' and 20 characters of 0-9 a-z without i, l, o, u"
    return None


def request_age_refusal(value: str, now_ms: int) -> str | None:
    """The reason why a request id is too old (or from the future) to be told apart from a repeat, or None."""
    made_ms = stamped_ms(value) if value.startswith("rq-") else None
    if made_ms is None:
        return None
    if now_ms - made_ms > REQUEST_TTL_MS:
        hours = (now_ms - made_ms) // 3_600_000
        return f"request id {value} was made {hours} h ago; answers are kept for {REQUEST_TTL_MS // 3_600_000} h only"
    if made_ms - now_ms > REQUEST_FUTURE_MS:
        return (
            f"request id {value} was made {(made_ms - now_ms) // 1000} s in the future; check the clock of the client"
        )
    return None


def _stamped(prefix: str, now_ms: int, random: bytes) -> str:
    if not 0 <= now_ms < 1 << (5 * _TIME_DIGITS):
        raise ValueError(f"time {now_ms} ms does not fit an id")
    if len(random) < RANDOM_BYTES:
        raise ValueError(f"an id needs {RANDOM_BYTES} random bytes, got {len(random)}")
    noise = int.from_bytes(random[:RANDOM_BYTES], "big") & ((1 << (5 * _RANDOM_DIGITS)) - 1)
    return f"{prefix}-{_base32(now_ms, _TIME_DIGITS)}{_base32(noise, _RANDOM_DIGITS)}"


def _base32(value: int, digits: int) -> str:
    out = []
    for _ in range(digits):
        out.append(_DIGITS[value & 31])
        value >>= 5
    return "".join(reversed(out))

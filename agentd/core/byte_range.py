"""What of a file a request asks for (RFC 9110, 13 and 14): pure, so that every header can be tried."""

import hashlib
import re
from typing import NamedTuple

# One range; several in one request are answered with the whole, as the RFC allows: nobody needs them here, and many
# small overlapping ones would make a small request cost much.
_ONE = re.compile(r"bytes=[ \t]*(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))[ \t]*\Z")


class Span(NamedTuple):
    """Bytes start to end of a file, end not included."""

    start: int
    end: int


class NotSatisfiable(Exception):
    """No byte of the range is in the file (416)."""


def span_of(header: str | None, size: int) -> Span | None:
    """None for the whole file: no header, another unit, or one that is no range. Raises NotSatisfiable."""
    found = _ONE.match(header) if header is not None else None
    if found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        if int(suffix) == 0 or size == 0:
            raise NotSatisfiable
        return Span(max(size - int(suffix), 0), size)
    if last is not None and int(last) < int(first):
        return None
    if int(first) >= size:
        raise NotSatisfiable
    return Span(int(first), size if last is None else min(int(last) + 1, size))


def file_tag(inode: int, size: int, mtime_ns: int) -> str:
    """The ETag of one state of a file, whatever its name. A digest: an inode number is the host's business."""
    said = hashlib.sha256(f"{inode} {size} {mtime_ns}".encode()).hexdigest()
    return f'"{said[:32]}"'


def if_range_holds(header: str | None, tag: str) -> bool:
    """Whether Range is to be looked at. A date is no strong validator here: two writes within its second look alike."""
    return header is None or header.strip() == tag


def if_match_holds(header: str | None, tag: str) -> bool:
    """False is 412."""
    return header is None or header.strip() == "*" or tag in [part.strip() for part in header.split(",")]

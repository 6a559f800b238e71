"""Durations and moments as they are typed: 90s, 30m, 2h, 1d; now, +2h, 2026-12-01T22:00Z."""

import argparse
import re

from schemas.instants import iso_utc, parse_iso_utc

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd])\Z", re.ASCII)


def duration_s(text: str) -> int:
    """Raises argparse.ArgumentTypeError."""
    if text == "0":
        return 0
    found = _DURATION.match(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 30m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def moment(text: str) -> dict[str, object]:
    """As the API takes it: `{"in_s": ...}` by the leader's clock, or `{"from": ISO}`. Raises as duration_s."""
    if text == "now":
        return {"in_s": 0}
    if text.startswith("+"):
        return {"in_s": duration_s(text[1:])}
    try:
        return {"from": iso_utc(parse_iso_utc(text))}
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write now, +2h or 2026-12-01T22:00Z (UTC)") from error

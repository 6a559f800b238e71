"""Times for people: Unix milliseconds <-> ISO-8601 UTC. No clock is read here."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def iso_utc(at_ms: int) -> str:
    """`2026-11-29T17:15:45.123Z`. Out of range is clamped: a list must not fail for one bad stamp."""
    moment = _EPOCH + timedelta(milliseconds=min(max(at_ms, 0), MS_MAX))
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def parse_iso_utc(text: str) -> int:
    """Unix milliseconds; a time without an offset is taken as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)

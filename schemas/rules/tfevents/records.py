"""An Event message: when, at which step, whether a session starts, and its scalars."""

from dataclasses import dataclass

from schemas.rules.tfevents.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    fields,
    float32,
    float64,
    signed,
)

# Longer names are refused: they cannot be told apart on any screen, and each is kept for the life of the run.
MAX_TAG_BYTES = 1024
SCALARS = "scalars"
_MOST_PARTS = 1000
_SESSION_START = 1
_DATA_CLASS_SCALAR = 1


@dataclass(slots=True)
class Event:
    """summaries: where the Summary messages lie in the payload."""

    wall: float = 0.0
    step: int = 0
    starts: bool = False
    summaries: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class TaggedValue:
    """tag: None if it is too long to be kept. plugin: named by this very value, else None. tensor: where it lies in the
    payload, if the value is one. simple: the plain number, if it is one. Neither: an image, a histogram, audio."""

    tag: str | None
    plugin: str | None = None
    plain: bool = False
    """Nothing but the tag and then the plain number: what stands before it does so for every number of the tag."""
    simple: float | None = None
    tensor: tuple[int, int] | None = None


def event_of(payload: bytes) -> Event:
    """Raises Malformed."""
    event = Event()
    for number, wire, a, b in fields(payload, 0, len(payload)):
        if number == 1 and wire == FIXED64:
            event.wall = float64(payload, a)[0]
        elif number == 2 and wire == VARINT:
            event.step = signed(a)
        elif number == 5 and wire == BYTES:
            event.summaries += ((a, b),)
            if len(event.summaries) > 16:
                raise Malformed("an event has too many summaries")
        elif number == 7 and wire == BYTES:
            statuses = [value for field, kind, value, _ in fields(payload, a, b) if field == 1 and kind == VARINT]
            event.starts = statuses[-1:] == [_SESSION_START]
    return event


def value_of(payload: bytes, at: int, end: int) -> TaggedValue:
    """One Summary.Value. Raises Malformed."""
    found = TaggedValue("")
    seen: list[int] = []
    for number, wire, a, b in fields(payload, at, end):
        seen.append(number)
        if number == 2 and wire == FIXED32:
            found.simple, found.tensor = float32(payload, a)[0], None
        elif wire != BYTES:
            continue
        elif number == 1:
            found.tag = payload[a:b].decode("utf-8", "backslashreplace") if b - a <= MAX_TAG_BYTES else None
        elif number == 8:
            found.simple, found.tensor = None, (a, b)
        elif number == 9:
            found.plugin = _plugin(payload, a, b)
        elif 3 <= number <= 6:
            found.simple = found.tensor = None
        if len(seen) > _MOST_PARTS:
            raise Malformed("a value has too many parts")
    found.plain = seen == [1, 2] and found.simple is not None
    return found


def _plugin(payload: bytes, at: int, end: int) -> str:
    name, data_class = "", 0
    for number, wire, a, b in fields(payload, at, end):
        if number == 1 and wire == BYTES:
            for field, kind, c, d in fields(payload, a, b):
                if field == 1 and kind == BYTES:
                    name = payload[c : min(d, c + 64)].decode("utf-8", "backslashreplace")
        elif number == 4 and wire == VARINT:
            data_class = a
    return SCALARS if data_class == _DATA_CLASS_SCALAR else name

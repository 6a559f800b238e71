"""What a field of a command may hold: checks that are made of smaller ones and name everything wrong, with its path."""

from collections.abc import Callable, Mapping

from schemas.errors import Finding
from schemas.lexemes import kind_of, lone_surrogate
from schemas.limits import DOCUMENT_DEPTH_MAX, INT_MAX, LIST_MAX, MAP_MAX, NAME_MAX

Check = Callable[[object, str, list[Finding]], None]


def say(found: list[Finding], path: str, message: str, hint: str = "") -> None:
    found.append(Finding("invalid_command", path, f"{path or 'command'} {message}", hint))


def text(limit: int = NAME_MAX, empty: bool = False) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, str):
            say(found, path, f"must be text, not {kind_of(value)}")
        elif not value and not empty:
            say(found, path, "is empty")
        elif len(value) > limit:
            say(found, path, f"has {len(value)} characters; at most {limit} fit")
        elif lone_surrogate(value):
            say(found, path, "holds half of a surrogate pair, which is no text")

    return check


def integer(low: int = 0, high: int = INT_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            say(found, path, f"must be a whole number, not {kind_of(value)}")
        elif not low <= value <= high:
            say(found, path, f"is {value}; it must be {low} to {high}")

    return check


def either(kind: type, first: Check, second: Check) -> Check:
    """`first` for values of `kind`, `second` for all others."""

    def check(value: object, path: str, found: list[Finding]) -> None:
        (first if isinstance(value, kind) else second)(value, path, found)

    return check


def boolean(value: object, path: str, found: list[Finding]) -> None:
    if not isinstance(value, bool):
        say(found, path, f"must be true or false, not {kind_of(value)}")


def choice(*allowed: str) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, str) or value not in allowed:
            told = f"{value!r:.80}" if isinstance(value, str) else kind_of(value)
            say(found, path, f"is {told}; it must be one of {', '.join(allowed)}")

    return check


def refused_by(refusal: Callable[[object], str | None]) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        reason = refusal(value)
        if reason is not None:
            say(found, path, f"is refused: {reason}")

    return check


def optional(inner: Check) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if value is not None:
            inner(value, path, found)

    return check


def each(inner: Check, limit: int = LIST_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, list | tuple):
            say(found, path, f"must be a list, not {kind_of(value)}")
        elif len(value) > limit:
            say(found, path, f"has {len(value)} elements; at most {limit} fit")
        else:
            for at, item in enumerate(value):
                inner(item, f"{path}[{at}]", found)

    return check


def keyed(key: Check, inner: Check, limit: int = MAP_MAX) -> Check:
    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, Mapping):
            say(found, path, f"must be a map, not {kind_of(value)}")
        elif len(value) > limit:
            say(found, path, f"has {len(value)} entries; at most {limit} fit")
        else:
            for name, item in value.items():
                key(name, f"{path} key", found)
                inner(item, f"{path}.{name}", found)

    return check


def record(required: Mapping[str, Check], extra: Mapping[str, Check] | None = None) -> Check:
    """A map with exactly these fields; those of `extra` may be absent."""
    known = {**required, **(extra or {})}

    def check(value: object, path: str, found: list[Finding]) -> None:
        if not isinstance(value, Mapping):
            say(found, path, f"must be a map, not {kind_of(value)}")
            return
        dot = f"{path}." if path else ""
        for name in required:
            if name not in value:
                say(found, f"{dot}{name}", "is missing")
        for name, item in value.items():
            field = known.get(name) if isinstance(name, str) else None
            if field is None:
                say(found, f"{dot}{name!s:.80}", "is not a field of this command", f"Known fields: {', '.join(known)}.")
            else:
                field(item, f"{dot}{name}", found)

    return check


def plain(value: object, path: str, found: list[Finding], depth: int = 0) -> None:
    """Anything JSON could hold, bounded in depth, width and integer size."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if lone_surrogate(value):
            say(found, path, "holds half of a surrogate pair, which is no text")
    elif isinstance(value, int):
        if not -INT_MAX <= value <= INT_MAX:
            say(found, path, "is a number beyond 64 bits")
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            say(found, path, "is not a finite number")
    elif depth >= DOCUMENT_DEPTH_MAX:
        say(found, path, f"is nested deeper than {DOCUMENT_DEPTH_MAX} levels")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str) or lone_surrogate(name):
                say(found, f"{path} key {name!r:.80}", "must be text")
            else:
                plain(item, f"{path}.{name}", found, depth + 1)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            plain(item, f"{path}[{at}]", found, depth + 1)
    else:
        say(found, path, f"is {kind_of(value)}, which no command may hold")


def plain_map(value: object, path: str, found: list[Finding]) -> None:
    if isinstance(value, Mapping):
        plain(value, path, found)
    else:
        say(found, path, f"must be a map, not {kind_of(value)}")


def payload(value: object, path: str, found: list[Finding]) -> None:
    if not isinstance(value, bytes | str):
        say(found, path, f"must be bytes or text, not {kind_of(value)}")
    elif isinstance(value, str) and lone_surrogate(value):
        say(found, path, "holds half of a surrogate pair, which is no text")

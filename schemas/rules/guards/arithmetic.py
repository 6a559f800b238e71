"""`$(( … ))` of whole numbers, as far as it can be known: + - * / % and brackets."""

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:\$?\{?([A-Za-z_][A-Za-z0-9_]*)\}?|([0-9]{1,12})|([-+*/%()]))")
_TOKENS_MAX = 60
_LARGEST = 10**15


class _Unknown(Exception):
    """Is raised where no value can be told."""


def evaluated(text: str, value_of: Callable[[str], str | None]) -> str | None:
    """value_of: "" for a variable that is unset, which counts as 0; None where it cannot be known."""
    tokens: list[int | str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) > _TOKENS_MAX:
            return None
        name, digits, operator = found.groups()
        if name:
            value = value_of(name)
            if value is None or not re.fullmatch(r"[0-9]{0,12}", value):
                return None
            digits = value or "0"
        if digits and len(digits) > 1 and digits[0] == "0":
            return None  # octal to a shell
        tokens.append(operator or int(digits))
        at = found.end()
    try:
        result, rest = _sum(tokens)
    except _Unknown:
        return None
    return None if rest else str(result)


def _sum(tokens: list[int | str]) -> tuple[int, list[int | str]]:
    result, rest = _product(tokens)
    while rest and rest[0] in ("+", "-"):
        right, after = _product(rest[1:])
        result, rest = (result + right if rest[0] == "+" else result - right), after
    return result, rest


def _product(tokens: list[int | str]) -> tuple[int, list[int | str]]:
    result, rest = _one(tokens)
    while rest and rest[0] in ("*", "/", "%"):
        right, after = _one(rest[1:])
        if (not right and rest[0] != "*") or min(result, right) < 0 or result * right > _LARGEST:
            raise _Unknown
        result = result * right if rest[0] == "*" else result // right if rest[0] == "/" else result % right
        rest = after
    return result, rest


def _one(tokens: list[int | str]) -> tuple[int, list[int | str]]:
    if not tokens:
        raise _Unknown
    first, rest = tokens[0], tokens[1:]
    if isinstance(first, int):
        return first, rest
    if first == "(":
        result, rest = _sum(rest)
        if rest[:1] == [")"]:
            return result, rest[1:]
    raise _Unknown

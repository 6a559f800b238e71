"""Scalars as the user typed them.

`1e-4` read as a binary number and written again is `0.0001`; `0755` read by YAML is 493. Readers of documents therefore
keep the written text and leave its meaning to the field that holds it: a whole-number field turns `2` into 2, a
hyper-parameter keeps `2`.
"""

import re
from collections.abc import Mapping

JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


class Number(str):
    """A number token of a JSON document, as written."""

    __slots__ = ()


class Plain(str):
    """An unquoted YAML scalar, as written: text, number, truth value or date, as its field decides."""

    __slots__ = ()


def is_json_number(text: str) -> bool:
    return JSON_NUMBER.match(text) is not None


def lone_surrogate(text: str) -> bool:
    """Half of a surrogate pair is no character, and no UTF-8 can carry it."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def sayable(text: str) -> str:
    """The same where UTF-8 can carry it. A name of a host's file may be any bytes, and those that are no UTF-8 come as
    half surrogates: they are written as `\\udcXX`."""
    return text.encode("utf-8", "backslashreplace").decode() if lone_surrogate(text) else text


def kind_of(value: object) -> str:
    """What a value is, in the words of documents and not of Python."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Number):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else "a value of another kind"

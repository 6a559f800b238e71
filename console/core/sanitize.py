"""Foreign text on its way to a terminal: printable characters pass, everything that could drive the terminal does not.

A whitelist, because the list of what terminals obey has no end: C0, C1 (0x9b alone starts a sequence), OSC, DCS, APC,
and the characters that reorder what is read (bidi).
"""

import re
from typing import Any

# Lines that the platform itself writes beside a job's output begin with this; no text of a job can hold it.
PLATFORM_MARK = "◈"

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, its payload too
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS SOS PM APC
    r"|\x1b[ -/]+[0-~]"
)
_SGR = re.compile(r"\x1b\[([0-9;:]*)m\Z")
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
# Bold to strike-through without blink (5, 6) and conceal (8), their ends, and the colours.
_SGR_KEPT = frozenset((0, 1, 2, 3, 4, 7, 9, *range(21, 26), 27, *range(29, 50), *range(90, 108)))
RESET = "\x1b[0m"


def sanitize(text: str, colours: bool = False, lines: bool = False) -> str:
    """colours: SGR colours stay, and are switched off at the end. lines: line breaks and tabs stay.

    A complete control sequence vanishes with its payload; a control character left over becomes a picture of itself.
    """
    if text.isprintable() and PLATFORM_MARK not in text:
        return text  # what begins a sequence is not printable
    coloured = False
    parts: list[str] = []
    end = 0
    for found in _SEQUENCE.finditer(text):
        parts.append(_plain(text[end : found.start()], lines))
        end = found.end()
        if colours and (kept := _kept_sgr(found.group())):
            parts.append(kept)
            coloured = True
    parts.append(_plain(text[end:], lines))
    return "".join(parts) + (RESET if coloured else "")


def sanitize_all(value: Any) -> Any:
    """Every text inside an answer, keys too. Recursion is bounded: JSON readers stop at their own depth first."""
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        return {sanitize(str(key)): sanitize_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [sanitize_all(item) for item in value]
    return value


def _plain(text: str, lines: bool) -> str:
    if text.isprintable() and PLATFORM_MARK not in text:
        return text
    return "".join(_shown(character, lines) for character in text)


def _shown(character: str, lines: bool) -> str:
    if character == PLATFORM_MARK:
        return "◇"
    if character.isprintable():
        return character
    if character in "\n\t":
        return character if lines else " "
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if character in _INVISIBLE:
        return ""
    return " " if (character.isspace() and code > 0xA0) or code == 0xA0 else "\ufffd"


def _kept_sgr(sequence: str) -> str:
    found = _SGR.match(sequence)
    if found is None:
        return ""
    fields = found.group(1).replace(":", ";").split(";")[:16]
    numbers = [int(field[:4]) if field else 0 for field in fields]
    kept: list[int] = []
    at = 0
    while at < len(numbers):
        if numbers[at] in (38, 48):
            span = 3 if numbers[at + 1 : at + 2] == [5] else 5
            colour = numbers[at : at + span]
            kept += colour if len(colour) == span and max(colour[1:]) < 256 else []
            at += span
        else:
            kept += [numbers[at]] if numbers[at] in _SGR_KEPT else []
            at += 1
    return f"\x1b[{';'.join(map(str, kept))}m" if kept else ""

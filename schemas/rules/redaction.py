"""What must not be shown: known by the name it stands under, or because its value is known to be secret.

A name decides where a value is somebody else's (a document's env, a config): nobody can list all secrets, but they are
called like secrets. A known value is taken out wherever it stands, also within a longer text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"
# Short values are words and numbers: taking each `1` out of a report would hide everything and protect nothing.
VALUE_MIN = 8

_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key|"
    r"encryption[_-]?key|auth[_-]?key|account[_-]?key|license[_-]?key|credential|authorization|cookie|bearer|dsn|"
    r"webhook|sas[_-]?url|(^|[_.-])(auth|key|pat|pass)$",
    re.IGNORECASE,
)
# `token` is also what an order, a feed and a tokenizer have; those are no secrets.
_HARMLESS_NAME = re.compile(
    r"tokeni[sz]er|(max|num|n)[_-]?.*tokens?$|tokens$|pad_token|eos_token|bos_token", re.IGNORECASE
)
_ASSIGNED = re.compile(r"(-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)=(.*)\Z", re.DOTALL)
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(@)", re.IGNORECASE)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def redact(value: Any, secrets: Sequence[str] = ()) -> Any:
    """A value as JSON has them. Under a name that sounds secret texts and numbers go; elsewhere known secrets,
    passwords in addresses and bearer words. Everything below `env` goes: it is where secrets are handed over."""
    known = tuple(sorted((one for one in secrets if len(one) >= VALUE_MIN), key=len, reverse=True))
    return _redact(value, known, "")


def without_secrets(document: Mapping[str, Any]) -> dict[str, Any]:
    """A task-group document for who may look at it but not act for its owner: what stands under a name that sounds
    secret goes, and its value wherever else it stands; the rest of env and parameters stays."""
    known = tuple(sorted(secret_values(document), key=len, reverse=True))
    shown: dict[str, Any] = _redact(document, known, "", whole_env=False)
    return shown


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    for secret in secrets:
        if len(secret) >= VALUE_MIN and secret in text:
            text = text.replace(secret, REDACTED)
    if "://" in text:
        text = _IN_URL.sub(rf"\1{REDACTED}\2", text)
    return _BEARER.sub(rf"\1 {REDACTED}", text)


def redact_words(words: Sequence[str]) -> list[str]:
    """Of a command line: `NAME=value`, `--name=value` and `--name value` where the name sounds secret."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        assigned = _ASSIGNED.match(word)
        if hide_next and not word.startswith("-"):
            shown.append(REDACTED)
            hide_next = False
        elif assigned is not None and is_secret_name(assigned.group(1)):
            shown.append(f"{assigned.group(1)}={REDACTED}")
            hide_next = False
        else:
            shown.append(redact_text(word))
            hide_next = word.startswith("-") and is_secret_name(word)
    return shown


def secret_values(document: Mapping[str, Any]) -> list[str]:
    """Of a task-group document: what its env and parameters hold under names that sound secret."""
    found: list[str] = []
    for section, field in (("task", "env"), ("training", "hyper_params")):
        holder = (document.get(section) or {}).get(field) or {}
        found += [str(value) for name, value in holder.items() if is_secret_name(str(name))]
    return [value for value in found if len(value) >= VALUE_MIN]


def _redact(value: Any, secrets: tuple[str, ...], name: str, whole_env: bool = True) -> Any:
    if isinstance(value, Mapping):
        inside = "env" if name == "env" and whole_env else ""
        return {str(key): _redact(item, secrets, inside or str(key), whole_env) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(item, secrets, name, whole_env) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if (name == "env" and whole_env) or is_secret_name(name):
        return REDACTED
    return redact_text(value, secrets) if isinstance(value, str) else value

"""The way to another member: one exchange of packets, forth and back."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Answer(NamedTuple):
    """node: who has proved to be there, None where nobody had to."""

    body: bytes
    node: str | None = None


class NoAnswer(Exception):
    """Raised when packets were sent and nothing usable came back: the text says what instead. They may have come."""


class HostRefused(NoAnswer):
    """Raised when nobody listens there: the host itself says so."""


class Carrier(Protocol):
    async def exchange(self, address: str, body: bytes, timeout_s: float) -> Answer:
        """Raises NoAnswer."""
        ...

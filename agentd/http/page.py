"""Pages of what is made as a whole: in one order, continued behind a place in it, whatever came or went meanwhile."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def page_of(
    items: Sequence[Item], after: str, limit: int, place: Callable[[Item], str]
) -> tuple[list[Item], str | None]:
    """`(items, cursor)`; cursor is None at the end. place: text that grows over `items`; after: "" for the
    beginning."""
    left = [item for item in items if place(item) > after] if after else items
    page = list(left[:limit])
    return page, place(page[-1]) if len(left) > limit else None

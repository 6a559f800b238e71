"""Keys of rows kept in order while rows change, at the price of the rows that changed."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

_FEW = 100
Row = TypeVar("Row")


class RowOrder:
    """`keys`: row id -> sort key; equal keys are ordered by id, so that no row jumps without a reason."""

    def __init__(self) -> None:
        self._keys: dict[str, Any] = {}
        self._entries: list[tuple[Any, str]] = []

    def rebuild(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._entries = sorted((key, row) for row, key in keys.items())

    def follow(
        self, rows: Mapping[str, Row], key: Callable[[Row], Hashable | None], changed: Collection[str] | None
    ) -> bool:
        """Brought up to date with `rows`; key: None of a row that does not belong here; changed: None = any may have.
        True if any row came, left or moved."""
        if changed is None:
            self.rebuild({name: place for name, row in rows.items() if (place := key(row)) is not None})
            return True
        return self.update((name, key(row) if (row := rows.get(name)) is not None else None) for name in changed)

    def update(self, changed: Iterable[tuple[str, Hashable | None]]) -> bool:
        """(id, new key or None where the row left). True if any row came, left or moved."""
        moved = [(row, key) for row, key in changed if self._keys.get(row) != key]
        if not moved:
            return False
        if len(moved) > _FEW:
            for row, key in moved:
                self._set(row, key)
            self._entries = sorted((key, row) for row, key in self._keys.items())
            return True
        for row, key in moved:
            if row in self._keys:
                del self._entries[bisect_left(self._entries, (self._keys[row], row))]
            if key is not None:
                insort(self._entries, (key, row))
            self._set(row, key)
        return True

    def _set(self, row: str, key: Any) -> None:
        if key is None:
            self._keys.pop(row, None)
        else:
            self._keys[row] = key

    def __len__(self) -> int:
        return len(self._entries)

    def row(self, at: int) -> str:
        return self._entries[at][1]

    def place(self, row: str) -> int | None:
        key = self._keys.get(row)
        return None if key is None else bisect_left(self._entries, (key, row))

    def rows(self) -> list[str]:
        return [row for _, row in self._entries]

"""The key-value store reducers work on: `(entity, key) -> row`, a row being a map with text keys."""

from collections.abc import Iterator
from typing import Any, Protocol

Row = dict[str, Any]


class StateStore(Protocol):
    """A row handed out belongs to the caller, and a row put belongs to the store: neither side sees the other's later
    changes."""

    def get(self, entity: str, key: str) -> Row | None: ...

    def put(self, entity: str, key: str, row: Row) -> None: ...

    def delete(self, entity: str, key: str) -> None:
        """Deleting what is not there changes nothing and is no error."""
        ...

    def scan(
        self, entity: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> Iterator[tuple[str, Row]]:
        """Rows whose key starts with `prefix` and is greater than `after`, in key order (code points), at most `limit`.
        The rows are those at the time of the call: writes during the iteration do not show."""
        ...

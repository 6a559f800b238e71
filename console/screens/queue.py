"""Who waits, for what, since when, and why; in the order in which the scheduler considers them."""

from collections.abc import Hashable

from textual.app import ComposeResult

from console.core.columns import Layout
from console.core.line import EMPTY, Line, headed, spread
from console.core.queue_list import layout, queue_line, queue_summary, text_widths, waiting_lines
from console.core.row_order import RowOrder
from console.screens.group_rows import GroupRows
from console.store.rows import Group, queue_key


def _place(group: Group) -> Hashable | None:
    return queue_key(group) if group.status == "pending" else None


class QueueScreen(GroupRows):
    scope = "queue"
    title_text = "queue"

    def __init__(self) -> None:
        super().__init__()
        self._queue = RowOrder()  # the filter hides rows, not places
        self._shape: tuple[tuple[int, tuple[int, ...]], Layout] | None = None

    def body(self) -> ComposeResult:
        yield from super().body()
        yield self.in_full()

    def row_in_full(self, cells: int, height: int) -> list[Line]:
        group = self.target()
        return [headed(group.name, group.id, cells), *waiting_lines(group, cells)] if group is not None else []

    def key(self, group: Group) -> Hashable | None:
        return _place(group) if self.matches(group) else None

    def text_widths(self, group: Group) -> dict[str, int]:
        return text_widths(group)

    def follow(self, changed: set[str] | None) -> bool:
        moved = self._queue.follow(self.session.mesh.groups, _place, changed)
        return super().follow(changed) or moved

    def _layout(self, cells: int) -> Layout:
        key = (cells, tuple(self.widths.values()))
        if self._shape is None or self._shape[0] != key:
            self._shape = (key, layout(cells, self.widths))
        return self._shape[1]

    def row(self, row_id: str, cells: int) -> Line:
        group = self.session.mesh.groups.get(row_id)
        if group is None:
            return EMPTY
        known = self._queue.place(row_id)
        place = 0 if known is None else known + 1
        here, marked = row_id == self.here, row_id in self.console.marked
        return queue_line(self._layout(cells), group, place, self.session.now_ms(), here, marked)

    def column_lines(self, cells: int) -> list[Line]:
        return [(("  ", "text"), *self._layout(cells).head())]

    def status_lines(self, cells: int) -> list[Line]:
        used, total = self.session.mesh.cards()
        said = queue_summary(self.session.mesh.in_status("pending"), total - used, total)
        return [spread(said, tuple(self.marks_told()), cells)]

    def empty_text(self) -> str:
        return "nothing waits"

"""Who waits, for what, since when, and why; in the order in which the scheduler considers them."""

from collections.abc import Hashable

from console.actions import Action
from console.core.line import EMPTY, Line
from console.core.queue_list import layout, queue_line, queue_summary
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

    def key(self, group: Group) -> Hashable | None:
        return _place(group) if self.matches(group) else None

    def follow(self, changed: set[str] | None) -> bool:
        moved = self._queue.follow(self.session.mesh.groups, _place, changed)
        return super().follow(changed) or moved

    def row(self, row_id: str, cells: int) -> Line:
        group = self.session.mesh.groups.get(row_id)
        if group is None:
            return EMPTY
        place = self._queue.place(row_id)
        here, marked = row_id == self.here, row_id in self.console.marked
        return queue_line(layout(cells), group, 0 if place is None else place + 1, self.session.now_ms(), here, marked)

    def column_lines(self, cells: int) -> list[Line]:
        return [(("  ", "text"), *layout(cells).head())]

    def status_lines(self, cells: int) -> list[Line]:
        used, total = self.session.mesh.cards()
        return [queue_summary(self.session.mesh.in_status("pending"), total - used, total)]

    def empty_text(self) -> str:
        return "nothing waits"

    def enabled(self, action: Action) -> bool:
        return (self.target() is not None and action.name != "resubmit") or action.name in ("filter", "command", "help")

"""A list whose rows are groups: kept in order at the price of the groups that changed, with marks."""

from collections.abc import Hashable, Iterable

from console.actions import Action
from console.core.group_list import FILTER_FIELDS, filter_fields, search_text
from console.core.row_order import RowOrder
from console.screens.group_actions import GroupActions, takes
from console.screens.list_view import ListScreen
from console.store.rows import Group

_OF_ROW = frozenset(
    ("open", "detail", "logs", "timeline", "curves", "clone", "mark", "copy", "stop", "pause", "resume", "resubmit")
)


class GroupRows(ListScreen, GroupActions):
    """Sub-classes say with `key` which groups are in the list, and where, and with `text_widths` what one needs of the
    columns that are as wide as their widest text."""

    fields = FILTER_FIELDS

    def __init__(self, sort: str = "") -> None:
        super().__init__(sort)
        self.order = RowOrder()
        self._changed: set[str] | None = None  # since the list was put in order; None: any may have
        self.widths: dict[str, int] = {}

    def on_mount(self) -> None:
        self._measure(self.session.mesh.groups)

    def _measure(self, ids: Iterable[str]) -> None:
        """Of all groups, not only of those that the filter shows, and never less again: columns that move cannot be
        read."""
        groups, widths = self.session.mesh.groups, self.widths
        for group_id in ids:
            if (group := groups.get(group_id)) is not None:
                for name, cells in self.text_widths(group).items():
                    if cells > widths.get(name, 0):
                        widths[name] = cells

    def key(self, group: Group) -> Hashable | None:
        """None: not in this list."""
        raise NotImplementedError

    def text_widths(self, group: Group) -> dict[str, int]:
        raise NotImplementedError

    def matches(self, group: Group) -> bool:
        return not self.filter.terms or self.filter.matches(search_text(group), filter_fields(group))

    def take(self, groups: set[str], mesh: bool) -> None:
        self._measure(groups)
        if self._changed is not None:
            self._changed |= groups

    def all_anew(self) -> None:
        self._changed = None
        super().all_anew()

    def row_ids(self) -> list[str]:
        changed, self._changed = self._changed, set()
        if not self.follow(changed):
            return self._ids
        ids = self.order.rows()
        return ids[::-1] if self.turned else ids

    def follow(self, changed: set[str] | None) -> bool:
        """True if any row came, left or moved."""
        return self.order.follow(self.session.mesh.groups, self.key, changed)

    # Actions

    def enabled(self, action: Action) -> bool:
        if action.name not in _OF_ROW:
            return super().enabled(action)
        group = self.target()
        if group is None or action.name not in ("stop", "pause", "resume", "resubmit"):
            return group is not None
        # Asked at each key: by the marks, of which there are few, and not by the rows.
        groups, marks = self.session.mesh.groups, self.console.marked if action.name != "resubmit" else ()
        return (
            any(takes(groups[mark], action.name) for mark in marks if mark in groups)
            if marks
            else takes(group, action.name)
        )

    def target(self) -> Group | None:
        return self.session.mesh.groups.get(self.here) if self.here else None

    def marked(self) -> list[Group]:
        groups = self.session.mesh.groups
        return [groups[row] for row in self._ids if row in self.console.marked and row in groups]

    def targets(self) -> list[Group]:
        return self.marked() or super().targets()

    def done_with_marks(self) -> None:
        self.do_clear_marks()

    def do_mark(self) -> None:
        if self.here:
            self.console.marked ^= {self.here}
            self.move(1)
            self.paint()

    def do_mark_all(self) -> None:
        self.console.marked |= set(self._ids)
        self.paint()

    def do_clear_marks(self) -> None:
        self.console.marked.clear()
        self.paint()

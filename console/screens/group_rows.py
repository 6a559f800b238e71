"""A list whose rows are groups: kept in order at the price of the groups that changed, with marks."""

from collections.abc import Hashable, Iterable

from console.actions import Action
from console.core import line
from console.core.group_list import FILTER_FIELDS, filter_fields, search_text
from console.core.line import Span
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
        if action.name == "back" and self.console.marked:
            return True
        if action.name not in _OF_ROW:
            return super().enabled(action)
        # Asked at each key: by the marks, of which there are few, and not by the rows.
        if action.name in ("stop", "pause", "resume") and (marks := self.marks()):
            return any(takes(self.session.mesh.groups[mark], action.name) for mark in marks)
        group = self.target()
        return group is not None and takes(group, action.name)

    def target(self) -> Group | None:
        return self.session.mesh.groups.get(self.here) if self.here else None

    def marks(self) -> set[str]:
        """Of groups that are still there."""
        groups = self.session.mesh.groups
        return {mark for mark in self.console.marked if mark in groups}

    def marks_told(self) -> list[Span]:
        """For the line above: what is marked counts on every list, whether this one shows it or not."""
        many = len(self.marks())
        return [(f"{many} marked ", line.KEY)] if many else []

    def marked(self) -> list[Group]:
        """In the order of the list; those that it does not show come last."""
        groups, marks = self.session.mesh.groups, self.marks()
        shown = [row for row in self._ids if row in marks] if marks else []
        return [groups[row] for row in (*shown, *sorted(marks.difference(shown)))]

    def targets(self) -> list[Group]:
        return self.marked() or super().targets()

    def done_with_marks(self) -> None:
        self.do_clear_marks()

    def do_mark(self) -> None:
        if self.here:
            self.console.marked ^= {self.here}
            self.move(1)
            self._marked_anew()

    def do_mark_all(self) -> None:
        self.console.marked |= set(self._ids)
        self._marked_anew()

    def do_clear_marks(self) -> None:
        self.console.marked.clear()
        self._marked_anew()

    def _marked_anew(self) -> None:
        self.paint()
        self.refoot()

    def do_back(self) -> None:
        if not self.filter.terms and self.console.marked:
            self.do_clear_marks()
        else:
            super().do_back()

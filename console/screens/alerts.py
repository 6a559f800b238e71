"""What needs a hand, worst first, each with what to do."""

import re

from textual.app import ComposeResult

from console.actions import Action
from console.core import line
from console.core.alert_lines import alert_head, alert_in_full, alert_line, alert_summary
from console.core.attention import Attention, attention
from console.core.line import Line
from console.screens.group_actions import GroupActions, takes
from console.screens.list_view import ListScreen
from console.store.rows import Group

_OF_GROUP = frozenset(("detail", "logs", "timeline", "curves"))


class AlertsScreen(ListScreen, GroupActions):
    scope = "alerts"
    title_text = "alerts"

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, Attention] = {}

    def body(self) -> ComposeResult:
        yield from super().body()
        yield self.in_full()

    def row_in_full(self, cells: int, height: int) -> list[Line]:
        item = self._found.get(self.here or "")
        return alert_in_full(item, cells, height) if item is not None else []

    def row_ids(self) -> list[str]:
        now = self.session.now_ms()
        found = attention(self.session.mesh, self.session.consensus, now, self.session.alerts or ())
        # What a text counts goes on counting: the cursor stays with the alert.
        self._found = {f"{item.target}{re.sub('[0-9]+', '0', item.text[:200])}": item for item in found}
        return [
            key
            for key, item in self._found.items()
            if not self.filter.terms or self.filter.matches(f"{item.subject} {item.text}".lower(), {})
        ]

    def row(self, row_id: str, cells: int) -> Line:
        item = self._found.get(row_id)
        return alert_line(item, row_id == self.here, self.session.now_ms(), cells) if item is not None else line.EMPTY

    def column_lines(self, cells: int) -> list[Line]:
        return [alert_head(cells)]

    def status_lines(self, cells: int) -> list[Line]:
        said = alert_summary(list(self._found.values()))
        return [((" as last heard:", line.WARN), *said)] if self.session.trouble or self.session.silent_s else [said]

    def empty_text(self) -> str:
        return "nothing needs a hand"

    def target(self) -> Group | None:
        """None where the alert is not about a group that is known."""
        item = self._found.get(self.here or "")
        return self.session.mesh.groups.get(item.target[1]) if item is not None and item.target[0] == "group" else None

    def enabled(self, action: Action) -> bool:
        group = self.target()
        if action.name in _OF_GROUP:
            return group is not None
        if action.name in ("stop", "resubmit"):
            return group is not None and takes(group, action.name)
        return super().enabled(action)

    def do_open(self) -> None:
        item = self._found.get(self.here or "")
        if item is None:
            return
        kind, target = item.target
        if kind == "group":
            from console.screens.detail import DetailScreen

            self.console.show_of_group(DetailScreen(target))
        elif kind == "node":
            self.console.show_view("nodes")
            self.console.filter_shown_view(f"node={target}")
        else:
            self.console.show_view("mesh")

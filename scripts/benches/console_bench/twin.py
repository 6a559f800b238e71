"""The console's list as a Textual `DataTable`: same feed, rows, columns and texts, one `update_cell` a changed cell.

`python -m scripts.benches.console_bench.twin ADDRESS TOKEN`
"""

import asyncio
import os
import sys
import time
from typing import ClassVar

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
os.environ.setdefault("TEXTUAL_FPS", "30")

from textual.app import App, ComposeResult
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Label

from console.core.group_list import layout, order_key, row_cells
from console.endpoints import Target
from console.store.session import Session
from scripts.benches.console_bench.terminal import COLUMNS

AGE_S = 2.0


class Twin(App[None]):
    CSS = "DataTable { height: 23; } Label { height: 1; }"
    BINDINGS: ClassVar = [("G", "end_of_list", "end"), ("ctrl+c", "quit", "quit")]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._cells: dict[str, dict[str, str]] = {}
        self._layout = layout(COLUMNS, with_progress=True, widths={})

    def compose(self) -> ComposeResult:
        yield Label("groups")
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Label("G end")

    @property
    def table(self) -> "DataTable[str]":
        return self.query_one(DataTable)

    def on_mount(self) -> None:
        for column, wide in self._layout.columns:
            self.table.add_column(column.head or column.name, key=column.name, width=wide)
        self.session.news = self.take
        self._feeds = asyncio.create_task(self.session.run())
        self.set_interval(AGE_S, self.age)

    def texts(self, group_id: str) -> dict[str, str]:
        mesh = self.session.mesh
        cells = row_cells(mesh.groups[group_id], self.session.now_ms(), mesh.progress.get(group_id))
        return {column.name: cells[column.name][0] for column, _ in self._layout.columns}

    def take(self) -> None:
        mesh = self.session.mesh
        if not mesh.loaded:
            return
        changed, _ = mesh.take_dirty()
        if not self._cells:
            now = self.session.now_ms()
            ordered = sorted(mesh.groups.values(), key=lambda group: (order_key("status", group, None, now), group.id))
            for group in ordered:
                self._add(group.id)
            return
        for group_id in changed:
            if group_id not in self._cells:
                self._add(group_id)
            else:
                self._update(group_id)

    def _add(self, group_id: str) -> None:
        texts = self._cells[group_id] = self.texts(group_id)
        self.table.add_row(*texts.values(), key=group_id)

    def _update(self, group_id: str) -> None:
        before, texts = self._cells[group_id], self.texts(group_id)
        for name, text in texts.items():
            if before[name] != text:
                self.table.update_cell(group_id, name, text)
        self._cells[group_id] = texts

    def age(self) -> None:
        """Only rows in sight: ages of the others are written when they come into sight."""
        table = self.table
        if not self._cells:
            return
        top = int(table.scroll_offset.y)
        for at in range(top, min(top + table.size.height - 1, table.row_count)):
            self._update(str(table.coordinate_to_cell_key(Coordinate(at, 0)).row_key.value))

    def action_end_of_list(self) -> None:
        self.table.action_scroll_bottom()


if __name__ == "__main__":
    target = Target((sys.argv[1],), sys.argv[2])
    Twin(Session(target, lambda: time.time_ns() // 1_000_000)).run()

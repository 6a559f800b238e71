"""The voters of the mesh, their log, and the agent one is attached to."""

import time

from textual.app import ComposeResult

from console.core.line import Line, shortened
from console.core.mesh_lines import mesh_facts, mesh_summary, voter_head, voter_ids, voter_line
from console.screens.list_view import ListScreen
from console.widgets.line_view import FixedLines, LineView


class MeshScreen(ListScreen):
    scope = "mesh"
    feed = "status"
    title_text = "mesh"

    def body(self) -> ComposeResult:
        yield from super().body()
        yield LineView(FixedLines(self._facts), id="facts", base="text")

    def row_ids(self) -> list[str]:
        status = self.session.consensus
        ids = voter_ids(status)
        if not self.filter.terms:
            return ids
        names = {str(voter.get("raft_id")): str(voter.get("node")) for voter in status.get("voters") or []}
        return [raft_id for raft_id in ids if self.filter.matches(names.get(raft_id, "").lower(), {})]

    def row(self, row_id: str, cells: int) -> Line:
        return voter_line(self.session.consensus, row_id, row_id == self.here, cells)

    def column_lines(self, cells: int) -> list[Line]:
        return [voter_head(self.session.consensus, cells)]

    def status_lines(self, cells: int) -> list[Line]:
        return [mesh_summary(self.session.consensus)]

    def is_known(self) -> bool:
        return bool(self.session.consensus)

    def _facts(self, cells: int) -> list[Line]:
        if not self.is_attached or not self.session.consensus:
            return []
        read_at, height = self.session.status_at, self.query_one("#facts", LineView).size.height
        age_s = time.monotonic() - read_at if read_at is not None else None
        return shortened(mesh_facts(self.session.consensus, age_s, cells), height, cells)

    def paint(self) -> None:
        self.main.styles.height = self.count() + 1
        super().paint()
        self.query_one("#facts", LineView).repaint()

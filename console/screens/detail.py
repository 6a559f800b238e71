"""One group in full, as one page to scroll."""

from textual.app import ComposeResult

from console.core import line
from console.core.detail_lines import detail_lines
from console.core.line import Line
from console.screens.group_view import GroupScreen
from console.widgets.line_view import FixedLines, LineView


class DetailScreen(GroupScreen):
    scope = "detail"
    title_text = "detail"

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._lines), id="main")

    def on_mount(self) -> None:
        self.session.watch_curves(self.group_id)

    def _lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        group = self.target()
        if group is None:
            known = self.known
            gone = known is not None and known.loaded
            return [line.EMPTY, ((" this group is gone" if gone else " loading …", line.DIM),)]
        return detail_lines(
            group,
            self.known,
            self.session.curves,
            self.session.mesh.ranks.get(self.group_id, {}),
            self.session.mesh.progress.get(self.group_id),
            self.session.now_ms(),
            cells,
        )

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        super().flush(groups, mesh)
        self.main.repaint()
        self.refoot()  # it says how many lines there are now

    def position(self) -> str:
        return self.lines_below()

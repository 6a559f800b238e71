"""Updates of the screen that send the changed cells. Textual 8.2.8 sends a widget's line from its left edge to them."""

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate


class ExactUpdate(ChopsUpdate):
    def __init__(self, update: ChopsUpdate) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        sequences: list[str] = []
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                left, right = max(x, first), min(end, last)
                if strip is None or left >= right:
                    continue
                part = strip if (left, right) == (x, end) else strip.crop(left - x, right - x)
                sequences += (Control.move_to(left, y).segment.text, part.render(console))
        return "".join(sequences)

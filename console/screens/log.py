"""The log of a group: all ranks or one, followed until someone scrolls, searched, attempts apart."""

import asyncio

from textual import events
from textual.app import ComposeResult

from console.actions import Action
from console.core import line
from console.core.format import with_hint
from console.core.line import Line, spread
from console.core.log_lines import log_line, prefix_cells
from console.core.log_ring import LogLine, LogRing, ShownLines, safe_text
from console.core.sanitize import sanitize
from console.screens.group_actions import culprit
from console.screens.group_view import GroupScreen
from console.screens.list_view import EMPTY_LINES, empty_line
from console.widgets.line_view import FixedLines, LineView
from console.widgets.prompt import Prompt

TAIL_LINES = 2000  # of each rank, at the beginning
BEGIN_SLACK = 4096  # bytes that the first lines of a log may have before them where they are written together
ARRIVED_MOST = 5000
BATCH = 200  # lines after which keys get their turn


class LogScreen(GroupScreen):
    scope = "log"
    title_text = "log"
    tick_s = 1 / 8

    def __init__(self, group_id: str, rank: int | None = None) -> None:
        """rank: the one to begin with, None: all."""
        super().__init__(group_id)
        self.rank = rank
        self.attempt: int | None = None
        self._following = True
        self._over = False  # nothing more can come, so nothing is paused
        self._unseen = 0
        self._words = ""
        self._only = False
        self._wrapping = False
        self._with_time = True
        self._state = self._state_in_full = "opening the log …"
        self._match: int | None = None
        self._ring = LogRing()
        self._arrived: list[LogLine] = []
        self._shown = ShownLines(self._ring)
        self._reader: asyncio.Task[None] | None = None
        self._begun: dict[tuple[int, int], int] = {}  # lines that came of an attempt's rank whose log began earlier
        self._older = False

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._status), id="status", base="bar")
        yield LineView(self, id="main")

    def on_mount(self) -> None:
        self._open()

    def on_unmount(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    # Reading

    def _open(self) -> None:
        """From the beginning of what is asked for: another rank or attempt is another log."""
        if self._reader is not None:
            self._reader.cancel()
        self._ring, self._arrived = LogRing(), []
        self._match, self._unseen, self._following, self._over = None, 0, True, False
        self._begun, self._older = {}, False
        self._state = self._state_in_full = "opening the log …"
        self._reshow()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        from console.client import NoNodeAnswers, Refused
        from console.log_stream import LogStream

        await self.session.connected.wait()
        assert self.session.client is not None
        stream = LogStream(self.session.client, self.group_id, self.rank, self.attempt, TAIL_LINES, True)
        attempt: int | None = None
        while True:
            try:
                count = 0
                async for item in stream.items():
                    attempt = self._take(item, attempt)
                    count += 1
                    if count % BATCH == 0:
                        await asyncio.sleep(0)
                return
            except Refused as refused:
                self._say(refused.problem.message, refused.problem.hint)
                return
            except NoNodeAnswers as error:
                self._say(f"no node answers ({', '.join(error.tried)}); the log goes on when one does")
                await asyncio.sleep(1.0)

    def _take(self, item: dict[str, object], attempt: int | None) -> int | None:
        """One object of the stream into the ring; the attempt it was of."""
        said = item.get("attempt")
        rank = item.get("rank")
        number = rank if isinstance(rank, int) else -1
        of = said if isinstance(said, int) else attempt or 0
        if "text" in item:
            if attempt is not None and of != attempt:
                self._add(LogLine(-1, of, "", "note", f"attempt {of}"))
            self._note_begin((of, number), item)
            at, stream = sanitize(str(item.get("at") or "")), sanitize(str(item.get("stream") or "out"))
            self._add(LogLine(number, of, at, stream, safe_text(str(item["text"]))))
            self._say("following")
            return of
        note = _note(item)
        if note:
            self._add(LogLine(-1, of, "", "note", note))
        if item.get("end"):
            self._over = True
            self._say(f"the group is {sanitize(str(item.get('status')))}; this is all")
        self.session.news()
        return attempt

    def _note_begin(self, of: tuple[int, int], item: dict[str, object]) -> None:
        """What is asked for is the end of each log; where that is not all of it, it is said."""
        if of not in self._begun:
            offset = item.get("offset")
            before = isinstance(offset, int) and offset > len(str(item["text"])) + BEGIN_SLACK
            self._begun[of] = 0 if before else -(10**12)
        self._begun[of] += 1
        self._older |= self._begun[of] >= TAIL_LINES

    def _add(self, item: LogLine) -> None:
        self._arrived.append(item)
        if item.stream == "note" or len(self._arrived) > ARRIVED_MOST:
            self._settle()

    def _settle(self) -> None:
        """Into the ring, by time: lines of several ranks come in pieces of one rank each."""
        notes = [item for item in self._arrived if item.stream == "note"]
        for item in sorted((item for item in self._arrived if item.stream != "note"), key=lambda item: item.at):
            self._ring.add(item)
        for item in notes:
            self._ring.add(item)
        self._arrived = []

    def _say(self, state: str, hint: str = "") -> None:
        """hint: what to do, where there is room to say it."""
        self._state, self._state_in_full = sanitize(state), sanitize(with_hint(state, hint))
        self.session.news()

    # Showing

    def count(self) -> int:
        return self._shown.count() or EMPTY_LINES

    def line(self, at: int, cells: int) -> Line:
        place = self._shown.at(at)
        if place is None:
            return line.EMPTY if self._shown.count() else empty_line(self._empty(), at, cells)
        number, part = place
        return log_line(
            self._ring[number],
            part,
            cells,
            self._wrapping,
            with_rank=self.rank is None,
            with_time=self._with_time,
            words=self._words,
            here=number == self._match,
        )

    def _empty(self) -> str:
        if self._only and self._ring.end > self._ring.first:
            return f"no line holds {self._words!r}; | shows all again"
        group = self.target()
        if group is not None and not group.attempt:
            return f"nothing has run yet: {group.why or group.status}"
        return self._state_in_full if self._state != "following" else "no lines yet"

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        super().flush(groups, mesh)
        before = self._shown.count()
        self._settle()
        gone = self._shown.catch_up()
        more = self._shown.count() - before + gone
        view = self.main
        with self.app.batch_update():
            if self._following:
                view.scroll_to_line(self._shown.count())
            elif gone:
                view.scroll_to_line(view.scroll_offset.y - gone)
            if not self._following:
                self._unseen += max(more, 0)
            view.repaint()
            self._paint_bars()

    def _paint_bars(self) -> None:
        self.query_one("#status", LineView).repaint()
        self.refoot()

    def _reshow(self) -> None:
        """Filter or breaking of lines changed: the line on top stays on top."""
        view = self.main if self.ready else None
        top = self._shown.at(view.scroll_offset.y) if view is not None else None
        cells = (
            view.size.width - prefix_cells(self.rank is None, self._with_time)
            if view is not None and self._wrapping
            else 0
        )
        self._shown = ShownLines(self._ring, self._words if self._only else "", max(cells, 0))
        self._shown.catch_up()
        if view is None:
            return
        if self._following:
            view.scroll_to_line(self._shown.count())
        elif top is not None:
            view.scroll_to_line(self._shown.row_of(top[0]) or 0)
        view.forget()
        view.repaint()

    def on_resize(self, event: events.Resize) -> None:
        if self._wrapping:
            self.call_after_refresh(self._reshow)

    def _status(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        group = self.target()
        which = "all ranks" if self.rank is None else f"rank {self.rank}"
        left: list[tuple[str, str]] = [(" ", line.TEXT), (which, line.STRONG)]
        if group is not None and self.rank is not None and self.rank == culprit(group):
            left.append((", which failed first", line.BAD))
        if self.attempt is not None:
            left.append((f"  attempt {self.attempt}", line.TEXT))
        elif group is not None and group.attempt:
            left.append((f"  attempt {group.attempt}", line.DIM))
        left.append((f"  {self._shown.count():,} lines", line.DIM))
        if self._ring.first or self._older:
            many = f"{self._ring.first:,} and more" if self._ring.first and self._older else f"{self._ring.first:,}"
            left.append((f"  {many if self._ring.first else 'the'} older ones are in `heteroflow logs`", line.WARN))
        right: list[tuple[str, str]] = []
        if self._words:
            right.append((f"{'|' if self._only else '/'}{self._words}  ", line.KEY))
        if self._following or self._over:
            right.append((f"{self._state} ", line.GOOD if self._state == "following" else line.DIM))
        else:
            right.append((f"paused, +{self._unseen:,} new  f follows ", line.WARN))
        return [spread(tuple(left), tuple(right), cells)]

    # Actions

    def enabled(self, action: Action) -> bool:
        group = self.target()
        if action.name in ("next_match", "only_matches"):
            return bool(self._words)
        if action.name == "previous_attempt":
            return self.attempt is not None or (group is not None and group.attempt > 1)
        if action.name == "all_ranks":
            return self.rank is not None
        if action.name == "next_rank":
            return self._ranks() > 1
        if action.name == "follow":
            return not self._following and not self._over
        return super().enabled(action)

    def move(self, lines: int) -> None:
        super().move(lines)
        fits = self._shown.count() <= self.main.size.height
        self._following = self.main.at_end and (lines > 0 or fits)
        if self._following:
            self._unseen = 0
        self._paint_bars()

    def do_follow(self) -> None:
        self._following = not self._following
        self._unseen = 0
        self.flush(set(), False)

    def do_search(self) -> None:
        self.query_one(Prompt).ask("/", self._words, self._searched)

    def _searched(self, text: str | None) -> None:
        if text is None:
            return
        self._words = text
        if not text:
            self._only, self._match = False, None
            self._reshow()
            return
        if self._only:
            self._reshow()
        self._go_to(self._ring.find(text, self._top_number() - 1), f"no line holds {text!r}")

    def _top_number(self) -> int:
        if self._match is not None:
            return self._match
        place = self._shown.at(self.main.scroll_offset.y)
        return place[0] if place is not None else self._ring.first

    def _go_to(self, number: int | None, otherwise: str) -> None:
        if number is None:
            self.flash(otherwise, line.WARN)
            return
        row = self._shown.row_of(number)
        if row is None:
            return
        self._match, self._following = number, False
        self.main.scroll_to_line(row - self.main.size.height // 3)
        self.main.repaint()
        self._paint_bars()

    def do_next_match(self) -> None:
        if self._words:
            self._go_to(self._ring.find(self._words, self._top_number()), f"no line holds {self._words!r}")

    def do_previous_match(self) -> None:
        if self._words:
            self._go_to(self._ring.find(self._words, self._top_number(), back=True), f"no line holds {self._words!r}")

    def do_next_error(self) -> None:
        self._only = False
        if not self._shown.direct and not self._wrapping:
            self._reshow()
        self._go_to(self._ring.find_error(self._top_number()), "no line looks like an error")

    def do_only_matches(self) -> None:
        if not self._words:
            self.flash("search first: / and the words", line.WARN)
            return
        self._only = not self._only
        self._reshow()
        self._paint_bars()

    def do_wrap(self) -> None:
        self._wrapping = not self._wrapping
        self._reshow()

    def do_times(self) -> None:
        self._with_time = not self._with_time
        self._reshow()

    def _ranks(self) -> int:
        group = self.target()
        known = self.known
        tasks = len(known.ranks(group.attempt)) if known is not None and group is not None else 0
        return tasks or (group.n_nodes or 0 if group is not None else 0)

    def _turn_rank(self, step: int) -> None:
        ranks = self._ranks()
        if ranks:
            self.rank = (0 if step > 0 else ranks - 1) if self.rank is None else (self.rank + step) % ranks
            self._open()

    def do_next_rank(self) -> None:
        self._turn_rank(1)

    def do_previous_rank(self) -> None:
        self._turn_rank(-1)

    def do_all_ranks(self) -> None:
        if self.rank is not None:
            self.rank = None
            self._open()

    def do_previous_attempt(self) -> None:
        group = self.target()
        newest = group.attempt if group is not None else 0
        if newest < 2 and self.attempt is None:
            self.flash("there is no earlier attempt", line.WARN)
            return
        now = self.attempt or newest
        self.attempt = now - 1 if now > 1 else None
        self._open()

    def do_back(self) -> None:
        if self._words:
            self._searched("")
        else:
            super().do_back()


def _note(item: dict[str, object]) -> str:
    who = f"rank {item['rank']}: " if "rank" in item else ""
    if "problem" in item:
        problem = item["problem"]
        known = problem if isinstance(problem, dict) else {"message": problem}
        return who + sanitize(with_hint(str(known.get("message") or ""), str(known.get("hint") or "")))
    if "dropped" in item:
        return f"{who}{item['dropped']} bytes of the log are gone ({sanitize(str(item.get('why', '')))})"
    if "moved" in item:
        return f"{sanitize(str(item['moved']))} went away; another node goes on without a gap"
    if item.get("missing"):
        return f"{who}the log files are gone from the node"
    return ""

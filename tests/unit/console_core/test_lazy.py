"""What is read late, kept in order bit by bit and sent cell by cell shows the same as everything done at once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.attention import attention
from console.core.group_list import Progress, layout, order_key, row_line
from console.core.line import Line, between, changed_cells, line_width, plain
from console.core.row_order import RowOrder
from console.store.mesh_store import MeshStore
from console.store.rows import Group, group_of_row
from tests.snapshots.canned_mesh import NOW_MS, gid, group_row
from tests.unit.console_core.test_stores import snapshot

CELLS, HEIGHT = 120, 6
NUMBERS = st.integers(1, 9)
STATUSES = st.sampled_from(["pending", "starting", "running", "stopping", "recovering", "failed", "completed"])


@st.composite
def rows(draw: st.DrawFn, number: int) -> dict[str, Any]:
    return group_row(
        number,
        draw(st.sampled_from(["a", "b\x1b[2Jb", "宽", ""])),
        draw(STATUSES),
        draw(st.integers(1, 3)),
        8,
        priority=draw(st.integers(0, 2)),
        nodes=draw(st.sampled_from([[], ["gpu-1"], ["gpu-1", "gpu-2"]])),
        pending_reason={"code": "no_fit", "text": draw(st.sampled_from(["x", "y\r", "busy " * 9])), "details": {}},
        failure={"text": "boom", "rank": draw(st.integers(0, 2))},
        started_ms=draw(st.none() | st.integers(NOW_MS - 10**7, NOW_MS)),
        ended_ms=draw(st.none() | st.integers(NOW_MS - 10**7, NOW_MS)),
    )


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """A row by number, None in its place where it goes; "tick"; a list of numbers: a new snapshot of those."""
    found: list[Any] = []
    for what in draw(st.lists(st.sampled_from(["row", "row", "row", "gone", "tick", "snapshot"]), max_size=40)):
        if what == "tick":
            found.append("tick")
        elif what == "snapshot":
            found.append([("group", gid(n), draw(rows(n))) for n in draw(st.lists(NUMBERS, unique=True))])
        else:
            number = draw(NUMBERS)
            found.append(("group", gid(number), None if what == "gone" else draw(rows(number))))
    return [*found, "tick"]


class Screen:
    """A list as the console keeps it: in order since the last tick at the price of what changed since."""

    def __init__(self) -> None:
        self.store, self._order, self._began = MeshStore(), RowOrder(), False

    def take(self, step: Any) -> None:
        self.store.apply(snapshot(*step) if isinstance(step, list) else {"changes": [list(step)]})

    def tick(self, filtered: bool) -> list[Line]:
        changed, _ = self.store.take_dirty()
        self._order.follow(self.store.groups, lambda group: key(group, filtered), changed if self._began else None)
        self._began = True
        return [line_of(self.store.groups[row]) for row in self._order.rows()[:HEIGHT]]


def key(group: Group, filtered: bool) -> Any:
    return None if filtered and "gpu-1" not in group.nodes else order_key("status", group, None, NOW_MS)


def line_of(group: Group) -> Line:
    return row_line(layout(CELLS, True, {}), group, NOW_MS, False, False, False, Progress(1, 0.5, NOW_MS))


@settings(deadline=None)
@given(steps(), st.booleans())
def test_any_changes_and_ticks_show_what_decoding_at_once_shows(all_steps: list[Any], filtered: bool) -> None:
    screen, groups = Screen(), dict[str, Group]()
    for step in all_steps:
        if step != "tick":
            screen.take(step)
            if isinstance(step, list):
                named = {name for _, name, _ in step}
                groups = {name: group for name, group in groups.items() if group.terminal or name in named}
            for _, name, row in step if isinstance(step, list) else [step]:
                if row is None:
                    groups.pop(name, None)
                else:
                    groups[name] = group_of_row(row)
            continue
        shown = screen.tick(filtered)
        wanted = sorted((k, group.id) for group in groups.values() if (k := key(group, filtered)) is not None)
        assert shown == [line_of(groups[name]) for _, name in wanted[:HEIGHT]]
        counted: dict[str, int] = {}
        for group in groups.values():
            counted[group.status] = counted.get(group.status, 0) + 1
        assert {status: count for status, count in screen.store.counts().items() if count} == counted
        assert [group.id for group in screen.store.queue()] == sorted(
            (group.id for group in groups.values() if group.status == "pending"),
            key=lambda name: (-groups[name].priority, groups[name].submit_index, name),
        )
        pressing = {group.id for group in groups.values() if group.status == "recovering"}
        assert pressing <= {item.target[1] for item in attention(screen.store, {}, NOW_MS)}


def test_of_a_row_that_changed_often_between_two_ticks_only_the_last_state_is_read(monkeypatch) -> None:
    read: list[str] = []

    def reading(row: dict[str, Any]) -> Group:
        read.append(row["name"])
        return group_of_row(row)

    monkeypatch.setattr("console.store.mesh_store.group_of_row", reading)
    screen = Screen()
    screen.take([("group", gid(1), group_row(1, "first", "pending", 1, 8))])
    screen.tick(False)
    for at in range(50):
        screen.take(("group", gid(1), group_row(1, f"state {at}", "pending", 1, 8)))
    assert plain(screen.tick(False)[0]).split("  ")[1].strip() == "state 49"
    assert read == ["first", "state 49"]


SPANS = st.lists(
    st.tuples(st.text(st.sampled_from("ab…宽é "), max_size=6), st.sampled_from(["text", "dim"])), max_size=6
)


def painted(line: Line, cells: int) -> list[tuple[str, str]]:
    """(character, tone) of each cell; the second half of a wide character is empty, half a one is a space."""
    found: list[tuple[str, str]] = []
    for text, tone in line:
        for item in text:
            found += [(item, tone)] + [("", tone)] * (line_width(((item, tone),)) - 1)
    if found[cells : cells + 1] and not found[cells][0]:
        found[cells - 1] = (" ", found[cells - 1][1])
    return (found + [(" ", "text")] * cells)[:cells]


@given(SPANS, SPANS, st.integers(0, 40))
def test_sending_the_changed_cells_makes_the_new_line(before: list[Any], after: list[Any], cells: int) -> None:
    old, new = painted(tuple(before), cells), painted(tuple(after), cells)
    first, last = changed_cells(tuple(before), tuple(after), cells)
    assert 0 <= first <= last <= cells
    sent = between(tuple(after), first, last)
    assert painted(sent, last - first) == new[first:last] and line_width(sent) == last - first
    assert old[:first] + new[first:last] + old[last:] == new
    for edge in (first, last):
        assert edge == cells or "" not in (old[edge][0], new[edge][0]), "half a wide character would be sent"


def test_a_number_that_counts_on_is_all_that_is_sent() -> None:
    before: Line = (("run-1   ", "text"), ("  ", "text"), ("step 1,231 of 9", "dim"))
    assert changed_cells(before, (*before[:2], ("step 1,234 of 9", "dim")), 80) == (19, 20)
    assert changed_cells(before, (*before[:2], ("step 1,231 of 9", "bad")), 80) == (10, 25)

"""Hosts: their cards, what runs on them, and those that were lost; as a list or as a map."""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult

from console.actions import Action
from console.cli.request import new_request_id
from console.core import line, node_list
from console.core.columns import Layout
from console.core.line import Line
from console.core.marks import node_mark
from console.core.node_list import (
    card_states,
    layout,
    map_cell,
    map_cell_width,
    node_in_full,
    node_line,
    node_summary,
    text_widths,
)
from console.screens.list_view import ListScreen
from console.store.rows import Node

_ORDERS: dict[str, Callable[[Node, int], Any]] = {
    "state": lambda node, free: (node.state == "ready", node.service is None, node.id),
    "node": lambda node, free: node.id,
    "free": lambda node, free: (-free, node.id),
    "type": lambda node, free: (node.cards[0][1] if node.cards else "", node.id),
}


class NodesScreen(ListScreen):
    scope = "nodes"
    title_text = "nodes"
    fields = node_list.FILTER_FIELDS

    def __init__(self) -> None:
        super().__init__("state")
        self._map = False
        self._stale = True
        self._shape: tuple[object, Layout] | None = None
        self._most_cards = 1
        self._widths: dict[str, int] = {}

    def body(self) -> ComposeResult:
        yield from super().body()
        yield self.in_full()

    def on_screen_resume(self) -> None:
        self.session.look_at_cards(True)
        self.session.look_at_nodes(True)

    def on_screen_suspend(self) -> None:
        self.session.look_at_cards(False)
        self.session.look_at_nodes(False)

    def orders(self) -> list[str]:
        return list(_ORDERS)

    def take(self, groups: set[str], mesh: bool) -> None:
        # Names of groups count only where the filter looks for them.
        self._stale |= mesh or (bool(groups) and bool(self.filter.terms))

    def all_anew(self) -> None:
        self._stale = True
        super().all_anew()

    def row_ids(self) -> list[str]:
        if not self._stale:
            return self._ids
        self._stale = False
        known = self.session.mesh.nodes.values()
        self._most_cards, self._widths = max((len(node.cards) for node in known), default=1), text_widths(known)
        nodes = [node for node in known if self._fits(node)]
        order = _ORDERS[self.sort]
        nodes.sort(key=lambda node: order(node, self._free(node)), reverse=self.turned)
        return [node.id for node in nodes]

    def _free(self, node: Node) -> int:
        return card_states(node, self.session.mesh.holds_of(node.id)).count("free")

    def _fits(self, node: Node) -> bool:
        well = node.state == "ready" and node.service is None
        if self.problems_only and well and node.id not in self.session.mesh.gossip.differences:
            return False
        if not self.filter.terms:
            return True
        groups = self._groups_on(node)
        state = node_mark(node.state, node.service).word
        text = " ".join((node.id, state, node.reason, node.api_addr, groups)).lower()
        return self.filter.matches(
            text,
            {
                "state": lambda: state,
                "node": lambda: node.id,
                "type": lambda: " ".join(kind for _, kind in node.cards),
                "group": lambda: groups,
                "runtime": lambda: node.runtime,
                "version": lambda: node.version,
                "gossip": lambda: self.session.mesh.gossip.states.get(node.id, ""),
                "free": lambda: self._free(node),
            },
        )

    def _groups_on(self, node: Node) -> str:
        names = self._names()
        return " ".join(names.get(hold.group_id, hold.group_id) for hold in self.session.mesh.holds_of(node.id))

    def _names(self) -> dict[str, str]:
        groups = self.session.mesh.groups
        return {
            hold.group_id: groups[hold.group_id].name
            for hold in self.session.mesh.holds.values()
            if hold.group_id in groups
        }

    # The map: several nodes a line

    def _across(self, cells: int) -> int:
        return max(cells // map_cell_width(list(self.session.mesh.nodes.values())), 1)

    def count(self) -> int:
        if not self._map or not self._ids:
            return super().count()
        return -(-len(self._ids) // self._across(self.main.size.width))

    def line(self, at: int, cells: int) -> Line:
        if not self._map or not self._ids:
            return super().line(at, cells)
        mesh = self.session.mesh
        across, nodes = self._across(cells), list(mesh.nodes.values())
        wide = map_cell_width(nodes)
        names_wide = min(max((len(node.id) for node in nodes), default=6), 20)
        spans: list[tuple[str, str]] = []
        for row_id in self._ids[at * across : (at + 1) * across]:
            if (node := mesh.nodes.get(row_id)) is not None:
                spans += map_cell(node, mesh.holds_of(row_id), mesh.utils, names_wide, wide, row_id == self.here)
        return tuple(spans)

    def _layout(self, cells: int) -> Layout:
        shape = (cells, self._most_cards, self.session.mesh.gossip.troubled)
        key = (shape, tuple(self._widths.values()))
        if self._shape is None or self._shape[0] != key:
            self._shape = (key, layout(*shape, self._widths))
        return self._shape[1]

    def row(self, row_id: str, cells: int) -> Line:
        mesh = self.session.mesh
        node = mesh.nodes.get(row_id)
        if node is None:
            return line.EMPTY
        return node_line(
            self._layout(cells),
            node,
            mesh.holds_of(row_id),
            self._names_on(row_id),
            mesh.utils,
            self.console.facts().leader == row_id,
            self.session.now_ms(),
            row_id == self.here,
            mesh.gossip,
        )

    def _names_on(self, node_id: str) -> dict[str, str]:
        mesh = self.session.mesh
        held = {hold.group_id for hold in mesh.holds_of(node_id)}
        return {group_id: group.name for group_id in held if (group := mesh.groups.get(group_id)) is not None}

    def row_in_full(self, cells: int, height: int) -> list[Line]:
        mesh, node = self.session.mesh, self._node()
        if node is None:
            return []
        leader, now_ms = self.console.facts().leader == node.id, self.session.now_ms()
        holds, names = mesh.holds_of(node.id), self._names_on(node.id)
        return node_in_full(node, holds, names, mesh.utils, leader, now_ms, mesh.gossip, cells)

    def column_lines(self, cells: int) -> list[Line]:
        if self._map:
            return [line.EMPTY]
        return [(("  ", line.TEXT), *self._layout(cells).head({self.sort: "△" if self.turned else "▽"}))]

    def status_lines(self, cells: int) -> list[Line]:
        mesh = self.session.mesh
        return [node_summary(list(mesh.nodes.values()), *mesh.cards(), mesh.gossip)]

    def empty_text(self) -> str:
        return "every node is ready; z shows all again" if self.problems_only else "no nodes"

    def reorder(self) -> None:
        super().reorder()
        if self._map:
            self._hide_cursor()

    def _hide_cursor(self) -> None:
        """On the map a line holds many nodes: the cursor is the mark beside its name."""
        self.main.cursor = None
        if self._ids:
            self.main.keep_in_sight(self._at // self._across(self.main.size.width))

    def move(self, lines: int) -> None:
        super().move(lines * self._across(self.main.size.width) if self._map and abs(lines) == 1 else lines)
        if self._map:
            self._hide_cursor()
            self.main.repaint()

    def do_open(self) -> None:
        """The groups that have ranks there."""
        if self.here:
            self.console.show_view("groups")
            self.console.filter_shown_view(f"node={self.here}")

    # Changes

    def enabled(self, action: Action) -> bool:
        node = self._node()
        if action.name == "drain" and node is not None and node.service is not None:
            return node.service.drained is None
        return super().enabled(action)

    def label(self, action: Action) -> str:
        node = self._node()
        return "uncordon" if action.name == "cordon" and node is not None and node.service is not None else action.label

    def do_cordon(self) -> None:
        node = self._node()
        if node is not None:
            self._ask(node, "uncordon" if node.service is not None else "cordon")

    def do_drain(self) -> None:
        node = self._node()
        if node is not None and node.service is not None and node.service.drained is not None:
            self.flash(f"{node.id} is drained already; x lets groups in again", line.WARN)
        elif node is not None:
            self._ask(node, "drain")

    def _node(self) -> Node | None:
        return self.session.mesh.nodes.get(self.here) if self.here else None

    def _ask(self, node: Node, what: str) -> None:
        from console.core.confirm_text import node_question
        from console.screens.confirm import ConfirmScreen

        names = self._names()
        held = [hold.group_id for hold in self.session.mesh.holds_of(node.id) if not hold.releasing]
        groups = [names.get(group_id, group_id) for group_id in dict.fromkeys(held)]
        plain = node.service is not None and node.service.drained is None
        # Made when it is asked: whatever is lost on the way, it is done once.
        request_id, body = new_request_id(), None if what == "uncordon" else b'{"mode": "move"}'
        body = b"{}" if what == "cordon" else body

        def answered(answer: str | None) -> None:
            if answer:
                self.session.in_background(self._carry_out(node.id, what, body, request_id))

        self.app.push_screen(ConfirmScreen(node_question(what, node.id, groups, plain)), answered)

    async def _carry_out(self, node_id: str, what: str, body: bytes | None, request_id: str) -> None:
        self.console.say(f"{what} of {node_id}", line.BUSY)
        outcome = await self.session.order(node_id, what, body, request_id)
        tone = line.GOOD if outcome.ok else line.BAD if outcome.sure else line.WARN
        done = {"cordon": "is cordoned", "uncordon": "takes groups again", "drain": "is being drained"}[what]
        self.console.say(f"{node_id} {done}" if outcome.ok else f"{node_id}: {outcome.text}", tone)

    def do_heat(self) -> None:
        self._map = not self._map
        self.reorder()
        self.main.forget()
        self.paint()

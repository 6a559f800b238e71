"""A screen of one group: it follows that group's own feed, and knows what the list knows of it."""

from typing import TYPE_CHECKING

from console.actions import Action
from console.screens.group_actions import GroupActions, takes

if TYPE_CHECKING:
    from console.store.group_store import GroupStore
    from console.store.rows import Group


class GroupScreen(GroupActions):
    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id

    def on_mount(self) -> None:
        self.session.focus_on(self.group_id)

    @property
    def known(self) -> "GroupStore | None":
        focus = self.session.focus
        return focus if focus is not None and focus.group_id == self.group_id else None

    def target(self) -> "Group | None":
        known = self.known
        if known is not None and known.group is not None and not known.gone:
            return known.group
        return self.session.mesh.groups.get(self.group_id)

    def subject(self) -> str | None:
        return self.group_id

    def crumbs(self) -> list[str]:
        group = self.target()
        return [group.name if group is not None else self.group_id, self.title_text]

    def enabled(self, action: Action) -> bool:
        group = self.target()
        if action.name in ("stop", "pause", "resume", "resubmit"):
            # The footers of other screens of a group have their own keys to show.
            return (
                group is not None and takes(group, action.name) and (action.name != "pause" or self.scope == "detail")
            )
        return super().enabled(action)

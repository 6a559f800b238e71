"""The screens, one a file."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.screens.list_view import ListScreen

_LISTS = {
    "groups": "GroupsScreen",
    "queue": "QueueScreen",
    "nodes": "NodesScreen",
    "mesh": "MeshScreen",
    "alerts": "AlertsScreen",
}


def list_screen(name: str) -> "ListScreen":
    """A new one; its module is loaded only now, because the first screen should not wait for the others."""
    screen: ListScreen = getattr(import_module(f"console.screens.{name}"), _LISTS[name])()
    return screen

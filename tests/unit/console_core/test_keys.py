"""One registry: no key means two things, every action exists on its screens, docs say the same."""

import pytest

from console.actions import ACTIONS, SCOPES
from console.keymap import Keymap, read_overrides
from console.screens.alerts import AlertsScreen
from console.screens.confirm import ConfirmScreen
from console.screens.curve import CurveScreen
from console.screens.detail import DetailScreen
from console.screens.editor import EditorScreen
from console.screens.groups import GroupsScreen
from console.screens.help import HelpScreen
from console.screens.log import LogScreen
from console.screens.mesh import MeshScreen
from console.screens.nodes import NodesScreen
from console.screens.queue import QueueScreen
from console.screens.timeline import TimelineScreen
from schemas.errors import InvalidInput
from scripts.docs_keys import PATH, keys_page

SCREENS = {
    "groups": GroupsScreen,
    "queue": QueueScreen,
    "nodes": NodesScreen,
    "mesh": MeshScreen,
    "alerts": AlertsScreen,
    "detail": DetailScreen,
    "log": LogScreen,
    "timeline": TimelineScreen,
    "curve": CurveScreen,
    "help": HelpScreen,
    "confirm": ConfirmScreen,
    "editor": EditorScreen,
}


def test_every_action_is_done_by_each_of_its_screens():
    assert set(SCREENS) == set(SCOPES)
    for action in ACTIONS:
        for scope in action.scopes:
            assert callable(getattr(SCREENS[scope], f"do_{action.name}", None)), f"{scope} cannot {action.name}"


def test_no_screen_does_what_the_registry_does_not_know():
    known = {action.name for action in ACTIONS}
    for screen in SCREENS.values():
        for name in dir(screen):
            if name.startswith("do_"):
                assert name.removeprefix("do_") in known, f"{screen.__name__}.{name}"


def test_no_key_means_two_things():
    Keymap()


def test_a_users_key_replaces_and_a_collision_is_refused():
    keymap = Keymap({"stop": ["S"]})
    assert keymap.action("groups", "S", "S").name == "stop"
    assert keymap.action("groups", "s", "s") is None
    with pytest.raises(InvalidInput, match="'l' would mean both"):
        Keymap({"stop": ["l"]})
    with pytest.raises(InvalidInput, match="no action"):
        Keymap({"explode": ["x"]})


def test_read_only_knows_no_mutating_key_on_any_screen():
    keymap = Keymap(read_only=True)
    for scope in SCOPES:
        assert not [action.name for action in keymap.actions(scope) if action.mutating]
    for key in "scr":
        assert keymap.action("groups", key, key) is None


def test_printable_keys_by_character_others_by_name():
    keymap = Keymap()
    assert keymap.action("groups", "slash", "/").name == "filter"
    assert keymap.action("groups", "space", " ").name == "mark"
    assert keymap.action("groups", "escape", "\x1b").name == "back"


def test_keys_file(tmp_path):
    path = tmp_path / "heteroflow" / "keys.json"
    path.parent.mkdir()
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert read_overrides(environment) == {}
    path.write_text('{"logs": ["L"]}')
    assert read_overrides(environment) == {"logs": ["L"]}
    for bad in ("[", '{"logs": "L"}', "[]", '{"logs": [1]}'):
        path.write_text(bad)
        with pytest.raises(InvalidInput):
            read_overrides(environment)


def test_docs_are_what_the_registry_says():
    assert PATH.read_text() == keys_page(), "run scripts/docs_keys.py"

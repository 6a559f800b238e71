"""Which key does what where: the registry's keys, changed by the user's file.

`$XDG_CONFIG_HOME/heteroflow/keys.json`: `{"stop": ["S"], "logs": ["l", "L"]}`, action names as in docs/keys.md.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from console.actions import ACTIONS, SCOPES, Action, actions_of
from console.core.format import reason_of
from schemas.errors import InvalidInput


class Keymap:
    def __init__(self, overrides: Mapping[str, Sequence[str]] | None = None, read_only: bool = False) -> None:
        """Raises InvalidInput where a name is unknown or a key would do two things on one screen."""
        self.read_only = read_only
        self._overrides = dict(overrides or {})
        known = {action.name for action in ACTIONS}
        for name in self._overrides:
            if name not in known:
                raise InvalidInput("bad_keys", f"the keys file names {name!r}, which is no action", "See docs/keys.md.")
        self._by_scope = {scope: self._table(scope) for scope in SCOPES}

    def _table(self, scope: str) -> dict[str, Action]:
        table: dict[str, Action] = {}
        for action in actions_of(scope, self.read_only):
            for key in self.keys(action):
                if key in table:
                    message = f"{key!r} would mean both {table[key].name} and {action.name} on {SCOPES[scope]}"
                    raise InvalidInput("bad_keys", message, "Give one of them another key in the keys file.")
                table[key] = action
        return table

    def keys(self, action: Action) -> Sequence[str]:
        return self._overrides.get(action.name, action.keys)

    def action(self, scope: str, key: str, character: str | None) -> Action | None:
        """A printable key is known by its character, any other by its name."""
        table = self._by_scope[scope]
        if character is not None and character.isprintable() and character != " ":
            return table.get(character)
        return table.get(key)

    def actions(self, scope: str) -> list[Action]:
        return actions_of(scope, self.read_only)


def read_overrides(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Raises InvalidInput."""
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")) / ".config")
    path = Path(home).expanduser() / "heteroflow" / "keys.json"
    hint = 'It holds {"ACTION": ["KEY", ...]}.'
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput("bad_keys", f"{path} cannot be read: {reason_of(error)}", hint) from error
    if not isinstance(raw, dict) or not all(
        isinstance(keys, list) and all(isinstance(key, str) for key in keys) for keys in raw.values()
    ):
        raise InvalidInput("bad_keys", f"{path} is no keys file", hint)
    return raw

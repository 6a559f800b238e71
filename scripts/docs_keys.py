"""docs/keys.md out of the action registry. `--check` only says whether it is up to date (exit 1: it is not)."""

import sys
from pathlib import Path

from console.actions import SCOPES, actions_of, key_name

PATH = Path(__file__).resolve().parents[1] / "docs" / "keys.md"
HEAD = """# Keys of the console

Made from `console/actions.py` by `scripts/docs_keys.py`; do not edit it by hand.

Every key can be changed in `$XDG_CONFIG_HOME/heteroflow/keys.json`, by the action's name: `{"stop": ["S"]}`.
A file that gives one key two meanings on a screen is refused at the start. Actions marked with * change the mesh and
are absent with `--read-only`. `:` takes an action by its name or by the word in brackets; `:nodes /lost` filters too.
"""


def keys_page() -> str:
    parts = [HEAD]
    for scope, title in SCOPES.items():
        parts.append(f"\n## {title}\n\n| key | action | what it does |\n|---|---|---|\n")
        for action in actions_of(scope):
            keys = " ".join(f"`{_shown(key)}`" for key in action.keys)
            word = f" ({action.word})" if action.word else ""
            star = " *" if action.mutating else ""
            parts.append(f"| {keys} | `{action.name}`{word}{star} | {action.help.replace('|', chr(92) + '|')} |\n")
    return "".join(parts)


def _shown(key: str) -> str:
    return key_name(key).replace("|", "\\|")


def main() -> int:
    page = keys_page()
    if "--check" in sys.argv[1:]:
        current = PATH.read_text() if PATH.exists() else ""
        if current != page:
            print("docs/keys.md is not what the registry says: run scripts/docs_keys.py")
            return 1
        return 0
    PATH.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

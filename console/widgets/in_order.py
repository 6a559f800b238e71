"""Keys of a text field, in the order in which they were struck."""

from typing import Any

from textual import events
from textual.screen import ModalScreen, Screen
from textual.widget import Widget


async def act_at_once(field: Widget, event: events.Key) -> None:
    """What the field has bound to this key is done now. Textual sends such a key round by the app first, while letters
    are taken at once: those struck behind it in one burst, as over a slow line, would overtake it."""
    for binding in field._bindings.key_to_bindings.get(event.key, ()):
        event.stop()
        event.prevent_default()
        if await field.app.run_action(binding.action, field):
            return


def too_late(screen: Screen[Any], event: events.Key) -> bool:
    """Whether the key was struck before what is seen now had come. It is meant for that where it is a view, as behind
    the escape that left another one; a dialog takes no key that was struck before it could be read."""
    seen = screen.app.screen
    if seen is screen:
        return False
    event.stop()
    event.prevent_default()
    if not isinstance(seen, ModalScreen):
        seen.post_message(events.Key(event.key, event.character))
    return True

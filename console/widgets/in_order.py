"""Keys of a text field, in the order in which they were struck."""

from textual import events
from textual.widget import Widget


async def act_at_once(field: Widget, event: events.Key) -> None:
    """What the field has bound to this key is done now. Textual sends such a key round by the app first, while letters
    are taken at once: those struck behind it in one burst, as over a slow line, would overtake it."""
    for binding in field._bindings.key_to_bindings.get(event.key, ()):
        event.stop()
        event.prevent_default()
        if await field.app.run_action(binding.action, field):
            return

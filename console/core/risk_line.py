"""What is lost if a group ends now, and when it last saved."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.core import line
from console.core.format import age
from console.core.line import Line, joined
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.store.rows import Group

# Lost at once they are worth a second thought.
_MANY_HOURS = 8


def risk_line(group: "Group", row: Mapping[str, Any], now_ms: int) -> Line:
    """row: the group's, {} where it is not read yet. Empty where nothing runs that could be lost."""
    risk = group.at_risk
    if risk is None:
        return ()
    saved, asked = row.get("saved") or {}, row.get("stop_after")
    parts: list[Line] = [((risk.words(now_ms), line.WARN if risk.gpu_hours(now_ms) >= _MANY_HOURS else line.TEXT),)]
    if saved.get("saved_ms"):
        parts.append(((f"last saved {saved.get('pick')}, {age(saved['saved_ms'], now_ms)} ago", line.DIM),))
    elif row.get("checkpoint_path"):
        parts.append((("nothing saved yet", line.DIM),))
    elif row:
        parts.append((("no checkpoint_path", line.DIM),))
    if asked:
        until = iso_utc(asked["deadline_ms"])[11:19]
        parts.append(((f"stops after its next checkpoint, or at {until} UTC", line.WARN),))
    return joined(parts, (" · ", line.RULE))

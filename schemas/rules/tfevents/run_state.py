"""What to say about a run's curves in one word: the worst that holds, by what a person would act on first."""

from typing import NamedTuple

from schemas.rules.tfevents.curve import Point
from schemas.rules.tfevents.run_tree import RunTree, loss_of

NO_LOG = "no_log"
NO_POINTS = "no_points"
LIVE = "live"
STALE = "stale"
RESTARTED = "restarted"
UNREADABLE = "unreadable"
NAN = "nan"
STATES = (NO_LOG, NO_POINTS, LIVE, STALE, RESTARTED, UNREADABLE, NAN)
# Writers buffer for up to two minutes, so a healthy run can look that old.
STALE_AFTER_S = 180.0


class RunState(NamedTuple):
    """state: one of STATES. text: what happened, for people. loss: name of the curve that stands for the run, and its
    newest point. age_s: of that point by the writer's clock, None without a point."""

    state: str
    text: str
    loss: str | None = None
    last: Point | None = None
    age_s: float | None = None


def run_state(tree: RunTree, now_s: float, chosen: str | None = None, stale_after_s: float = STALE_AFTER_S) -> RunState:
    """now_s: Unix seconds on the clock of the host that writes. chosen: the user's loss tag."""
    if not tree.has_files:
        return RunState(NO_LOG, "there is no TensorBoard log here")
    blind = [damage for damage in tree.damages() if damage.unreadable and damage.newest]
    curves = tree.curves()
    # Without a loss whatever was written last tells at least whether the run lives.
    loss = loss_of(curves, chosen)
    named = [(item.name, point) for item in ([loss] if loss else curves) if (point := item.curve.last)]
    name, last = max(named, key=lambda one: one[1].wall, default=(None, None))
    age_s = now_s - last.wall if last else None
    state, text = LIVE, "points arrive"
    if age_s is None:
        state, text = NO_POINTS, "there is a TensorBoard log, but no scalar in it yet"
    elif not age_s <= stale_after_s:
        state, text = STALE, f"the newest point is older than {stale_after_s:g} s"
    if most := max((item.curve.superseded for item in curves), default=0):
        count = loss.curve.superseded if loss and loss.curve.superseded else most
        state, text = RESTARTED, f"the run began again from an earlier step; {count} points of its curve are superseded"
    for item in [loss] if loss else curves:
        if bad := item.curve.last_nonfinite:
            state, text = NAN, f"{item.name} is {bad.value} at step {bad.step}"
            break
    if blind and blind[0].unreadable:
        fault = blind[0].unreadable
        state, text = UNREADABLE, f"{blind[0].file} cannot be read after byte {fault.offset}: {fault.why}"
    return RunState(state, text, name, last, age_s)

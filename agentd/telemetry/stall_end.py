"""On the leader's host: a group that has stood still for long is failed, with what was last seen of its ranks."""

from agentd.telemetry.desk import TelemetryDesk
from mesh.client import MeshClient
from schemas.commands import command
from schemas.limits import TEXT_MAX
from schemas.states import OVER_STALL

_AT_ONCE = 64


class StallEnd:
    """after_s: all signs of life silent for that long; 0: never."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        # The verdict stands for as long as the ranks take to end; said once an attempt, or the log would fill with it.
        self._said: set[tuple[str, int]] = set()

    async def look(self, mesh: MeshClient, desk: TelemetryDesk) -> None:
        """Raises HeteroFlowError; what was not said is tried in the next round."""
        if not self._after_s:
            return
        self._said &= desk.verdicts.keys()
        due = [
            key
            for key, verdict in desk.verdicts.items()
            if verdict.state == "stalled" and verdict.quiet_s >= self._after_s and key not in self._said
        ]
        for group_id, attempt in due[:_AT_ONCE]:
            text = f"{desk.verdicts[group_id, attempt].text}. {desk.autopsy(group_id, attempt)}"
            # Refused where the attempt is over or ending: then there is nothing to end.
            await mesh.propose(
                command("FailGroup", group_id=group_id, attempt=attempt, over=OVER_STALL, text=text[:TEXT_MAX])
            )
            self._said.add((group_id, attempt))

    def clear(self) -> None:
        self._said.clear()

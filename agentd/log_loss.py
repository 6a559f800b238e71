"""Output of tasks that no log holds, over all tasks of this host since the agent began."""

from collections.abc import Sequence

from agentd.runtime.base import Observed, TaskId


class LogLoss:
    def __init__(self) -> None:
        self.total_bytes = 0
        self._seen: dict[TaskId, int] = {}

    def look(self, seen: Sequence[Observed]) -> None:
        """Of every task that is still there."""
        now = {task.id: task.log_lost for task in seen if task.log_lost}
        for task_id, lost in now.items():
            self.total_bytes += max(0, lost - self._seen.get(task_id, 0))
        self._seen = now

"""What this process uses, under the names that every Prometheus client gives them."""

import os
import resource
import time
from pathlib import Path

from agentd.core.exposition import Family, counter, gauge

_STARTED_S = time.time()


def process_families() -> list[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [
        gauge("process_resident_memory_bytes", "Memory of the agent in RAM.", _resident_bytes()),
        counter("process_cpu_seconds_total", "CPU time of the agent.", used.ru_utime + used.ru_stime),
        gauge("process_open_fds", "Open files and sockets of the agent.", _open_files()),
        gauge("process_start_time_seconds", "When the agent was started, Unix seconds.", round(_STARTED_S, 3)),
    ]


def _resident_bytes() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _open_files() -> int | None:
    try:
        # The listing itself is open while it is counted.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None

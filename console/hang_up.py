"""The end of a terminal that goes away without a signal, as under a multiplexer that was killed."""

import os
import select
import signal
import threading
import time

GRACE_S = 2.0


def end_with(terminal: int) -> None:
    """Watches the terminal from a thread and ends the process after its hang-up.

    SIGHUP reaches only what the terminal controls. Without it Textual's input thread would spin on end-of-file and its
    output block, so nothing on the event loop can end the process any more. Nothing is left to restore.
    """
    threading.Thread(target=_watch, args=(terminal,), name="hang-up", daemon=True).start()


def _watch(terminal: int) -> None:
    poll = select.poll()
    poll.register(terminal, 0)  # a hang-up is told without being asked for
    told = poll.poll()
    if any(events & (select.POLLHUP | select.POLLERR) for _, events in told):
        time.sleep(GRACE_S)  # a SIGHUP that did come is handled meanwhile
        os._exit(128 + signal.SIGHUP)

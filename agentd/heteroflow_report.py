"""Tells the platform how training gets on. One file without dependencies; every task finds it on its PYTHONPATH.

    import heteroflow_report as report

    report.step(120, loss=0.71, lr=1e-4, epoch=1.5, tokens_per_s=51_000)
    report.phase("evaluate")

Every process may call it; what the first rank of a node says counts. It never raises, never waits, and does nothing
outside of the platform. Twelve metrics with names of up to 32 characters are kept. Steps that come faster than five a
second are thinned; the last one always arrives.
"""

import atexit
import contextlib
import json
import os
import time

_EVERY_S = 0.2
# Written whole or not at all, also by several processes at once.
_LINE_MAX = 4000
_METRICS_MAX = 12


class _Pipe:
    def __init__(self) -> None:
        self.path = os.environ.get("HETEROFLOW_REPORT", "")
        self.descriptor = -1
        self.process = os.getpid()

    def send(self, line: bytes) -> bool:
        """False where nobody reads, or the pipe is full."""
        if not self.path:
            return True
        if self.process != os.getpid():
            self.descriptor, self.process = -1, os.getpid()
        try:
            if self.descriptor < 0:
                self.descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return os.write(self.descriptor, line) == len(line)
        except BlockingIOError:
            return False
        except OSError:
            self._close()
            return False

    def _close(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = -1


_pipe = _Pipe()
_pending: dict[str, object] = {}
_sent_at = float("-inf")


def step(number: object, loss: object = None, lr: object = None, epoch: object = None, **metrics: object) -> None:
    """number: of steps done. Anything that float() takes is a value, tensors of one element too."""
    found: dict[str, object] = {"step": number, "loss": loss, "lr": lr, "epoch": epoch}
    numbers: dict[str, object] = {name: value for name, given in found.items() if (value := _number(given)) is not None}
    if isinstance(done := numbers.get("step"), float) and done.is_integer():
        numbers["step"] = int(done)  # of NumPy's counters and tensors of one element
    named = {name[:32]: value for name, given in metrics.items() if (value := _number(given)) is not None}
    if named:
        numbers["metrics"] = dict(list(named.items())[:_METRICS_MAX])
    _say(numbers, at_once=False)


def phase(name: str) -> None:
    """What is being done: train, evaluate, save, or whatever the script calls it."""
    try:
        told = str(name)[:32]
    except Exception:
        return  # of an object that cannot say what it is
    _say({"phase": told}, at_once=True)


def _say(told: dict[str, object], at_once: bool) -> None:
    global _sent_at
    try:
        _pending.update(told)
        now = time.monotonic()
        if _pending and (at_once or now - _sent_at >= _EVERY_S):
            # The first step of a phase is not held back by the phase's own report.
            _sent_at = _sent_at if at_once else now
            _flush()
    except Exception:
        # A report is never worth a training.
        _pending.clear()


def _flush() -> None:
    rank = os.environ.get("RANK") or os.environ.get("NODE_RANK") or "0"
    told = {"rank": int(rank) if rank.isdigit() else 0, **_pending}
    line = json.dumps(told).encode() + b"\n"
    if len(line) > _LINE_MAX:
        told.pop("metrics", None)
        line = json.dumps(told).encode() + b"\n"
    if _pipe.send(line):
        _pending.clear()


def _number(value: object) -> "float | int | None":
    if value is None or isinstance(value, bool):
        return None
    try:
        # Anything may be handed in, a tensor too: whatever float() cannot take is caught below.
        return value if isinstance(value, int) else float(value)  # type: ignore[arg-type]
    except Exception:
        return None


@atexit.register
def _last() -> None:
    _say({}, at_once=True)

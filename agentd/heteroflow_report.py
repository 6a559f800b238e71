"""Tells the platform how training gets on. One file without dependencies; every task finds it on its PYTHONPATH.

    import heteroflow_report as report

    report.step(120, loss=0.71, lr=1e-4, epoch=1.5, tokens_per_s=51_000)
    report.phase("evaluate")

Every process may call it; what the first rank of a node says counts. It never raises, never waits, and does nothing
outside of the platform. Twelve metrics with names of up to 32 characters are kept. Steps that come faster than five a
second are thinned; the last one always arrives. A tensor on a card is read like by `loss.item()`, which waits for the
card: hand one in every so many steps.

Images may have a Python as old as 3.6, so what it takes later ones for is left out here: no `:=`, and no annotation
that would be evaluated.
"""

import atexit
import contextlib
import json
import os
import signal
import time

_EVERY_S = 0.2
# Written whole or not at all, also by several processes at once.
_LINE_MAX = 4000
_METRICS_MAX = 12
# What is looked at for them: a call costs the same however many are handed in.
_METRICS_TRIED = 64


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
            return _write(self.descriptor, line) == len(line)
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


def _write(descriptor: int, line: bytes) -> int:
    """As os.write. A program that has SIGPIPE as the system has it would be ended where the reader went away, which an
    agent that is started anew does: the signal is held back and taken."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    try:
        return os.write(descriptor, line)
    except BrokenPipeError:
        if signal.SIGPIPE not in before:
            signal.sigtimedwait([signal.SIGPIPE], 0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_pipe = _Pipe()
_pending: "dict[str, object]" = {}
_process = os.getpid()
_sent_at = float("-inf")


def step(number: object, loss: object = None, lr: object = None, epoch: object = None, **metrics: object) -> None:
    """number: of steps done. Anything that float() takes is a value, tensors of one element too."""
    told = _numbers([("step", number), ("loss", loss), ("lr", lr), ("epoch", epoch)], 4)
    done = told.get("step")
    if isinstance(done, float) and done.is_integer():
        told["step"] = int(done)  # of NumPy's counters and tensors of one element
    named = _numbers(list(metrics.items())[:_METRICS_TRIED], _METRICS_MAX) if metrics else {}
    if named:
        told["metrics"] = {name[:32]: value for name, value in named.items()}
    _say(told, at_once=False)


def phase(name: str) -> None:
    """What is being done: train, evaluate, save, or whatever the script calls it."""
    try:
        told = str(name)[:32]
    except Exception:
        return  # of an object that cannot say what it is
    _say({"phase": told}, at_once=True)


def _say(told: "dict[str, object]", at_once: bool) -> None:
    global _sent_at, _process
    try:
        if _process != os.getpid():
            # What the parent has not said yet is the parent's to say.
            _process = os.getpid()
            _pending.clear()
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
    sent = dict(_pending)
    told = {"rank": int(rank) if rank.isdigit() else 0, **sent}
    line = json.dumps(told).encode() + b"\n"
    if len(line) > _LINE_MAX:
        told.pop("metrics", None)
        line = json.dumps(told).encode() + b"\n"
    if _pipe.send(line):
        for name, value in sent.items():
            # Another thread may have said something newer meanwhile.
            if _pending.get(name) is value:
                del _pending[name]


def _numbers(given: "list[tuple[str, object]]", most: int) -> "dict[str, object]":
    """The first so many that are numbers."""
    found: dict[str, object] = {}
    for name, value in given:
        number = _number(value)
        if number is not None:
            found[name] = number
        if len(found) == most:
            break
    return found


def _number(value: object) -> "float | int | None":
    if value is None or isinstance(value, bool):
        return None
    try:
        # As large as a counter is. What float() cannot take is caught below: anything may be handed in, a tensor too.
        return value if isinstance(value, int) and abs(value) < 2**63 else float(value)  # type: ignore[arg-type]
    except Exception:
        return None


@atexit.register
def _last() -> None:
    _say({}, at_once=True)

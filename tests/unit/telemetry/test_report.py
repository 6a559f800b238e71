"""What tasks say of themselves: the module they import, the pipe, and what is believed of it."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
import threading
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd import heteroflow_report
from agentd.core.report import METRICS_MAX, NAME_MAX, PHASE_MAX, Report, report_of, taken
from agentd.runtime.base import TaskId
from agentd.telemetry.report_pipes import ReportPipes

TASK = TaskId("tg-x", 1, 0)


def test_a_whole_report():
    line = json.dumps(
        {"rank": 0, "step": 7, "loss": 0.5, "lr": 1e-4, "epoch": 1, "phase": "train", "metrics": {"a": 2}}
    )
    report = taken(None, report_of(line.encode()) or {}, 5.0)
    assert report == Report(0, 7, 0.5, 1e-4, 1.0, "train", (("a", 2.0),), 5.0)
    later = taken(report, report_of(b'{"rank": 0, "phase": "save"}') or {}, 9.0)
    assert (later.step, later.loss, later.phase, later.stepped_s) == (7, 0.5, "save", 5.0)
    assert taken(later, {"rank": 0, "step": 8}, 11.0).stepped_s == 11.0


def test_the_lowest_rank_is_heard():
    second = taken(None, {"rank": 2, "step": 5}, 1.0)
    assert taken(second, {"rank": 3, "step": 9}, 2.0) is second
    assert taken(second, {"rank": 0, "step": 1}, 2.0) == Report(0, 1, stepped_s=2.0)


LONG = b'{"rank": 0, "x": "' + b"y" * 5000 + b'"}'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"step": 1}',
        b'{"rank": -1}',
        b'{"rank": true}',
        b'{"rank": "0"}',
        b"\xff",
        b"[" * 4000,
        LONG,
    ],
)
def test_no_report_at_all(line):
    assert report_of(line) is None


@pytest.mark.parametrize(
    "part", ['"step": 1.5', '"step": -1', '"step": true', '"loss": "x"', '"phase": "a\\nb"', '"metrics": [1]']
)
def test_parts_that_make_no_sense_are_left_out(part):
    assert report_of(f'{{"rank": 0, {part}}}'.encode()) in ({"rank": 0}, {"rank": 0, "metrics": ()})


def test_a_loss_that_is_no_number_is_told():
    told = report_of(b'{"rank": 0, "step": 3, "loss": NaN}')
    assert told is not None and isnan(told["loss"])


names = st.sampled_from(["rank", "step", "loss", "metrics", "phase", "x"])
parts = st.none() | st.floats() | st.integers() | st.text()
values = st.recursive(parts, lambda inner: st.dictionaries(names, inner))


@given(st.binary(max_size=300) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_bounded_report_or_none(line):
    told = report_of(line)
    if told is not None:
        report = taken(None, told, 0.0)
        assert len(report.metrics) <= METRICS_MAX and len(report.phase) <= PHASE_MAX
        assert all(len(name) <= NAME_MAX for name, _ in report.metrics)


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "report"
    os.mkfifo(path)
    return path


@pytest.fixture
def pipes(pipe):
    made = ReportPipes(lambda task: str(pipe))
    yield made
    made.close()


def test_a_flood_costs_a_bounded_look_and_the_newest_counts(pipe, pipes):
    pipes.look([TASK], 0.0)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, json.dumps({"rank": 0, "step": sent + 1}).encode() + b"\n")
            sent += 1
    pipes.look([TASK], 1.0)
    assert sent > 1000 and pipes.newest[TASK].step == sent
    os.write(writer, b'{"rank": 0, "st')
    pipes.look([TASK], 2.0)
    os.write(writer, b'ep": 77}\nnonsense\n')
    os.close(writer)
    pipes.look([TASK], 3.0)
    assert pipes.newest[TASK].step == 77
    pipes.look([], 4.0)
    assert TASK not in pipes.newest


@pytest.mark.parametrize("what", ["link", "file", "missing", "directory"])
def test_what_is_no_pipe_is_not_read(tmp_path, what):
    path = tmp_path / "report"
    if what == "link":
        (tmp_path / "secret").write_text('{"rank": 0, "step": 1}\n')
        path.symlink_to(tmp_path / "secret")
    elif what == "file":
        path.write_text('{"rank": 0, "step": 1}\n')
    elif what == "directory":
        path.mkdir()
    pipes = ReportPipes(lambda task: str(path))
    pipes.look([TASK], 0.0)
    assert pipes.newest == {}
    pipes.close()


def said(program, pipe=None, rank="0"):
    """What the module writes, as a reader that is there from the beginning sees it."""
    env = {"PYTHONPATH": os.path.dirname(heteroflow_report.__file__), "RANK": rank}
    reader, lines = None, []
    if pipe is not None:
        env["HETEROFLOW_REPORT"] = str(pipe)
        descriptor = os.open(pipe, os.O_RDWR)

        def read():
            while (data := os.read(descriptor, 65536)) != b"end\n":
                lines.append(data)

        reader = threading.Thread(target=read)
        reader.start()
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    if reader is not None:
        os.write(descriptor, b"end\n")
        reader.join()
        os.close(descriptor)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in b"".join(lines).splitlines()]


def test_the_last_step_arrives_and_the_others_are_thinned(pipe):
    program = "import heteroflow_report as r\nfor n in range(1, 1001): r.step(n, loss=1/n, tokens=n, broken=object())\n"
    found = said(program, pipe, rank="3")
    assert found[0] == {"rank": 3, "step": 1, "loss": 1.0, "metrics": {"tokens": 1}}
    assert found[-1] == {"rank": 3, "step": 1000, "loss": 0.001, "metrics": {"tokens": 1000}}
    assert len(found) < 100


def test_nothing_hurts_a_training(pipe, tmp_path):
    """Outside of the platform, with nobody reading, with a place that is gone, with values that are none, in a fork."""
    program = (
        "import os, heteroflow_report as r\n"
        "r.step('x'); r.step(None, loss='y'); r.phase(object()); r.step(1, **{'m%d' % n: n for n in range(500)})\n"
        "pid = os.fork()\n"
        "r.step(2)\n"
        "pid and os.waitpid(pid, 0)\n"
    )
    said(program)
    assert said("import os\nos.environ['HETEROFLOW_REPORT'] = '/nowhere/at/all'\n" + program) == []
    assert said(f"import os\nos.environ['HETEROFLOW_REPORT'] = '{pipe}'\n" + program) == [], "nobody reads"
    assert any(line.get("step") == 2 for line in said(program, pipe))


MODULE = Path(heteroflow_report.__file__)


def test_it_is_taken_by_pythons_that_images_still_have():
    """What an import raises of another kind than ImportError ends a script that guards it as the documentation says."""
    tree = ast.parse(MODULE.read_text(), feature_version=(3, 6))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = [one for node in functions for one in ast.walk(node.args) if isinstance(one, ast.arg)]
    places = [*tree.body, *(part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body)]
    evaluated = [node.returns for node in functions] + [one.annotation for one in arguments]
    evaluated += [node.annotation for node in places if isinstance(node, ast.AnnAssign)]
    assert len(functions) > 5 and len(evaluated) > 10
    newer = [ast.unparse(node) for node in evaluated if node and not isinstance(node, ast.Name | ast.Constant)]
    assert newer == [], "an older Python evaluates these and raises; write them as texts"


@pytest.mark.parametrize("handled", ["SIG_DFL", "SIG_IGN", "lambda *_: print('heard')"])
def test_a_reader_that_goes_away_ends_no_program(pipe, handled):
    """Command line programs set SIGPIPE back to the system's own, which ends who writes to nobody. The agent is the
    reader, and is started anew by every upgrade."""
    program = f"""
import os, signal
import heteroflow_report as r
handled = {handled if handled.startswith("lambda") else f"signal.{handled}"}
signal.signal(signal.SIGPIPE, handled)
reader = os.open({str(pipe)!r}, os.O_RDONLY | os.O_NONBLOCK)
r.phase('one')
assert os.read(reader, 4096)
os.close(reader)
r.phase('two')
assert signal.getsignal(signal.SIGPIPE) == handled
assert not signal.sigpending() and signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
reader = os.open({str(pipe)!r}, os.O_RDONLY | os.O_NONBLOCK)
r.phase('three')
assert b'three' in os.read(reader, 4096)
print('trained on')
"""
    env = {"PYTHONPATH": str(MODULE.parent), "HETEROFLOW_REPORT": str(pipe)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained on\n", ""), done


def test_a_child_says_nothing_that_its_parent_had_to_say(pipe):
    """A loader that is forked between two steps ended with the step of then, behind newer ones of its parent."""
    program = "import os, sys, heteroflow_report as r\nr.step(1)\nr.step(2)\nif not os.fork(): sys.exit()\nos.wait()\n"
    assert [line["step"] for line in said(program, pipe)] == [1, 2]


@pytest.fixture
def module(monkeypatch):
    """One of its own, and what it wrote. meanwhile: what other threads do as it writes."""
    spec = importlib.util.spec_from_file_location("own_report", MODULE)
    assert spec is not None and spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setattr("atexit.register", lambda function: function)
    spec.loader.exec_module(made)
    made.lines, made.meanwhile, made._EVERY_S = [], [], 1e9

    def send(line):
        made.lines.append(json.loads(line))
        while made.meanwhile:
            made.meanwhile.pop()()
        return True

    made._pipe.send = send
    return made


def test_what_another_thread_says_meanwhile_is_not_lost(module):
    module.meanwhile.append(lambda: module.step(2, loss=0.25))
    module.step(1, loss=0.5, lr=0.1)
    module._last()
    assert module.lines == [{"rank": 0, "step": 1, "loss": 0.5, "lr": 0.1}, {"rank": 0, "step": 2, "loss": 0.25}]


def test_a_number_that_no_json_holds_costs_no_other(module):
    """Python writes no text of an int with more than 4,300 digits."""
    module.step(10**5000, loss=0.5, huge=10**5000, small=-3, counter=2**62)
    assert module.lines == [{"rank": 0, "loss": 0.5, "metrics": {"small": -3, "counter": 2**62}}]


def test_any_number_of_metrics_costs_the_same(module):
    read = []

    class Value:
        def __float__(self):
            read.append(1)
            return 1.0

    module.step(1, **{f"m{n}": Value() for n in range(5000)})
    assert len(module.lines[0]["metrics"]) == len(read) == METRICS_MAX


COUNTERS = """
import heteroflow_report as r
class Tensor:
    def __init__(self, value): self.value = value
    def __float__(self): return float(self.value)
class Broken(Tensor):
    def __str__(self): raise RuntimeError
r.phase(Broken(1))
"""


@pytest.mark.parametrize("number", ["120", "120.0", "Tensor(120)", "'120'"])
def test_a_step_is_a_step_whatever_counts_it(pipe, number):
    """NumPy's counters and tensors of one element are no int of Python's; their step was lost without a word."""
    (line,) = said(f"{COUNTERS}r.step({number}, loss=Tensor(0.5))", pipe)
    told = report_of(json.dumps(line).encode()) or {}
    assert (told["step"], type(told["step"]), told["loss"]) == (120, int, 0.5)
    # As a module of before, and other writers, have it.
    assert (report_of(b'{"rank": 0, "step": 120.0}') or {})["step"] == 120


@pytest.mark.parametrize("number", ["Tensor(1.5)", "float('nan')", "float('inf')", "1e300", "-1.0"])
def test_what_is_no_count_is_no_step(pipe, number):
    (line,) = said(f"{COUNTERS}r.step({number}, loss=0.5)", pipe)
    assert "step" not in (report_of(json.dumps(line).encode()) or {"step": 0})


def test_what_the_module_writes_is_what_is_read(pipe):
    (line,) = said("import heteroflow_report as r\nr.step(5, loss=0.5, lr=1e-4, epoch=2, acc=0.9)", pipe)
    report = taken(None, report_of(json.dumps(line).encode()) or {}, 0.0)
    assert report.to_dict() == {
        "step": 5, "loss": 0.5, "lr": 1e-4, "epoch": 2.0, "phase": None, "metrics": {"acc": 0.9}
    }  # fmt: skip

"""Who hears SIGTERM, over process trees as text: `name(child, child)`; an ending `!` traps the signal."""

import re

import pytest

from agentd.shim import targets
from agentd.shim.host import Process, descendants

TREES = [
    ("python", "python"),
    ("sh", "sh"),
    ("sh(python)", "python"),
    ("sh(bash(python(worker worker)))", "python"),
    ("sh!(python)", "sh python"),
    ("sh!", "sh"),
    ("bash(tee python)", "tee python"),
    ("sh(sh(a) sh(b c) d)", "a b c d"),
    ("python(sh(x))", "python"),
    ("sh(sh! sh(x))", "sh x"),
    ("torchrun(python python)", "torchrun"),
]


class Forest:
    def __init__(self, text: str) -> None:
        self.table: dict[int, Process] = {}
        self.trapping: set[int] = set()
        self._tokens = re.findall(r"[a-z]+!?|[()]", text)
        self._at = 0
        self.main = self._tree(1)

    def _tree(self, parent: int) -> Process:
        name = self._tokens[self._at]
        self._at += 1
        process = Process(100 + len(self.table), parent, 7, "S", name.rstrip("!"))
        self.table[process.pid] = process
        if name.endswith("!"):
            self.trapping.add(process.pid)
        if self._at < len(self._tokens) and self._tokens[self._at] == "(":
            self._at += 1
            while self._tokens[self._at] != ")":
                self._tree(process.pid)
            self._at += 1
        return process


@pytest.mark.parametrize(("tree", "heard"), TREES)
def test_who_hears(tree: str, heard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = Forest(tree)
    monkeypatch.setattr(targets, "traps_sigterm", forest.trapping.__contains__)
    monkeypatch.setattr(targets, "pipe_of", lambda pid, fd: "")
    found = targets.stop_targets(forest.main, forest.table)
    assert sorted(process.name for process in found) == sorted(heard.split())


@pytest.mark.parametrize(
    ("pipes", "heard"),
    [
        ({("train", 1): "p", ("tee", 0): "p", ("tee", 1): "log", ("cat", 1): "log"}, "cat train"),
        ({("train", 2): "p", ("tee", 0): "p", ("tee", 1): "q", ("cat", 0): "q"}, "train"),
        ({("train", 1): "log", ("tee", 1): "log", ("cat", 1): "log"}, "cat tee train"),
        ({("train", 0): "a", ("tee", 1): "a", ("tee", 0): "b", ("cat", 1): "b", ("cat", 0): "c", ("train", 1): "c"},
         "cat tee train"),
    ],
    ids=["one reader", "two readers", "the log is no reader", "a ring"],
)  # fmt: skip
def test_who_reads_from_another_is_not_asked(
    pipes: dict[tuple[str, int], str], heard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = Forest("sh(train tee cat)")
    monkeypatch.setattr(targets, "traps_sigterm", lambda pid: False)
    monkeypatch.setattr(targets, "pipe_of", lambda pid, fd: pipes.get((forest.table[pid].name, fd), ""))
    found = targets.stop_targets(forest.main, forest.table)
    assert sorted(process.name for process in found) == heard.split()


def test_descendants_are_all_below_and_no_one_else() -> None:
    forest = Forest("a(b(c) d)")
    other = Forest("x(y)")
    moved = {
        pid + 1000: process._replace(pid=pid + 1000, ppid=process.ppid + 1000) for pid, process in other.table.items()
    }
    found = descendants([forest.main.pid], {**forest.table, **moved})
    assert sorted(process.name for process in found) == ["b", "c", "d"]
    assert descendants([999_999], forest.table) == []

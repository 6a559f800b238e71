"""One evening of an operator: keys in a real terminal, a mesh of three agents, and another node asked what came of it.

What the screen says is waited for; what is asserted is what `heteroflow show`, `ls` and `events` say of the mesh.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mesh_fixture import RunningMesh
from tests.terminal.delaying_proxy import delaying_proxy
from tests.terminal.tmux_console import PROMPT, TmuxConsole, tmux_console
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.need("tmux"), pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
WORKER = """
import os, sys, time
rank, rate = os.environ["NODE_RANK"], float(os.environ["HETEROFLOW_HP_LEARNING_RATE"])
for step in range(100000):
    print(f"step {step} of rank {rank}", flush=True)
    if rank == "1" and rate > 2e-4 and os.path.exists(sys.argv[1]):
        print("Traceback (most recent call last):", file=sys.stderr)
        print('  File "train.py", line 212, in step', file=sys.stderr)
        sys.exit("RuntimeError: loss is not finite")
    time.sleep(0.05)
"""


class Desk:
    """The mesh, and the command line attached to one of its nodes."""

    def __init__(self, directory: Path) -> None:
        self.mesh = RunningMesh(directory)
        (directory / "worker.py").write_text(WORKER)
        self.diverged = directory / "diverged"  # once there, a rank 1 with a high learning rate fails

    def heteroflow(self, node: int, *words: str) -> Any:
        token = str(self.mesh.loopback.token_file)
        command = [sys.executable, "-m", "console.cli.main", *words, "--node", self.mesh.nodes[node - 1].api]
        done = subprocess.run(
            [*command, "--token-file", token, "-o", "json"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def submit(self, name: str, nodes: int) -> str:
        document = self.mesh.directory / f"{name}.yaml"
        document.write_text(
            f"name: {name}\n"
            "task_type: training\n"
            "labels: {owner: lin, shift: 22:30, flag: no}\n"
            "training:\n"
            f"  framework: ddp\n  launcher: script\n  n_nodes: {nodes}\n  per_node_gpu: 2\n"
            f"  checkpoint_path: {self.mesh.directory}/checkpoints/{name}\n"
            "  hyper_params: {learning_rate: 3e-4, warmup: 0755, note: 'a: b # c'}\n"
            "task:\n"
            f"  command: [{sys.executable}, {self.mesh.directory}/worker.py, {self.diverged}]\n"
            "  gpu_required: 2\n  stop_grace_s: 3\n"
        )
        return str(self.heteroflow(1, "submit", str(document))["group_id"])

    def show(self, node: int, group: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.heteroflow(node, "show", group)
        return shown

    def statuses(self, node: int) -> dict[str, str]:
        """By id."""
        return {group["group_id"]: group["status"] for group in self.heteroflow(node, "ls")["groups"]}

    def kinds(self, node: int, group: str) -> list[str]:
        return [event["kind"] for event in self.heteroflow(node, "events", group)["events"]]


def ids(screen: str) -> set[str]:
    return set(re.findall(r"tg-[0-9a-z]{20}", screen))


def box(screen: str) -> str:
    """The dialog on it."""
    return "\n".join(row.split("│")[1] for row in screen.split("\n") if row.count("│") >= 2 and "│" in row)


def row_of(screen: str, name: str) -> str:
    return next((row for row in screen.split("\n") if name in row), "")


@pytest.fixture
def desk() -> Iterator[Desk]:
    # Socket paths must be short, which pytest's own directory is not.
    directory = Path(tempfile.mkdtemp(prefix="hf-e2e-"))
    made = Desk(directory)
    try:
        made.mesh.start()
        yield made
    finally:
        made.mesh.stop()
        shutil.rmtree(directory, ignore_errors=True)


def edit_learning_rate(console: TmuxConsole) -> None:
    screen = console.until("the same as the original")
    line = int(row_of(screen, "learning_rate: 3e-4").split()[0])
    console.press(*["Down"] * (line - 1), "End", *["BSpace"] * 4)
    console.type("1e-4")
    console.until("3e-4 → 1e-4")


def test_an_evening_of_an_operator(desk):
    mesh = desk.mesh
    fillers = {desk.submit(f"base-{letter}", 1) for letter in "abc"}
    until("three run", lambda: list(desk.statuses(2).values()) == ["running"] * 3)
    with (
        delaying_proxy(mesh.nodes[0].api) as proxy,
        tmux_console(mesh.directory, proxy.address, mesh.loopback.token_file) as console,
    ):
        # Nothing is free, so a group of two nodes waits, and says for what.
        console.until("base-a")
        llama = desk.submit("llama-sft", 2)
        console.until(lambda screen: "Q pending" in row_of(screen, "llama-sft"))
        assert desk.show(3, llama)["status"] == "pending"

        # Two of three are marked and stopped; the question names them and what it costs.
        console.press("/")
        console.type("base-")
        console.press("Enter")
        console.until(lambda screen: "1/3" in screen and "llama-sft" not in screen)
        console.press("Space", "Space")
        console.until("2 marked")
        console.press("s")
        question = box(console.until("Stop 2 groups"))
        chosen = ids(question)
        assert len(chosen) == 2 and chosen < fillers, question
        for text in ("SIGTERM", "4 cards come free", "since the last checkpoint is lost", "[ Cancel ]"):
            assert text in question, question
        assert desk.show(2, min(chosen))["status"] == "running"
        console.press("y")
        console.until("2 ordered to stop")

        # The two nodes go to the group that waited.
        console.press("Escape")
        console.until(lambda screen: "R running" in row_of(screen, "llama-sft"))
        (left,) = fillers - chosen
        want = dict.fromkeys(chosen, "stopped") | {left: "running", llama: "running"}
        until("the two and no other to be stopped", lambda: desk.statuses(3) == want)
        assert all(desk.kinds(2, group).count("stopping") == 1 for group in chosen)

        # It fails; the line that says why is in the log of the rank that failed, where the view opens.
        desk.diverged.touch()
        console.until(lambda screen: "F failed" in row_of(screen, "llama-sft"))
        console.press("/")
        console.type("status=failed")
        console.press("Enter")
        console.until("1/1")
        console.press("l")
        console.until(lambda screen: "rank 1, which failed first" in screen and "Traceback" in screen)
        console.press("/")
        console.type("FINITE")
        console.press("Enter")
        screen = console.until(lambda screen: "▌" in row_of(screen, "RuntimeError"))
        assert "loss is not finite" in row_of(screen, "RuntimeError") and "this is all" in screen
        assert desk.show(2, llama)["failure"]["rank"] == 1

        # A copy with a lower learning rate, and nothing else changed.
        console.press("q")
        console.until("1/1")
        console.press("c")
        edit_learning_rate(console)
        console.press("C-s")
        (clone,) = ids(console.until("submitted as")) - {llama}
        old, new = (json.dumps(desk.show(3, group)["config"]) for group in (llama, clone))
        assert old.count('"3e-4"') == 1 and old.replace('"3e-4"', '"1e-4"') == new

        # All that runs is stopped, and the attached agent dies before it has answered.
        console.press("/", "C-u")
        console.type("status=running")
        console.press("Enter")
        console.until("1/2")
        console.press("*", "s")
        assert ids(box(console.until("Stop 2 groups"))) == {clone, left}
        proxy.hold()
        console.press("y")
        proxy.wait(answered=True)
        mesh.nodes[0].kill_agent()
        console.until("2 ordered to stop")
        want = dict.fromkeys([*fillers, clone], "stopped") | {llama: "failed"}
        until("all that ran to be stopped", lambda: desk.statuses(2) == want)
        assert all(desk.kinds(3, group).count("stopping") == 1 for group in (clone, left))

        # Filter and terminal are as they were.
        console.until(lambda screen: "no row holds 'status=running'" in screen and "via node-" in screen)
        console.press("Escape", "q")
        console.until(PROMPT.strip())
        assert console.modes() == {"alternate_on": "0", "cursor_flag": "1", "mouse_any_flag": "0", "keypad_flag": "0"}

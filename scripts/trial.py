"""scripts/try: starts a mesh on loopback, submits work with the command line, shows it, and cleans up."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from numpy_ddp.event_file import read_scalars
from scripts.loopback_mesh import LoopbackMesh, MeshTrouble
from scripts.trial_jobs import Trainer, TrainerSearch, demonstration, example

JOB_S = 150.0  # torchrun's four processes on two busy cores take a minute
POLL_S = 0.1
ENDED = {"completed": 0, "failed": 1, "stopped": 1}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(text: str) -> None:
    print(text, flush=True)


def say_if_heard(text: str) -> None:
    """The terminal or the reader may have gone away; then everything later goes nowhere too."""
    try:
        say(text)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Trial:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mesh = LoopbackMesh(directory)
        self.begun = time.monotonic()

    def start(self) -> Trainer:
        say("Starting a mesh of three agents on loopback, with two simulated H100 cards each ...")
        search = TrainerSearch(os.environ)
        try:
            self.mesh.start()
            say(f"  {self._elapsed()}  3 nodes are ready, attached at {self.mesh.address(1)}")
            trainer = search.found()
        finally:
            search.end()
        say(f"  {self._elapsed()}  training with {trainer.why}")
        return trainer

    def told(self) -> int:
        """One job from submit to its end, told line by line; the job's exit code."""
        trainer = self.start()
        self.heteroflow("nodes")
        group = self._submit(trainer)
        status = self._follow(group)
        self.heteroflow("show", group)
        self.heteroflow("events", group)
        self._result()
        say(f"\nThe group {status} after {self._elapsed().strip()}.")
        return ENDED[status]

    def shown(self, leaving: str) -> int:
        """Several jobs in the console until it is left; the console's exit code."""
        self.submit_demonstration(self.start())
        say(f"  {self._elapsed()}  opening the console: ? shows its keys, q {leaving}")
        code = run_in_terminal(self.command("console"))
        say(f"\nThe console was left after {self._elapsed().strip()}" + (f" (exit code {code})." if code else "."))
        self.heteroflow("ls")
        return code

    def submit_demonstration(self, trainer: Trainer) -> None:
        for document in demonstration(trainer, self.directory):
            self.mesh.api().call("POST", "/task-groups", document)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.begun:5.1f} s"

    def command(self, *arguments: str) -> list[str]:
        connection = ["--node", self.mesh.address(1), "--token-file", str(self.mesh.token_file)]
        return [sys.executable, "-m", "console.cli.main", *arguments, *connection]

    def heteroflow(self, *arguments: str) -> None:
        say(f"\n$ heteroflow {' '.join(arguments)}")
        subprocess.run(self.command(*arguments), check=False, stdin=subprocess.DEVNULL)

    def _submit(self, trainer: Trainer) -> str:
        job = self.directory / trainer.example
        job.write_text(example(trainer, self.directory / "checkpoints"))
        say(f"\n$ heteroflow submit {job.name}")
        command = self.command("submit", str(job), "-o", "json")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise MeshTrouble(f"submit ended with {done.returncode}: {done.stderr or done.stdout}")
        answer = json.loads(done.stdout)
        say(f"  {self._elapsed()}  {answer['group_id']} {answer['status']}")
        for warning in answer["warnings"]:
            say(f"           warning: {warning['message']}")
        return str(answer["group_id"])

    def _follow(self, group: str) -> str:
        """States as they change, and the first lines of each rank once it runs."""
        seen, heard = "pending", False
        deadline = time.monotonic() + JOB_S
        while seen not in ENDED:
            if time.monotonic() > deadline:
                raise MeshTrouble(f"the group is still {seen} after {JOB_S:g} s. {self.mesh.last_words(1)}")
            shown = self.mesh.api().call("GET", f"/task-groups/{group}")
            if shown["status"] != seen:
                seen = shown["status"]
                where = ", ".join(f"rank {rank} on {node}" for rank, node in enumerate(shown["nodes"]))
                say(f"  {self._elapsed()}  {seen}{': ' + where if where and seen not in ENDED else ''}")
            if seen not in ENDED and not heard and shown["status"] == "running":
                heard = self._first_lines(group, shown)
            time.sleep(POLL_S)
        return seen

    def _first_lines(self, group: str, shown: dict[str, Any]) -> bool:
        lines = []
        for task in shown["tasks"]:
            command = self.command("logs", group, "--rank", str(task["rank"]))
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            spoken = [line for line in done.stdout.splitlines() if " step " in line]
            if not spoken:
                return False
            lines.append(spoken[0])
        for line in lines:
            say(f"           {line}")
        return True

    def _result(self) -> None:
        checkpoints = self.directory / "checkpoints"
        curve = read_scalars(checkpoints / "tb_logs").get("train/loss", {})
        steps = sorted(curve)
        if steps:
            say(f"\nLoss: {curve[steps[0]]:.4f} at step {steps[0]}, {curve[steps[-1]]:.4f} at step {steps[-1]}")
            say(f"  {sparkline([curve[step] for step in steps])}")
        saved = sorted(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        if saved:
            meta = json.loads((saved[-1] / "meta.json").read_text())
            say(f"Checkpoint: {saved[-1].name}, world {meta['world']}, loss {meta['loss']:.4f}")

    def leave(self, keep_running: bool, keep_files: bool) -> None:
        if keep_running:
            self._explain_running()
            return
        if not keep_files:
            shutil.rmtree(self.directory)
        kept = (
            f"Everything it left is in {self.directory}" if keep_files else "Its files are removed (--keep keeps them)"
        )
        say_if_heard(f"The mesh was stopped, and no process of it is left. {kept}")
        say_if_heard("Next: docs/first-job.md, the same by hand; or ./scripts/try --keep-running, a mesh that stays.")

    def _explain_running(self) -> None:
        flags = f"--node {self.mesh.address(1)} --token-file {self.mesh.token_file}"
        say("\nThe mesh is still up. Look at it:")
        for verb in ("console", "ls", "queue", "watch"):
            say(f"  {Path(sys.executable).parent}/heteroflow {verb} {flags}")
        guards = " ".join(str(guard.pid) for guard in self.mesh.guards)
        say(f"End it:\n  kill {guards}; sleep 15; rm -rf {self.directory}")


def sparkline(values: list[float], width: int = 60) -> str:
    """The highest value of each bucket: a spike is never averaged away."""
    buckets = [values[len(values) * i // width : max(len(values) * (i + 1) // width, 1)] for i in range(width)]
    tops = [max(bucket) for bucket in buckets if bucket]
    low, high = min(tops), max(tops)
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[int((top - low) / ((high - low) or 1.0) * (len(bars) - 1))] for top in tops)


def run_in_terminal(command: list[str]) -> int:
    """A child that has the terminal, and that may stop itself (ctrl+z): then this process stops too, until `fg`."""
    child = subprocess.Popen(command)
    try:
        while True:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode
            os.kill(os.getpid(), signal.SIGSTOP)
            child.send_signal(signal.SIGCONT)
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGCONT)
            child.terminate()  # it puts the terminal back as it was
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
            child.wait()


def why_no_console(options: argparse.Namespace) -> str:
    """Nothing where the console can be opened."""
    if options.no_console:
        return "--no-console was given"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "there is no terminal"
    if os.environ.get("TERM", "") in ("", "dumb"):
        return f"it cannot paint on TERM={os.environ.get('TERM') or '(unset)'}"
    return ""


def _interrupted(number: int, frame: object) -> NoReturn:
    """Once: what follows is the cleaning up, and that is not to be interrupted."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt(128 + number)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/try",
        description="A mesh of three agents on this machine with real training on it: in the console where there is a "
        "terminal, told line by line where there is none. HETEROFLOW_TORCH=/path/to/venv says where torch is.",
    )
    parser.add_argument("--no-console", action="store_true", help="tell it line by line, in a terminal too")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints, curves and logs")
    parser.add_argument("--keep-running", action="store_true", help="leave the mesh up")
    options = parser.parse_args(arguments)
    for ending in ENDING:
        signal.signal(ending, _interrupted)
    directory = Path(tempfile.mkdtemp(prefix="heteroflow-try-"))
    trial = Trial(directory)
    keep_running = False
    result = 1
    try:
        if reason := why_no_console(options):
            say(f"No console, because {reason}: one job, told line by line.")
            result = trial.told()
        else:
            result = trial.shown("leaves it" if options.keep_running else "leaves it and ends the mesh")
        keep_running = options.keep_running
    except MeshTrouble as trouble:
        say(f"scripts/try could not finish: {trouble}")
    except KeyboardInterrupt as interrupt:
        result = interrupt.args[0]
        say_if_heard("\ninterrupted")
    except OSError as error:
        say_if_heard(f"scripts/try could not finish: {error}")
    finally:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        if not keep_running:
            say_if_heard("\nEnding the mesh and what runs on it ...")
            trial.mesh.stop()
    trial.leave(keep_running, keep_files=options.keep or result == 1)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The console on a real pseudo-terminal of 120x40, attached to a large mesh behind a real agent's API, beside a
`DataTable` twin under the same loads in the same run.

Values of rows change in the mesh; bytes are counted at the terminal, CPU is the process's own, and what either program
has on its screen is read with a terminal emulator: the newest value of every row in sight within a second.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benches.console_bench.mesh import TOKEN, name_of
from scripts.benches.console_bench.terminal import Terminal
from scripts.benches.submit import percentile

ROOT = Path(__file__).resolve().parents[2]
GROUPS = int(os.environ.get("HF_BENCH_GROUPS", "5000"))
NODES = int(os.environ.get("HF_BENCH_NODES", "1250"))
SECONDS = float(os.environ.get("HF_BENCH_SECONDS", "10"))
IDLE_S = float(os.environ.get("HF_BENCH_IDLE_S", "60"))
RATE = float(os.environ.get("HF_BENCH_RATE", "200"))
STARTS = int(os.environ.get("HF_BENCH_STARTS", "5"))
KEYS = int(os.environ.get("HF_BENCH_KEYS", "100"))
SETTLE_S = min(SECONDS, 4.0)
SEEN_WITHIN_S = float(os.environ.get("HF_BENCH_SEEN_S", "1"))
SLOW_LINK = 32_000
SLOW_SEEN_WITHIN_S = 5 * SEEN_WITHIN_S
KEY_PAUSE_S = 0.1
LOADED_WITHIN_S = 60.0

BUDGETS = {
    "first_paint_s": "<= 1.2",
    "key_p95_ms": "<= 50",
    "random_cpu_percent": "<= 3",
    "random_bytes_per_s": "<= 2000",
    "visible_cpu_percent": "<= 5",
    "visible_bytes_per_s": "<= 60000",
    "idle_cpu_percent": "<= 0.5",
    "idle_bytes_per_s": "<= 100",
    "slow_link_lateness_p95_ms": "<= 250",
    "rss_mb": "<= 120",
    "twin_random_cpu": ">= 10",
    "twin_random_bytes": ">= 50",
    "twin_visible_cpu": ">= 10",
    "twin_visible_bytes": ">= 4",
}


def loop_ms() -> float:
    """CPU time of a fixed piece of Python: what a core is worth now, with whatever else shares its parts."""
    begun = time.process_time()
    for at in range(200_000):
        str(at)
    return (time.process_time() - begun) * 1000


class Mesh:
    """The mesh in a process of its own."""

    def __init__(self, directory: Path, groups: int, nodes: int) -> None:
        words = [sys.executable, "-m", "scripts.benches.console_bench.mesh", str(directory), str(groups), str(nodes)]
        self._process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.address = str(self._heard()["address"])

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the mesh of the bench ended with {self._process.wait()}")
        return dict(json.loads(line))

    def begin(self, numbers: list[int] | None, seconds: float) -> None:
        """Changes of these groups, or of all that wait."""
        assert self._process.stdin is not None
        wanted = {"numbers": numbers, "rate": RATE, "seconds": seconds}
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()

    def ended(self) -> dict[str, tuple[float, int]]:
        """`{name: (when, what) of its last change}`, once all were made."""
        return {name: (at, value) for name, (at, value) in self._heard()["last"].items()}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


class Bench:
    def __init__(self, directory: Path, mesh: Mesh) -> None:
        self._directory, self.mesh = directory, mesh
        self._token_file = directory / "token"
        self._token_file.write_text(TOKEN)
        self._token_file.chmod(0o600)
        self.figures: dict[str, float] = {}
        self.wrong: list[str] = []

    @contextmanager
    def _terminal(self, *words: str) -> Iterator[Terminal]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "TEXTUAL_DISABLE_KITTY_KEY": "1",  # the emulator would print a part of its query
        }
        terminal = Terminal([sys.executable, *words], environment, ROOT)
        try:
            yield terminal
        finally:
            terminal.close()

    def _console_words(self) -> list[str]:
        return ["console", "--node", self.mesh.address, "--token-file", str(self._token_file)]

    def _attached(self) -> list[str]:
        return ["-m", "console.cli.main", *self._console_words()]

    def starts(self) -> None:
        painted, filled = [], []
        for _ in range(STARTS):
            with self._terminal(*self._attached()) as terminal:
                painted.append(terminal.until("▸ groups") - terminal.began)
                filled.append(terminal.until("run-") - terminal.began)
        self.figures |= {"first_paint_s": median(painted), "first_paint_worst_s": max(painted)}
        self.figures["first_rows_s"] = median(filled)

    def console(self) -> None:
        with self._terminal(*self._attached()) as terminal:
            self._to_the_end(terminal)
            time.sleep(SETTLE_S)
            self._window(terminal, "idle", IDLE_S)
            keys = []
            for at in range(KEYS):
                time.sleep(KEY_PAUSE_S)
                keys.append(terminal.paint_ms("k" if at % 16 < 8 else "j"))
            self.figures |= {"key_p50_ms": percentile(keys, 0.5), "key_p95_ms": percentile(keys, 0.95)}
            terminal.press("G")
            self._loads(terminal, "")
            self.figures["rss_mb"] = terminal.resident_mb()

    def twin(self) -> None:
        words = ["-m", "scripts.benches.console_bench.twin", self.mesh.address, TOKEN]
        with self._terminal(*words) as terminal:
            self._to_the_end(terminal)
            self._loads(terminal, "twin_")
            self.figures["twin_rss_mb"] = terminal.resident_mb()

    def slow_link(self) -> None:
        beats = self._directory / "beats"
        with self._terminal(
            "-m", "scripts.benches.console_bench.lateness", str(beats), *self._console_words()
        ) as terminal:
            self._to_the_end(terminal)
            terminal.bytes_per_s = SLOW_LINK
            begun = time.monotonic()
            self._load(terminal, "slow_link", self._in_sight(terminal), SLOW_SEEN_WITHIN_S)
            beaten = [tuple(map(float, beat.split())) for beat in beats.read_text().splitlines()]
        late = [by * 1000 for at, by in beaten if begun + SETTLE_S <= at <= begun + SETTLE_S + SECONDS]
        self.figures |= {"slow_link_lateness_p50_ms": median(late)}
        self.figures["slow_link_lateness_p95_ms"] = percentile(late, 0.95)

    def _to_the_end(self, terminal: Terminal) -> None:
        """Where the list holds groups that wait: whatever their order, the last one submitted is the last row."""
        terminal.until("run-")
        end = time.monotonic() + LOADED_WITHIN_S
        while not any(name_of(GROUPS) in line for line in terminal.shown()):
            if time.monotonic() > end:
                raise TimeoutError("the last group did not come; the screen is\n" + "\n".join(terminal.shown()))
            terminal.press("G")
            time.sleep(1.0)

    def _in_sight(self, terminal: Terminal) -> list[int]:
        return [int(name.removeprefix("run-")) for name in terminal.rows()]

    def _loads(self, terminal: Terminal, prefix: str) -> None:
        time.sleep(SETTLE_S)
        self._load(terminal, f"{prefix}random", None, SEEN_WITHIN_S)
        self._load(terminal, f"{prefix}visible", self._in_sight(terminal), SEEN_WITHIN_S)

    def _load(self, terminal: Terminal, name: str, numbers: list[int] | None, within_s: float) -> None:
        self.mesh.begin(numbers, SETTLE_S + SECONDS)
        time.sleep(SETTLE_S)
        self._window(terminal, name, SECONDS)
        self._check(terminal, name, self.mesh.ended(), within_s)

    def _window(self, terminal: Terminal, name: str, seconds: float) -> None:
        cpu_s, sent, begun = terminal.cpu_s(), terminal.sent_bytes(), time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - begun
        self.figures[f"{name}_cpu_percent"] = 100 * (terminal.cpu_s() - cpu_s) / elapsed
        self.figures[f"{name}_bytes_per_s"] = (terminal.sent_bytes() - sent) / elapsed

    def _check(self, terminal: Terminal, name: str, last: dict[str, tuple[float, int]], within_s: float) -> None:
        """Within this time of the last change every changed row in sight shows what it was changed to last."""
        made_at = max(at for at, _ in last.values())
        while True:
            now = time.monotonic()
            rows = terminal.rows(min(now, made_at + within_s))
            old = {row: value for row, value in rows.items() if row in last and last[row][1] != value}
            if (rows and not old) or now > made_at + within_s:
                break
            time.sleep(0.02)
        if not rows:
            self.wrong.append(f"{name}: no row of a waiting group is in sight")
        self.wrong += [f"{name}: {row} shows #{value}, not #{last[row][1]}" for row, value in old.items()]
        self.figures[f"{name}_rows_checked"] = float(sum(row in last for row in rows))
        self.figures[f"{name}_right_within_s"] = min(max(now - made_at, 0.0), within_s)


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="heteroflow-bench-") as place:
        mesh = Mesh(Path(place), GROUPS, NODES)
        try:
            bench = Bench(Path(place), mesh)
            loops = [loop_ms()]
            for part in (bench.starts, bench.console, bench.twin, bench.slow_link):
                part()
                loops.append(loop_ms())
        finally:
            mesh.close()
    figures = bench.figures | {"python_loop_ms": median(loops), "python_loop_best_ms": min(loops)}
    ratios = {
        f"twin_{load}_{what}": figures[f"twin_{load}_{unit}"] / figures[f"{load}_{unit}"]
        for load in ("random", "visible")
        for what, unit in (("cpu", "cpu_percent"), ("bytes", "bytes_per_s"))
        if figures[f"{load}_{unit}"]
    }
    return {"figures": figures, "ratios": ratios, "budgets": BUDGETS, "wrong": bench.wrong}

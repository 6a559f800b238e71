"""Where answers go: stdout for what was asked, stderr for everything said beside it."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from console.core.format import table
from console.core.sanitize import PLATFORM_MARK, sanitize
from console.core.value_yaml import value_yaml
from schemas.errors import Problem

if TYPE_CHECKING:
    from console.client import NoNodeAnswers


class Terminal:
    def __init__(self, out: TextIO, err: TextIO, environment: Mapping[str, str]) -> None:
        self.out, self.err, self.environment = out, err, environment
        self.is_tty = out.isatty()
        self.wide = self.as_yaml = False
        self.colours = self.is_tty and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        for stream in (out, err):
            # A terminal that lacks a character must not end the command; a pipe gets UTF-8 whatever the locale.
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")

    @property
    def cells(self) -> int:
        """Width for tables; 0 where lines go to a file, or wide ones are asked for, and nothing may be cut."""
        if not self.is_tty or self.wide:
            return 0
        try:
            return os.get_terminal_size(self.out.fileno()).columns or 80
        except OSError:
            return 80

    def line(self, text: str = "") -> None:
        self.out.write(text + "\n")

    def lines(self, texts: Sequence[str]) -> None:
        self.out.write("".join(text + "\n" for text in texts))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
        self.lines(table(head, rows, right, self.cells))

    def json(self, value: Any) -> None:
        """One value for programs, as JSON or YAML. ASCII only, so that no text inside can drive a terminal either."""
        self.out.write(value_yaml(value) if self.as_yaml else json.dumps(value, allow_nan=False) + "\n")

    def note(self, text: str) -> None:
        """A line of the platform beside a job's output. Its mark cannot stand in a job's text."""
        self.out.flush()
        self.err.write(f"{PLATFORM_MARK} {text}\n")
        self.err.flush()

    def problem(self, problem: Problem, node: str = "") -> None:
        """What happened, every finding, what to do."""
        self.out.flush()
        said = [
            f"heteroflow: {sanitize(problem.message)}"
            + (f" (said {sanitize(node)})" if node and not problem.findings else "")
        ]
        findings = [finding for finding in problem.findings if finding.message != problem.message]
        for finding in findings:
            said.append(f"  ✗ {sanitize(finding.message)}")
            said += [f"      {sanitize(finding.hint)}"] if finding.hint else []
        if not findings and problem.hint:
            hint = sanitize(problem.hint)
            said.append(f"  {hint[:1].upper()}{hint[1:]}")
        self.err.write("\n".join(said) + "\n")

    def no_node(self, error: "NoNodeAnswers") -> None:
        self.out.flush()
        said = ["heteroflow: no node answers"]
        said += [f"  ✗ {sanitize(node)}: {sanitize(why)}" for node, why in error.tried.items()]
        if error.maybe_done:
            said.append("  It may have been done all the same: look with `heteroflow ls` before you repeat it.")
        said.append(
            "  Check that heteroflow-agentd runs there and that the address is right, or name another node with --node."
        )
        self.err.write("\n".join(said) + "\n")

    def warnings(self, warnings: Sequence[Any]) -> None:
        for item in warnings:
            if isinstance(item, Mapping):
                self.err.write(f"warning: {sanitize(str(item.get('message', '')))}\n")
            else:
                self.err.write(f"warning: {sanitize(str(item))}\n")

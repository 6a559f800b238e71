"""Members of one kind as processes, and what each says of the others, with the time at which it said so."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Kind:
    """up, down: what a member's line looks like when it sees another come or be dead; group 1 is the name."""

    name: str
    command: Callable[[str, str, Sequence[str]], list[str]]
    up: re.Pattern[str]
    down: re.Pattern[str]


def ours(profile: str) -> Kind:
    def command(name: str, host: str, seeds: Sequence[str]) -> list[str]:
        module = "scripts.benches.swim_bench.member"
        return [sys.executable, "-m", module, name, f"{host}:7946", profile, *[f"{seed}:7946" for seed in seeds]]

    return Kind("mesh", command, re.compile(r"gossip: (\S+) is alive"), re.compile(r"gossip: (\S+) is dead"))


def serf(profile: str) -> Kind:
    def command(name: str, host: str, seeds: Sequence[str]) -> list[str]:
        return [
            "serf", "agent", f"-node={name}", f"-bind={host}:7946", f"-rpc-addr={host}:7373", f"-profile={profile}",
            "-log-level=info", "-retry-interval=1s", *[f"-retry-join={seed}:7946" for seed in seeds],
        ]  # fmt: skip

    return Kind("serf", command, re.compile(r"EventMemberJoin: (\S+)"), re.compile(r"EventMemberFailed: (\S+)"))


@dataclass(slots=True)
class Member:
    process: asyncio.subprocess.Process
    reading: "asyncio.Task[None]"
    up: set[str] = field(default_factory=set)
    down: dict[str, float] = field(default_factory=dict)  # by name: when it was said


class Swarm:
    """network: the second part of the addresses, 127.NETWORK.0.N."""

    def __init__(self, kind: Kind, network: int, count: int) -> None:
        self.kind, self._network = kind, network
        self.names = [f"m{number}" for number in range(1, count + 1)]
        self.members: dict[str, Member] = {}
        self.false_deaths: list[tuple[str, str]] = []
        self._killed: set[str] = set()

    def _host(self, name: str) -> str:
        return f"127.{self._network}.0.{name[1:]}"

    async def start(self, name: str) -> None:
        seeds = [self._host(seed) for seed in self.names[:3] if seed != name]
        process = await asyncio.create_subprocess_exec(
            *self.kind.command(name, self._host(name), seeds),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._killed.discard(name)
        member = Member(process, asyncio.create_task(asyncio.sleep(0)))
        member.reading = asyncio.create_task(self._read(name, member))
        self.members[name] = member

    async def _read(self, name: str, member: Member) -> None:
        assert member.process.stdout is not None
        async for raw in member.process.stdout:
            line = raw.decode(errors="replace")
            if found := self.kind.up.search(line):
                member.up.add(found[1])
                member.down.pop(found[1], None)
            elif found := self.kind.down.search(line):
                member.down[found[1]] = time.monotonic()
                # Who has just joined is told of deaths of old, which is no verdict of his.
                if found[1] in member.up and found[1] not in self._killed:
                    self.false_deaths.append((name, found[1]))
                member.up.discard(found[1])

    def whole(self) -> bool:
        return all(
            {*member.up, name} >= set(self.names) for name, member in self.members.items() if name not in self._killed
        )

    async def kill(self, names: Sequence[str]) -> float:
        """When."""
        self._killed.update(names)
        at = time.monotonic()
        for name in names:
            self.members[name].process.kill()
        for name in names:
            await self.members[name].process.wait()
        return at

    def seen(self, victim: str) -> list[float]:
        """When each of the living said that it is dead."""
        alive = [member for name, member in self.members.items() if name not in self._killed]
        return sorted(member.down[victim] for member in alive if victim in member.down)

    @property
    def living(self) -> int:
        return len(self.members) - len(self._killed)

    def cpu_s(self) -> float:
        return sum(_stat(member.process.pid) for name, member in self.members.items() if name not in self._killed)

    def rss_mb(self) -> float:
        """The mean."""
        pids = [member.process.pid for name, member in self.members.items() if name not in self._killed]
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * PAGE / 2**20 / len(pids)

    async def end(self) -> None:
        for member in self.members.values():
            if member.process.returncode is None:
                member.process.send_signal(signal.SIGKILL)
        for member in self.members.values():
            await member.process.wait()
            await member.reading


def _stat(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS

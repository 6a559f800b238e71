"""The voter beside this agent: started, watched, started again with backoff, never left behind.

The child ends with the agent twice over: it asks the kernel for a signal at its parent's death (the thread that forks
must be the main thread, or the child dies with that thread), and it holds a control socket whose other end closes with
us.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

EXIT_OK, EXIT_REFUSED, EXIT_ADDRESS, EXIT_DAMAGED = 0, 3, 4, 5
_NOT_RESTARTED = {2, EXIT_REFUSED, EXIT_DAMAGED}
_BACKOFF_MIN_S, _BACKOFF_MAX_S, _HEALTHY_AFTER_S = 0.2, 5.0, 10.0
_ADDRESS_TRIES = 3
_LOG_BYTES = 8 << 20
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VoterSettings:
    voter_dir: Path
    raft_id: int
    listen: str
    token_file: Path
    profile: str
    log_file: Path
    tls_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class VoterState:
    """What the agent shows of its voter: starting, running, waiting (to be started again), refused, stopped."""

    state: str
    pid: int | None = None
    exit_code: int | None = None
    text: str = ""


class VoterChild:
    def __init__(self, settings: VoterSettings, on_refused: Callable[[VoterState], None]) -> None:
        self._settings = settings
        self._on_refused = on_refused
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self.state = VoterState("starting")

    def command(self, control_fd: int) -> list[str]:
        settings = self._settings
        flags: dict[str, Path | str | int] = {
            "--data-dir": settings.voter_dir,
            "--raft-id": settings.raft_id,
            "--roster": settings.voter_dir / "roster.json",
            "--listen": settings.listen,
            "--token-file": settings.token_file,
            "--profile": settings.profile,
            "--control-fd": control_fd,
        }
        if settings.tls_dir is not None:
            flags["--tls-dir"] = settings.tls_dir
        return [sys.executable, "-m", "mesh.voter", *(str(word) for pair in flags.items() for word in pair)]

    async def run(self) -> None:
        """Until cancelled, or until the voter says that starting it again cannot help."""
        backoff_s, address_tries = _BACKOFF_MIN_S, 0
        while True:
            began = time.monotonic()
            code = await self._run_once()
            said = self._last_words()
            address_tries = address_tries + 1 if code == EXIT_ADDRESS else 0
            if code in _NOT_RESTARTED or address_tries >= _ADDRESS_TRIES:
                self.state = VoterState("refused", exit_code=code, text=said)
                log.error("the voter refuses to serve and is not started again: %s", said, extra={"exit_code": code})
                self._on_refused(self.state)
                return
            backoff_s = (
                _BACKOFF_MIN_S if time.monotonic() - began > _HEALTHY_AFTER_S else min(backoff_s * 2, _BACKOFF_MAX_S)
            )
            self.state = VoterState("waiting", exit_code=code, text=said)
            log.warning(
                "the voter ended; starting it again in %.1f s", backoff_s, extra={"exit_code": code, "said": said}
            )
            await asyncio.sleep(backoff_s)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        self._control = ours
        self._rotate()
        with theirs, self._settings.log_file.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
            )
        self.state = VoterState("running", pid=self._process.pid)
        try:
            return await self._process.wait()
        finally:
            ours.close()

    async def stop(self, patience_s: float = 5.0) -> None:
        """Closing the control socket asks for a clean end (the high-water mark is written); then it is made to."""
        process, control = self._process, self._control
        if control is not None:
            control.close()
        if process is None or process.returncode is not None:
            return
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self.state = VoterState("stopped", exit_code=process.returncode)

    def _rotate(self) -> None:
        """At a start, since the child has the file open while it lives; what it writes then is little."""
        path = self._settings.log_file
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_BYTES:
                path.replace(path.with_name(path.name + ".1"))

    def _last_words(self) -> str:
        """The last record of its log, which may have several lines."""
        try:
            with self._settings.log_file.open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 8192, 0))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        begins = [at for at, line in enumerate(lines) if _RECORD.match(line)]
        return "; ".join(lines[begins[-1] if begins else -1 :])[:2000]

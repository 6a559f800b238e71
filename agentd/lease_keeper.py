"""Keeps this host's lease: asks through two connections, counts from the moment of asking, writes what was granted.

The deadline goes to the mmapped file that guard and shims judge by, so that what is granted here holds there, also when
this process dies in the next instant.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agentd.lease_file import LeaseWriter, boottime_ns
from mesh.core.lease.holder import Holder
from schemas.errors import HeteroFlowError
from schemas.limits import RENEW_TIMEOUT_MS, Profile

log = logging.getLogger(__name__)


class Renewer(Protocol):
    async def renew(self, renewal: dict[str, Any], timeout_s: float = ...) -> dict[str, Any]: ...


class LeaseKeeper:
    """`on_change` is called when the lease begins to stand and when it lapses."""

    def __init__(
        self,
        node: str,
        uid: str,
        profile: Profile,
        writer: LeaseWriter,
        renewers: Sequence[Renewer],
        on_change: Callable[[], None],
    ) -> None:
        # What was granted to an earlier agent of this host stands: the file says until when.
        self._holder = Holder(node, uid, profile.renew_ms, until_ns=writer.deadline_ns)
        self._writer, self._renewers, self._on_change = writer, tuple(renewers), on_change
        self._asking: set[asyncio.Task[None]] = set()
        self._stood = False
        self._said: str | None = None

    @property
    def granted(self) -> bool:
        return self._holder.left_ms(boottime_ns()) > 0

    @property
    def left_ms(self) -> int:
        return self._holder.left_ms(boottime_ns())

    @property
    def age_s(self) -> float | None:
        """Since the last renewal that was granted was sent; None before the first."""
        sent_ns = self._holder.granted_sent_ns
        return (boottime_ns() - sent_ns) / 1e9 if sent_ns else None

    @property
    def refusal(self) -> str | None:
        return self._holder.refusal

    async def run(self) -> None:
        """No renewal waits for the answer of the one before, and a lapse is noticed though nobody answers."""
        try:
            while True:
                now_ns = boottime_ns()
                if (renewal := self._holder.renewal(now_ns)) is not None:
                    for renewer in self._renewers:
                        ask = asyncio.create_task(self._ask(renewer, renewal))
                        self._asking.add(ask)
                        ask.add_done_callback(self._asking.discard)
                self._tell()
                await asyncio.sleep((self._holder.next_ns - now_ns) / 1e9)
        finally:
            for ask in self._asking:
                ask.cancel()

    async def _ask(self, renewer: Renewer, renewal: dict[str, Any]) -> None:
        try:
            answer = await renewer.renew(renewal, timeout_s=RENEW_TIMEOUT_MS / 1000)
        except (HeteroFlowError, OSError, TimeoutError) as error:
            self._say(str(error) or type(error).__name__)
            return
        refusal = self._holder.answered(answer, boottime_ns())
        if answer["granted"]:
            self._writer.extend(self._holder.until_ns)
            self._say(None)
        else:
            self._say(refusal)
        self._tell()

    def _say(self, trouble: str | None) -> None:
        """A line for each change, not one a second."""
        if trouble is not None and trouble != self._said:
            log.warning("lease not renewed: %s", trouble, extra={"left_ms": self.left_ms})
        self._said = trouble

    def _tell(self) -> None:
        if self.granted != self._stood:
            self._stood = self.granted
            log.info("lease %s", "stands" if self._stood else "lapsed", extra={"left_ms": self.left_ms})
            self._on_change()

"""What one agent has for files of groups: those of its host, and a way to the agents that have the others."""

import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator

import aiohttp

from agentd.files.host_files import HostFiles
from agentd.files.uploads import Uploads
from schemas.errors import Overloaded

# Each is a thread, a descriptor or two and about 2 MiB; people and a few scripts at a time, and the host trains.
TRANSFERS_MAX, TRANSFERS_OF_CALLER_MAX = 32, 8
# Ranges of one download, or parts of one upload, are one entry in the audit.
TOLD_FOR_S = 600.0
_TOLD_MAX = 2048


class FileService:
    """session_to_peers: asks the other agents of the mesh."""

    def __init__(self, node_id: str, files: HostFiles, session_to_peers: aiohttp.ClientSession) -> None:
        self.node_id, self.files, self.session_to_peers = node_id, files, session_to_peers
        self.uploads = Uploads(files)
        self._open: Counter[str] = Counter()
        self._told: OrderedDict[tuple[object, ...], float] = OrderedDict()

    @contextlib.contextmanager
    def transfer(self, caller: str) -> Iterator[None]:
        """Raises Overloaded."""
        if self._open.total() >= TRANSFERS_MAX or self._open[caller] >= TRANSFERS_OF_CALLER_MAX:
            raise Overloaded(
                "too_many_transfers",
                f"{self._open[caller]} files are under way for you at this agent and {self._open.total()} in all; "
                f"at most {TRANSFERS_OF_CALLER_MAX} and {TRANSFERS_MAX} may be",
                "wait for one to end, or ask another node",
            )
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def told(self, what: tuple[object, ...]) -> bool:
        """Whether this access stands in the audit already."""
        at_s = self._told.get(what)
        return at_s is not None and time.monotonic() - at_s < TOLD_FOR_S

    def tell(self, what: tuple[object, ...]) -> None:
        self._told[what] = time.monotonic()
        self._told.move_to_end(what)
        if len(self._told) > _TOLD_MAX:
            self._told.popitem(last=False)

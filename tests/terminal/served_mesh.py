"""A mesh that stands still, served from a thread, for consoles in processes of their own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.snapshots.canned_mesh import CannedMesh, served


class ServedMesh:
    def __init__(self, mesh: CannedMesh) -> None:
        self.mesh, self.address = mesh, ""
        self._up, self._loop, self._end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        async with served(self.mesh) as self.address:
            self._up.set()
            await self._end.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def change(self, *changes: tuple[str, str, object]) -> None:
        asyncio.run_coroutine_threadsafe(self.mesh.change(*changes), self._loop).result(10)


@contextmanager
def served_mesh(mesh: CannedMesh) -> Iterator[ServedMesh]:
    serving = ServedMesh(mesh)
    serving.start()
    try:
        yield serving
    finally:
        serving.stop()

"""Frames of one turn share a message where both ends know how; an older release at either end gets them one by one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.transport.carrier import WebSocketCarrier
from mesh.transport.codec import FRAMES, MESSAGE_FILL, PREFIX, WireFault, framed, frames_of, messages

PAYLOADS = [b"%d" % n for n in range(200)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200) | st.just(b"x" * MESSAGE_FILL), max_size=30))
def test_frames_come_back_as_they_were_sent(payloads: list[bytes]) -> None:
    sent = list(messages(payloads))
    assert [frame for message in sent for frame in frames_of(message)] == payloads
    assert all(len(message) <= MESSAGE_FILL + PREFIX for message in sent)


def test_small_frames_share_a_message_and_a_large_one_goes_alone() -> None:
    large = b"x" * (MESSAGE_FILL + 1)
    assert [len(list(frames_of(m))) for m in messages([*PAYLOADS, large, b"after"])] == [200, 1, 1]


@pytest.mark.attack(40)
@pytest.mark.parametrize("message", [framed(b"abc")[:-1], framed(b"abc") + b"\x00", b"\x93\x01\xa1x\x80", b"\xff" * 4])
def test_half_a_frame_is_a_fault(message: bytes) -> None:
    with pytest.raises(WireFault, match="ends inside a frame"):
        list(frames_of(message))


@asynccontextmanager
async def session(server: Sequence[str], client: Sequence[str]) -> AsyncIterator[tuple[WebSocketCarrier, list[int]]]:
    """The client's carrier to an end that sends everything back, and the frames in each message that reached it."""
    shared: list[int] = []

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=server)
        await socket.prepare(request)
        receive = socket.receive

        async def counted(timeout: float | None = None) -> object:
            message = await receive(timeout)
            if isinstance(message.data, bytes) and socket.ws_protocol == FRAMES:
                shared.append(len(list(frames_of(message.data))))
            return message

        socket.receive = counted  # type: ignore[assignment,method-assign]  # counts
        carrier = WebSocketCarrier(socket)
        carrier.on_frame = carrier.send
        await carrier.run()
        return socket

    app = web.Application()
    app.router.add_get("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with ClientSession() as http, http.ws_connect(f"http://127.0.0.1:{port}/", protocols=client) as socket:
            yield WebSocketCarrier(socket), shared
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("server", "client"), [((FRAMES,), (FRAMES,)), ((), (FRAMES,)), ((FRAMES,), ()), ((), ())])
def test_both_ends_agree_whatever_their_releases(server: Sequence[str], client: Sequence[str]) -> None:
    async def run() -> tuple[list[bytes], list[int]]:
        got: list[bytes] = []
        async with asyncio.timeout(20), session(server, client) as (carrier, shared):
            whole = asyncio.Event()

            def take(frame: bytes) -> None:
                got.append(frame)
                if len(got) == len(PAYLOADS):
                    whole.set()

            carrier.on_frame = take
            running = asyncio.create_task(carrier.run())
            for payload in PAYLOADS:
                carrier.send(payload)
            await whole.wait()
            carrier.close()
            await running
        return got, shared

    got, shared = asyncio.run(run())
    assert got == PAYLOADS
    assert shared == ([len(PAYLOADS)] if server and client else [])


def test_a_paused_reader_gets_no_more_of_the_same_message() -> None:
    async def run() -> int:
        got: list[bytes] = []
        async with asyncio.timeout(20), session((FRAMES,), (FRAMES,)) as (carrier, _):
            third, last = asyncio.Event(), asyncio.Event()

            def take(frame: bytes) -> None:
                got.append(frame)
                if len(got) == 3:
                    carrier.pause()
                    third.set()
                elif frame == PAYLOADS[-1]:
                    last.set()

            carrier.on_frame = take
            running = asyncio.create_task(carrier.run())
            for payload in PAYLOADS:
                carrier.send(payload)
            await third.wait()
            for _ in range(50):
                await asyncio.sleep(0)
            paused_at = len(got)
            carrier.resume()
            await last.wait()
            carrier.close()
            await running
        return paused_at

    assert asyncio.run(run()) == 3

"""One process with nothing but gossip in it: `-m scripts.benches.swim_bench.member NAME ADDRESS PROFILE SEED...`.

Says on standard output what it comes to believe, one line each."""

import asyncio
import logging
import sys
import time

import aiohttp
from aiohttp import web

from mesh.core.swim import PROFILES, Config, Meta
from mesh.gossip import BODY_MAX, PATH, GossipDriver, HttpCarrier
from mesh.gossip.http import CONTENT_TYPE


async def serve(name: str, address: str, profile: str, seeds: tuple[str, ...]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)) as session:
        config = Config(name, "bench", Meta((address,), "1"), time.time_ns() // 1_000_000, PROFILES[profile], seeds)
        driver = GossipDriver(config, HttpCarrier(session, lambda at: f"http://{at}"))

        async def take(request: web.Request) -> web.Response:
            return web.Response(body=driver.take(await request.read()), content_type=CONTENT_TYPE)

        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_post(PATH, take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        await driver.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], tuple(sys.argv[4:])))

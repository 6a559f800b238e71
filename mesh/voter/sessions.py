"""Sessions of clients, the same on both carriers: requests in, answers, pushes and streams out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from mesh.store.feed import FeedFilter, Token
from mesh.store.state_reader import QueryRefused
from mesh.transport.carrier import Carrier
from mesh.transport.codec import WireFault, pack, unpack
from mesh.voter.answers import Reply
from mesh.voter.claims import claim_refusal, command_claim_refusal
from mesh.voter.feeds import FeedHub, Subscription, SubscriptionEnded
from schemas.errors import HeteroFlowError, InvalidInput, Problem

STREAMS_MAX = 64

_logger = logging.getLogger("heteroflow.sessions")


class Service(Protocol):
    """What a session asks of its voter."""

    feeds: FeedHub

    def propose(self, command: object, term: object, reply: Reply) -> None: ...

    def renew(self, renewal: object, reply: Reply) -> None: ...

    def beat(self) -> None: ...

    async def query(self, level: object, reads: object, min_idx: object) -> dict[str, Any]: ...

    def hello(self) -> dict[str, Any]: ...

    def status(self) -> dict[str, Any]: ...

    def leader_event(self) -> dict[str, Any] | None: ...


class Session:
    """One connection. local: it came over the Unix socket, so from this host. node: whose certificate was shown."""

    def __init__(self, service: Service, carrier: Carrier, local: bool, node: str | None = None) -> None:
        self._service, self._carrier, self._local, self._node = service, carrier, local, node
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: dict[int, asyncio.Task[None]] = {}
        self.greeted = False
        self._ops: dict[str, Callable[[int, dict[str, Any]], None]] = {
            "propose": self._propose,
            "renew": self._renew,
            "query": self._query,
            "subscribe": self._subscribe,
            "cancel": self._cancel,
            "beat": self._beat,
            "status": self._status,
            "hello": self._hello,
        }

    def on_frame(self, payload: bytes) -> None:
        """Raises WireFault for what is no request: the connection is closed."""
        request = unpack(payload)
        if (
            not isinstance(request, list)
            or len(request) != 3
            or not isinstance(request[0], int)
            or not isinstance(request[1], str)
            or not isinstance(request[2], dict)
        ):
            raise WireFault("a request is [id, op, {args}]")
        number, op, args = request
        handler = self._ops.get(op)
        if handler is None:
            self._refuse(
                number,
                Problem("unknown_op", f"{op!r:.80} is no operation of this voter", f"Known: {', '.join(self._ops)}."),
            )
            return
        handler(number, args)

    def push_leader(self) -> None:
        event = self._service.leader_event()
        if self.greeted and event is not None:
            self._carrier.send(pack([0, "leader", event]))

    def closed(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _answer(self, number: int, value: Any) -> None:
        self._carrier.send(pack([number, "ok", value]))

    def _refuse(self, number: int, problem: Problem) -> None:
        self._carrier.send(pack([number, "err", problem.to_dict()]))

    def _reply(self, number: int) -> Reply:
        def reply(value: Any, problem: Problem | None) -> None:
            if problem is not None:
                self._refuse(number, problem)
            else:
                self._answer(number, value)

        return reply

    def _hello(self, number: int, args: dict[str, Any]) -> None:
        if (problem := claim_refusal(self._node, args.get("node"))) is not None:
            self._refuse(number, problem)
            return
        self.greeted = True
        self._answer(number, self._service.hello())
        self.push_leader()

    def _propose(self, number: int, args: dict[str, Any]) -> None:
        command = args.get("command")
        if (problem := command_claim_refusal(self._node, command)) is not None:
            self._refuse(number, problem)
            return
        self._service.propose(command, args.get("term"), self._reply(number))

    def _renew(self, number: int, args: dict[str, Any]) -> None:
        if (problem := claim_refusal(self._node, args.get("node"))) is not None:
            self._refuse(number, problem)
            return
        self._service.renew(args, self._reply(number))

    def _beat(self, number: int, args: dict[str, Any]) -> None:
        if not self._local:
            self._refuse(number, Problem("not_local", "controllers beat on the leader's own host only", status=409))
            return
        self._service.beat()
        self._answer(number, {})

    def _status(self, number: int, args: dict[str, Any]) -> None:
        self._answer(number, self._service.status())

    def _query(self, number: int, args: dict[str, Any]) -> None:
        self._spawn(number, self._run_query(number, args))

    async def _run_query(self, number: int, args: dict[str, Any]) -> None:
        answer = await self._service.query(args.get("level", "linearizable"), args.get("reads"), args.get("min_idx"))
        self._answer(number, answer)

    def _subscribe(self, number: int, args: dict[str, Any]) -> None:
        if len(self._streams) >= STREAMS_MAX:
            self._refuse(
                number, Problem("too_many_streams", f"a session has at most {STREAMS_MAX} streams", status=409)
            )
            return
        try:
            feed_filter = FeedFilter.parse(args.get("filter"))
            token = Token.parse(args["token"]) if args.get("token") is not None else None
        except ValueError as error:
            self._refuse(number, Problem("invalid_subscription", str(error)))
            return
        subscription = Subscription(self._service.feeds, self._carrier, number, feed_filter)
        self._streams[number] = self._spawn(number, subscription.run(token))

    def _cancel(self, number: int, args: dict[str, Any]) -> None:
        """args: {id} of the stream to end."""
        stream = args.get("id")
        task = self._streams.pop(stream, None) if isinstance(stream, int) else None
        if task is not None:
            task.cancel()
            self._carrier.send(pack([stream, "end", None]))
        self._answer(number, {})

    def _spawn(self, number: int, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guard(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, number: int, work: Any) -> None:
        try:
            await work
        except (HeteroFlowError, SubscriptionEnded) as error:
            self._refuse(number, error.problem)
        except QueryRefused as refusal:
            self._refuse(number, InvalidInput(refusal.code, str(refusal)).problem)
        except ConnectionError:
            pass
        except Exception as error:
            _logger.exception("a request failed")
            self._refuse(
                number, Problem("internal", f"the voter could not do this ({type(error).__name__})", status=500)
            )
        finally:
            self._streams.pop(number, None)

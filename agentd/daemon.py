"""The agent of one host: everything is made here, started in order, and stopped in order. Tasks outlive it."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentd.checkpoints.run_manifest import RunManifests
from agentd.checkpoints.watch import CheckpointWatch
from agentd.claims.claimer import Claimer
from agentd.claims.task_paths import source_refusal
from agentd.config import Address, AgentConfig, ConfigError
from agentd.core.founding import Founding
from agentd.data_dir import DataDir, Identity
from agentd.debug_report import DebugReport
from agentd.exec_service import ExecService
from agentd.files.host_files import HostFiles
from agentd.files.service import FileService
from agentd.gossip_file import GossipFile
from agentd.gossip_keeper import GossipKeeper, gossip_carrier, gossip_session, say_goodbye
from agentd.gpu.base import Gpu, GpuAdapter, GpuSetupRefused
from agentd.gpu.choice import CardHold, choose_gpus
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.http.metrics import Vitals
from agentd.http.runner import AgentRunner
from agentd.identity.ca_desk import CaDesk
from agentd.identity.enrol import enrol
from agentd.identity.service import IdentityService
from agentd.identity.settle import given_join_token, open_tls, reachable_as, wants_tls
from agentd.identity.wiring import look_after_certificate
from agentd.join import (
    JoinDesk,
    ask_to_join,
    check_same_mesh,
    keep_founding,
    load_founding,
    settle_identity,
    settle_token,
)
from agentd.json_log import open_agent_log
from agentd.leadership import init_cluster
from agentd.lease_file import LeaseWriter, read_boot_id
from agentd.lease_keeper import LeaseKeeper
from agentd.log_loss import LogLoss
from agentd.log_service import LogService
from agentd.log_sweep import LogSweep
from agentd.node_facts import register_command
from agentd.node_feed import NodeFeed
from agentd.registration import keep_registered, register
from agentd.rejoin import Rejoin
from agentd.reporter import Reporter
from agentd.runtime.base import Observed, Runtime
from agentd.runtime.memory import MemoryRuntime
from agentd.runtime.process import ProcessRuntime
from agentd.task_host import TaskHost
from agentd.task_plan import TaskPlan
from agentd.telemetry.wiring import make_telemetry
from agentd.voter_child import VoterChild, VoterSettings, VoterState
from mesh.client import VoterClient
from mesh.controllers import Controllers
from mesh.core.identity.join_token import JoinToken
from mesh.core.swim import ConfigRefused
from mesh.gossip import GossipDriver
from mesh.pruner import Pruner
from mesh.security.mesh_tls import MeshTls
from mesh.security.wire import PlainWire
from schemas.limits import PROFILES
from schemas.rules.redaction import secret_values

log = logging.getLogger(__name__)
EXIT_STOPPED, EXIT_ADDRESS_IN_USE = 0, 4
# Of telemetry, to one look for new checkpoints.
_LOOKS_EVERY_ROUNDS = 5


class AddressInUse(Exception):
    """A port of ours is taken: which, and what to do (exit code 4)."""


class VoterRefused(Exception):
    """The only voter of this mesh cannot serve; `code` is its exit code."""

    def __init__(self, state: VoterState) -> None:
        super().__init__(state.text or f"the voter ended with {state.exit_code}")
        self.code = state.exit_code or 1


async def run_agent(config: AgentConfig) -> int:
    """The exit code. Raises ConfigError, DataDirRefused, AddressInUse, VoterRefused."""
    try:
        choose_gpus(config.gpus, config.name).close()
    except GpuSetupRefused as error:
        raise ConfigError(str(error)) from error
    data = DataDir.open(config.data_dir)
    try:
        log_lines = open_agent_log(data.log_dir, config.name)
        join_token = given_join_token(config, data)
        secure = wants_tls(config, data, join_token)
        identity = settle_identity(data, config)
        token = settle_token(data, config, identity, secure)
        for secret in (token, join_token.secret if join_token is not None else ""):
            if secret:
                log_lines.hide(secret)
        tls, ca = open_tls(config, data, identity) if secure else (None, None)
        agent = Agent(config, data, identity, token, tls, ca, join_token)
        agent.on_token = log_lines.hide
        return await agent.run()
    finally:
        data.close()


class Agent:
    def __init__(
        self,
        config: AgentConfig,
        data: DataDir,
        identity: Identity,
        token: str,
        tls: MeshTls | None = None,
        ca: CaDesk | None = None,
        join_token: JoinToken | None = None,
    ) -> None:
        self._config, self._data, self._identity, self._token = config, data, identity, token
        self._wire: MeshTls | PlainWire = tls or PlainWire()
        self._join_token = join_token
        self.on_token: Callable[[str], None] = lambda token: None
        """Is told the mesh token where that came only as this host joined."""
        certificates = (
            IdentityService(data, tls, ca, identity.node_id, reachable_as(config), str(config.api_public))
            if tls
            else None
        )
        self._desk = JoinDesk(data, identity, load_founding(data))
        self._api = Api(
            node_id=identity.node_id,
            desk=self._desk,
            health=self._health,
            extra_allowed_paths=config.extra_allowed_paths,
            identity=certificates,
        )
        self._api.debug = DebugReport(config, data, identity.node_id, self._health, self._secrets)
        self._stop = asyncio.Event()
        self._fatal: BaseException | None = None
        self._voter: VoterChild | None = None
        self._lease: LeaseKeeper | None = None
        self._host: TaskHost | None = None
        self._runtime: Runtime | None = None
        self._gossip: GossipDriver | None = None
        self._feed: NodeFeed | None = None
        self._joined = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        listener = _listen(self._config)
        hosts = (self._config.api_public.host, self._config.api.host)
        app = make_app(self._api, lambda: self._token, *hosts, wire=self._wire)
        runner = AgentRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        server = await self._wire.listen(runner, sock=listener)
        log.info("listening", extra={"api": str(self._config.api), "data_dir": str(self._data.root)})
        work = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                _raise_first(work)
            if self._fatal is not None:
                raise self._fatal
            return EXIT_STOPPED
        finally:
            stopping.cancel()
            if self._gossip is not None:
                await say_goodbye(self._gossip)
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({work})
            server.close()
            await runner.cleanup()
            if self._voter is not None:
                await self._voter.stop()
            log.info("stopped; tasks of this host go on under their leases")

    async def _serve(self) -> None:
        founding = await self._join()
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            if (seat := founding.seat_of(self._identity.uid)) is not None:
                self._voter = self._make_voter(seat.raft_id, len(founding.seats))
                group.create_task(self._voter.run())
            await self._run_parts(founding, stack, group)

    async def _join(self) -> Founding:
        config, identity = self._config, self._identity
        founding = load_founding(self._data)
        if founding is None and identity.role == "founder":
            await self._desk.frozen.wait()
            founding = self._desk.founding
        elif founding is None:
            if config.join is None:
                raise ConfigError(f"{config.data_dir} has not joined yet; say --join HOST:PORT --token-file F")
            founding = await self._ask_to_join(config.join)
        elif config.join is not None:
            await self._check_same_mesh(config.join)
        seat = founding.seat_of(identity.uid)
        if seat is not None and seat.voter_addr != str(config.voter_public):
            raise ConfigError(
                f"this node is a voter at {seat.voter_addr}, and voters do not move in this version; "
                f"start it with --voter {seat.voter_addr}"
            )
        if config.profile is not None and config.profile != founding.profile:
            raise ConfigError(f"this mesh runs profile {founding.profile}, not {config.profile}; leave --profile out")
        self._identity = keep_founding(self._data, identity, founding)
        self._desk.adopt(founding)
        return founding

    async def _ask_to_join(self, address: Address) -> Founding:
        config, identity = self._config, self._identity
        if isinstance(self._wire, PlainWire):
            async with self._wire.session(headers=self._bearer) as session:
                return (await ask_to_join(address, session, config, identity)).founding
        if self._wire.in_force:
            # It died between its certificate and the rest of the answer.
            async with self._wire.session(any_address=True) as session:
                return (await ask_to_join(address, session, config, identity)).founding
        if self._join_token is None:
            raise ConfigError(f"{config.data_dir} has not joined yet; say --join HOST:PORT --token-file F")
        return await self._enrol(address, self._join_token)

    async def _enrol(self, address: Address, token: JoinToken) -> Founding:
        assert isinstance(self._wire, MeshTls)
        founding, self._token = await enrol(address, token, self._config, self._identity, self._data, self._wire)
        self.on_token(self._token)
        return founding

    async def _check_same_mesh(self, address: Address) -> None:
        """A restart. A certificate that opens nothing any more is replaced by what a join token gives."""
        wire = self._wire
        if isinstance(wire, PlainWire):
            async with wire.session(headers=self._bearer) as session:
                await check_same_mesh(address, session, self._config, self._identity)
        elif wire.in_force:
            try:
                async with wire.session(any_address=True) as session:
                    await check_same_mesh(address, session, self._config, self._identity)
            except ConfigError:
                if self._join_token is None:
                    raise
                await self._enrol(address, self._join_token)
        elif self._join_token is not None:
            await self._enrol(address, self._join_token)
        else:
            log.warning("the certificate of this node is not in force; join again with a join token")

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _make_voter(self, raft_id: int, voters: int) -> VoterChild:
        settings = VoterSettings(
            voter_dir=self._data.voter_dir,
            raft_id=raft_id,
            listen=str(self._config.voter),
            token_file=self._data.token_path,
            profile=self._identity.profile,
            log_file=self._data.log_dir / "voter.log",
            tls_dir=self._data.tls_dir if self._wire.secure else None,
        )

        def refused(state: VoterState) -> None:
            # With other voters this host still serves and trains as a client of theirs; alone it can do nothing.
            if voters == 1 or state.exit_code == EXIT_ADDRESS_IN_USE:
                self._fatal = VoterRefused(state)
                self._stop.set()

        return VoterChild(settings, refused)

    async def _run_parts(self, founding: Founding, stack: contextlib.AsyncExitStack, group: asyncio.TaskGroup) -> None:
        identity = self._identity
        own_socket = [str(self._data.voter_dir / "voter.sock")] if identity.role == "voter" else []
        others = [seat.voter_addr for seat in founding.seats if seat.uid != identity.uid]
        wire = self._wire
        mesh = VoterClient([*own_socket, *others], self._token, node=identity.node_id, wire=wire)
        stack.push_async_callback(mesh.close)
        second = VoterClient([*others[1:], *others[:1], *own_socket], self._token, node=identity.node_id, wire=wire)
        stack.push_async_callback(second.close)
        # Between nodes with TLS the certificate says who calls; the token is for people and goes nowhere.
        session = await stack.enter_async_context(wire.session(headers={} if wire.secure else self._bearer))
        self._api.mesh = mesh
        controllers: Controllers | None = None
        if identity.role == "voter":
            own = VoterClient(own_socket, self._token, role="controllers", node=identity.node_id)
            stack.push_async_callback(own.close)
            group.create_task(init_cluster(own, founding))
            controllers = Controllers(own)
            group.create_task(Pruner(own, self._config.retention).run())
            group.create_task(controllers.run())
        writer = LeaseWriter(str(self._data.lease_path), read_boot_id())
        stack.callback(writer.close)
        feed = self._feed = NodeFeed(mesh, identity.node_id, self._wake)
        profile = PROFILES[founding.profile]
        self._lease = LeaseKeeper(identity.node_id, identity.uid, profile, writer, (mesh, second), self._wake)
        # Before anything that may take its time: tasks of an agent before us run under this lease.
        group.create_task(self._lease.run())
        session_of_gossip = await stack.enter_async_context(gossip_session(wire, self._token))
        carrier = gossip_carrier(wire, session_of_gossip)
        try:
            remembered = GossipFile(self._data.gossip_path)
            gossip = GossipKeeper(self._config, identity, founding, remembered, mesh, carrier)
        except ConfigRefused as error:
            # A hint that is missing is no reason to run no tasks.
            log.error("no gossip from this node: %s", error)
        else:
            self._gossip = self._api.gossip = gossip.driver
            group.create_task(gossip.run())

        gpus, adapter = await self._open_gpus(stack)
        backend = adapter.backend
        runtime = await self._open_runtime(stack)
        self._runtime = runtime

        registered = register_command(self._config, identity, runtime, backend, gpus)

        def facts() -> dict[str, Any]:
            return {**registered, "engine_down": runtime.trouble or None}

        index = await register(mesh, registered)
        group.create_task(keep_registered(mesh, facts, registered))
        # The voter this client is with has applied that now, so the feed's first snapshot shows it.
        await mesh.query([{"get": ["node", identity.node_id]}], level="stale", min_idx=index)

        reporter = Reporter(mesh, identity.node_id, identity.uid)
        rejoin = Rejoin(mesh, feed, identity.node_id, identity.uid)
        lost = LogLoss()
        logs = LogService(identity.node_id, runtime.log_dir, feed.status_of, session)
        execs = ExecService(runtime, session)
        files = HostFiles(self._config.allowed_paths, self._private_paths())
        self._api.files = FileService(identity.node_id, files, session)
        plan = TaskPlan(runtime, backend == "simulated", identity.cluster_id or "")
        telemetry = make_telemetry(
            identity.node_id,
            mesh,
            session,
            feed,
            runtime,
            adapter,
            self._data.root / "telemetry.db",
            self._config.telemetry_every_s,
            self._config.stall_after_s,
            self._api.identity.warning if self._api.identity is not None else lambda: None,
            self._config.rendezvous_after_s,
            self._config.stall_fails_after_s,
        )
        stack.push_async_callback(telemetry.history.close)
        cards = [gpu.uuid for gpu in gpus]
        claimer = Claimer(
            cards,
            self._config.allowed_paths,
            self._data.tasks_dir,
            self._config.api_public.host,
            runtime.get_image,
            self._private_paths(),
        )

        def after_pass(seen: Sequence[Observed]) -> None:
            logs.look(seen)
            execs.look(seen)
            telemetry.look(seen)
            lost.look(seen)
            rejoin.look(seen)

        host = TaskHost(
            feed,
            runtime,
            claimer,
            reporter,
            self._lease_granted,
            plan.claim_request,
            plan.task_spec,
            after_pass,
            RunManifests(self._config.allowed_paths).write,
        )
        self._api.vitals = Vitals(self._lease, lost, controllers)
        self._host, self._api.logs, self._api.telemetry, self._api.execs = host, logs, telemetry, execs
        sweep = LogSweep(mesh, self._data.tasks_dir, lambda: {*feed.groups, *host.groups})
        looks_every_s = _LOOKS_EVERY_ROUNDS * self._config.telemetry_every_s
        saves = CheckpointWatch(
            mesh,
            feed,
            identity.node_id,
            identity.uid,
            self._config.allowed_paths,
            every_s=looks_every_s,
            may_remove=self._lease_granted,
        )
        for part in (feed, reporter, rejoin, telemetry, sweep, saves):
            group.create_task(part.run())
        group.create_task(look_after_certificate(self._api, founding, session, mesh, telemetry.leader))
        # A voter that has not applied our registration may not know our orders either: it would make us stop healthy
        # tasks.
        await feed.reached(index)
        self._joined = True
        log.info("ready", extra={"role": identity.role, "cluster_id": founding.cluster_id, "gpus": len(cards)})
        await host.run()

    def _wake(self) -> None:
        if self._host is not None:
            self._host.wake()

    async def _open_gpus(self, stack: contextlib.AsyncExitStack) -> tuple[Sequence[Gpu], GpuAdapter]:
        try:
            adapter = choose_gpus(self._config.gpus, self._identity.node_id)
            stack.callback(adapter.close)
            gpus = await asyncio.to_thread(adapter.inventory)
            if adapter.backend == "nvml":
                hold = CardHold()
                stack.callback(hold.close)
                hold.take([gpu.uuid for gpu in gpus])
        except GpuSetupRefused as error:
            raise ConfigError(str(error)) from error
        log.info("cards: %s", adapter.state, extra={"faults": dict(adapter.faults)})
        return gpus, adapter

    async def _open_runtime(self, stack: contextlib.AsyncExitStack) -> Runtime:
        runtime: Runtime
        if self._config.runtime == "memory":
            runtime = MemoryRuntime(root=self._data.tasks_dir)
        elif self._config.runtime == "docker":
            # Only here: an agent without containers does not pay for the engine's client.
            from agentd.runtime.docker.plan import Owner
            from agentd.runtime.docker.runtime import DockerRuntime

            owner = Owner(self._identity.cluster_id, self._identity.node_id)
            socket_path = self._config.docker_socket
            runtime = DockerRuntime(
                self._data.tasks_dir, self._data.lease_path, owner, socket_path, self._mount_source_refusal
            )
        else:
            runtime = ProcessRuntime(self._data.tasks_dir, self._data.lease_path)
        await runtime.open()
        stack.push_async_callback(runtime.close)
        return runtime

    def _private_paths(self) -> Sequence[str]:
        """What no task is shown, whatever the allow-list says."""
        engine = [self._config.docker_socket] if self._config.runtime == "docker" else []
        return [str(self._data.root), *engine]

    def _mount_source_refusal(self, source: str) -> str | None:
        refusal = source_refusal("mount", source, self._config.allowed_paths, self._private_paths())
        return refusal.text if refusal is not None else None

    def _secrets(self) -> Iterator[str]:
        """Known to this agent: its own, and those of the groups that run here."""
        yield self._token
        if self._join_token is not None:
            yield self._join_token.secret
        for row in dict(self._feed.groups).values() if self._feed is not None else ():
            yield from secret_values(row["document"])

    def _lease_granted(self) -> bool:
        return self._lease is not None and self._lease.granted

    def _health(self) -> dict[str, Any]:
        voter = self._voter.state if self._voter is not None else None
        reasons = [] if self._joined else ["it has not joined the mesh yet"]
        if self._joined and not self._lease_granted():
            reasons.append("it has no lease: it is cut off from the leader, or was given up")
        if self._joined and voter is not None and voter.state == "refused":
            reasons.append("its voter was refused")
        if self._runtime is not None and self._runtime.trouble:
            reasons.append("its container engine does not answer: no container can be started")
        certificates = self._api.identity
        if certificates is not None and (warning := certificates.warning()) is not None:
            reasons.append(warning.text)
        status = "joining" if not self._joined else "degraded" if reasons else "ok"
        lease = self._lease
        return {
            "status": status,
            "reasons": reasons,
            "node_id": self._identity.node_id,
            "role": self._identity.role,
            "pid": os.getpid(),
            "voter": None if voter is None else {"state": voter.state, "pid": voter.pid, "text": voter.text},
            "certificate": None if certificates is None else certificates.facts(),
            "gossip": None if self._gossip is None else self._gossip.facts(),
            "lease": None
            if lease is None
            else {"granted": lease.granted, "left_ms": lease.left_ms, "refusal": lease.refusal},
        }


def _raise_first(work: "asyncio.Task[None]") -> None:
    """One part's failure ends them all; the group of them says nothing that the first does not."""
    try:
        work.result()
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group


def _listen(config: AgentConfig) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(
            config.api.host, config.api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--api {config.api} cannot be bound: {error.strerror}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"{config.api} is used by another process; stop it or start this agent with another --api address"
            ) from error
        raise ConfigError(f"--api {config.api} cannot be bound: {error.strerror}") from error
    listener.listen(256)
    return listener

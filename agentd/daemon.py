"""The agent of one host: everything is made here, started in order, and stopped in order. Tasks outlive it."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp

from agentd.checkpoints.run_manifest import RunManifests
from agentd.checkpoints.watch import CheckpointWatch
from agentd.claims.claimer import Claimer
from agentd.config import AgentConfig, ConfigError
from agentd.core.founding import Founding
from agentd.data_dir import DataDir, Identity
from agentd.debug_report import DebugReport
from agentd.exec_service import ExecService
from agentd.files.host_files import HostFiles
from agentd.files.service import FileService
from agentd.gossip_file import GossipFile
from agentd.gossip_keeper import GossipKeeper, gossip_carrier, gossip_session, say_goodbye
from agentd.gpu.base import GpuSetupRefused
from agentd.gpu.choice import choose_gpus, opened_gpus
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.http.metrics import Vitals
from agentd.http.runner import AgentRunner
from agentd.identity.settle import given_join_token, wants_tls
from agentd.identity.wiring import look_after_certificate
from agentd.join import (
    JoinDesk,
    load_founding,
    settle_identity,
    settle_token,
)
from agentd.json_log import open_agent_log
from agentd.leadership import init_cluster
from agentd.lease_file import LeaseWriter, read_boot_id
from agentd.lease_keeper import LeaseKeeper
from agentd.listener import listen
from agentd.log_loss import LogLoss
from agentd.log_service import LogService
from agentd.log_sweep import LogSweep
from agentd.membership import Membership
from agentd.node_facts import register_command
from agentd.node_feed import NodeFeed
from agentd.registration import keep_registered, register
from agentd.rejoin import Rejoin
from agentd.reporter import Reporter
from agentd.runtime.base import Observed, Runtime
from agentd.runtime_choice import choose_runtime, private_paths
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
from mesh.security.wire import PlainWire
from schemas.limits import PROFILES
from schemas.rules.redaction import secret_values

if TYPE_CHECKING:
    from agentd.identity.service import IdentityService

log = logging.getLogger(__name__)
EXIT_STOPPED, EXIT_ADDRESS_IN_USE = 0, 4
# Of telemetry, to one look for new checkpoints.
_LOOKS_EVERY_ROUNDS = 5


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
        certificates = _certificates(config, data, identity) if secure else None
        return await Agent(config, data, identity, token, certificates, join_token, log_lines.hide).run()
    finally:
        data.close()


def _certificates(config: AgentConfig, data: DataDir, identity: Identity) -> "IdentityService":
    # Only here: an agent without TLS does not pay for the library of certificates.
    from agentd.identity.service import IdentityService

    return IdentityService.open(config, data, identity)


class Agent:
    """on_token: is told the mesh token where that comes only as this host joins."""

    def __init__(
        self,
        config: AgentConfig,
        data: DataDir,
        identity: Identity,
        token: str,
        certificates: "IdentityService | None",
        join_token: JoinToken | None,
        on_token: Callable[[str], None],
    ) -> None:
        self._config, self._data, self._join_token = config, data, join_token
        wire = self._wire = certificates.tls if certificates is not None else PlainWire()
        desk = JoinDesk(data, identity, load_founding(data))
        self._membership = Membership(config, data, identity, token, wire, desk, join_token, on_token)
        self._api = Api(
            node_id=identity.node_id,
            desk=desk,
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

    @property
    def _identity(self) -> Identity:
        return self._membership.identity

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        listener = listen(self._config)
        hosts = (self._config.api_public.host, self._config.api.host)
        app = make_app(self._api, lambda: self._membership.token, *hosts, wire=self._wire)
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
        founding = await self._membership.settle()
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            if (seat := founding.seat_of(self._identity.uid)) is not None:
                self._voter = self._make_voter(seat.raft_id, len(founding.seats))
                group.create_task(self._voter.run())
            await self._run_parts(founding, stack, group)

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
        near, far = self._mesh_clients(founding, stack)
        # Between nodes with TLS the certificate says who calls; the token is for people and goes nowhere.
        headers = {} if self._wire.secure else self._membership.bearer
        session = await stack.enter_async_context(self._wire.session(headers=headers))
        self._api.mesh = near
        controllers = self._start_controllers(founding, stack, group) if self._identity.role == "voter" else None
        writer = LeaseWriter(str(self._data.lease_path), read_boot_id())
        stack.callback(writer.close)
        feed = self._feed = NodeFeed(near, self._identity.node_id, self._wake)
        profile = PROFILES[founding.profile]
        own = self._identity
        lease = self._lease = LeaseKeeper(own.node_id, own.uid, profile, writer, (near, far), self._wake)
        # Before anything that may take its time: tasks of an agent before us run under this lease.
        group.create_task(lease.run())
        await self._start_gossip(founding, near, stack, group)
        await self._run_host(founding, near, feed, session, lease, controllers, stack, group)

    def _mesh_clients(self, founding: Founding, stack: contextlib.AsyncExitStack) -> tuple[VoterClient, VoterClient]:
        """One that asks the voter of this host first, and one that asks it last."""
        identity, token = self._identity, self._membership.token
        others = [seat.voter_addr for seat in founding.seats if seat.uid != identity.uid]
        near = VoterClient([*self._own_voter, *others], token, node=identity.node_id, wire=self._wire)
        far_first = [*others[1:], *others[:1], *self._own_voter]
        far = VoterClient(far_first, token, node=identity.node_id, wire=self._wire)
        for client in (near, far):
            stack.push_async_callback(client.close)
        return near, far

    @property
    def _own_voter(self) -> list[str]:
        return [str(self._data.voter_dir / "voter.sock")] if self._identity.role == "voter" else []

    def _start_controllers(
        self, founding: Founding, stack: contextlib.AsyncExitStack, group: asyncio.TaskGroup
    ) -> Controllers:
        own = VoterClient(self._own_voter, self._membership.token, role="controllers", node=self._identity.node_id)
        stack.push_async_callback(own.close)
        controllers = Controllers(own)
        group.create_task(init_cluster(own, founding))
        group.create_task(Pruner(own, self._config.retention).run())
        group.create_task(controllers.run())
        return controllers

    async def _start_gossip(
        self, founding: Founding, mesh: VoterClient, stack: contextlib.AsyncExitStack, group: asyncio.TaskGroup
    ) -> None:
        session = await stack.enter_async_context(gossip_session(self._wire, self._membership.token))
        carrier = gossip_carrier(self._wire, session)
        try:
            remembered = GossipFile(self._data.gossip_path)
            gossip = GossipKeeper(self._config, self._identity, founding, remembered, mesh, carrier)
        except ConfigRefused as error:
            # A hint that is missing is no reason to run no tasks.
            log.error("no gossip from this node: %s", error)
            return
        self._gossip = self._api.gossip = gossip.driver
        group.create_task(gossip.run())

    async def _run_host(
        self,
        founding: Founding,
        mesh: VoterClient,
        feed: NodeFeed,
        session: aiohttp.ClientSession,
        lease: LeaseKeeper,
        controllers: Controllers | None,
        stack: contextlib.AsyncExitStack,
        group: asyncio.TaskGroup,
    ) -> None:
        """Registers this host and runs its tasks."""
        identity = self._identity
        try:
            gpus, adapter = await stack.enter_async_context(opened_gpus(self._config.gpus, identity.node_id))
        except GpuSetupRefused as error:
            raise ConfigError(str(error)) from error
        backend = adapter.backend
        runtime = self._runtime = choose_runtime(self._config, self._data, identity)
        await runtime.open()
        stack.push_async_callback(runtime.close)

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
        files = HostFiles(self._config.allowed_paths, private_paths(self._config, self._data))
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
            private_paths(self._config, self._data),
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
        self._api.vitals = Vitals(lease, lost, controllers)
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

    def _secrets(self) -> Iterator[str]:
        """Known to this agent: its own, and those of the groups that run here."""
        yield self._membership.token
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

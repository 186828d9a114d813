"""Composes settings, core and door, with signals, health and a watchdog. Makes no decisions of its own."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import structlog
import uvloop
from prometheus_client import Counter, Gauge, ProcessCollector

from broker.model import audit
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable, OperationDefect, OtherFormat, Problem
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.failure_log import FailureLog
from broker.settings import PREFIX, CommandSettings, LogFormat, Settings, SettingsError, files_of
from frontends import logs, version
from frontends.files import Files
from frontends.health import Health, HealthServer
from frontends.logins.connection_limits import ACCOUNT, ADDRESS, DISPLACED, FULL, ConnectionLimits
from frontends.logins.failed_logins import FailedLogins
from frontends.stopping import on_hangup, on_signal, run_until, wait_for_any
from frontends.tools.servers.redis import RedisServer
from frontends.watchdog import Watchdog

if TYPE_CHECKING:
    from frontends.tracing import Traces

_EMBEDDED = "embedded://"
_TURNS_A_WATCH = 5
_LONGEST_TURN_SECONDS = 1.0
_MEASURE_SECONDS = 15.0

_ENDING_SECONDS = 30.0
_EXPORT_SECONDS = 3.0

_STARTING = Refused(Problem.UNAVAILABLE, "the service is starting: it waits for Redis")

_log = structlog.get_logger()

_Kind = TypeVar("_Kind", bound=Settings)
_T = TypeVar("_T")


class Unfit(Exception):  # noqa: N818  (named after the state of Redis)
    """Redis may evict what the queue stores: one sentence for each such master."""


class FrontendDisconnected(Exception):  # noqa: N818  (named after the state of the frontend)
    """An administrator, or a newer version, has ended the frontend: it has drained, and should be restarted."""


class Occupied(Exception):  # noqa: N818  (named after the state of an address)
    """An address to listen on is not available."""


class _Sources(Generic[_Kind]):
    """Where settings come from, so that they can be read again: credentials and certificates may change while a door runs."""

    def __init__(self, settings: _Kind, read: Callable[[Path | None], _Kind], config: Path | None) -> None:
        """Look at the files of these settings, which were just read."""
        self._read = partial(read, config)
        self._files = Files(files_of(settings, config))

    async def watch(self, asked: asyncio.Event, use: Callable[[_Kind], Awaitable[None]]) -> None:
        """Read all again when `asked` and when a file changes; what cannot be used is logged, and what was used stays."""

        async def again() -> None:
            try:
                settings = self._read()
                logs.hide(settings.secrets)
                await use(settings)
            except (SettingsError, OSError) as fault:
                _log.error("changed files cannot be used: what was read before stays in use", reason=str(fault))
            else:
                _log.info("files were read again")

        await self._files.watch(asked, again)


def serve_xmpp(settings: Settings, read: Callable[[Path | None], Settings], config: Path | None) -> None:
    """Run the XMPP door until SIGTERM or SIGINT; raises Unfit and FrontendDisconnected.

    `read` has read the settings and `config`, and will again when their files change; likewise for the other doors.
    """
    _run(settings, _Sources(settings, read, config), _serve_xmpp)


def _run(
    settings: _Kind,
    sources: _Sources[_Kind],
    serve: "Callable[[_Kind, _Sources[_Kind], Watchdog, Traces | None], Coroutine[None, None, None]]",
) -> None:
    """Run a door with its logs, embedded Redis, watchdog and traces."""
    # Until it asks to look at the files, it must not end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logs.set_up(as_json=settings.log_format is LogFormat.JSON, secrets=settings.secrets)
    # The order matters: an embedded Redis dies with the thread that started it, the watchdog is a fork, and both must start
    # before the event loop and other threads.
    with contextlib.ExitStack() as stack:
        if settings.redis_url.startswith(_EMBEDDED):
            server = stack.enter_context(_embedded_redis(settings.redis_url.removeprefix(_EMBEDDED)))
            settings = settings.model_copy(update={"redis_url": server.url})
        watchdog = stack.enter_context(Watchdog(settings.watchdog_seconds))
        traces = stack.enter_context(_traces(settings))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, sources, watchdog, traces))


def serve_rest(settings: CommandSettings, read: Callable[[Path | None], CommandSettings], config: Path | None) -> None:
    """Run the RESTful door until SIGTERM or SIGINT; raises Unfit and Occupied."""
    _run(settings, _Sources(settings, read, config), _serve_rest)


def serve_amqp(settings: CommandSettings, read: Callable[[Path | None], CommandSettings], config: Path | None) -> None:
    """Run the AMQP door until SIGTERM or SIGINT; raises Unfit and Occupied."""
    _run(settings, _Sources(settings, read, config), _serve_amqp)


@contextlib.contextmanager
def _traces(settings: Settings) -> "Iterator[Traces | None]":
    """Set up tracing if configured; at the end it exports within the watchdog's time."""
    if not settings.traces:
        yield None
        return
    # The extra `otel` is optional.
    from frontends.tracing import set_up_export  # noqa: PLC0415

    with set_up_export(min(_EXPORT_SECONDS, settings.watchdog_seconds / 2)) as traces:
        yield traces


def _embedded_redis(directory: str) -> RedisServer:
    """Return the Redis of `embedded://`: persistent in a named directory, else in memory."""
    return RedisServer(Path(directory), options={"appendonly": "yes"}) if directory else RedisServer()


@dataclass(frozen=True, slots=True)
class _Frontend:
    """A core and a door: how they start and stop, since when they are `up`, and why they should get no work."""

    core: RedisCore
    reasons: Callable[[], list[str]]
    open: Callable[[], None]
    drain: Callable[[float], Coroutine[None, None, None]]
    at: str
    up: asyncio.Event


async def _serve_xmpp(
    settings: Settings, sources: _Sources[Settings], watchdog: Watchdog, traces: "Traces | None"
) -> None:
    # Neither another door nor a command needs slixmpp, which takes a tenth of their start.
    from frontends.xmpp.component import Component  # noqa: PLC0415

    component = Component(
        domain=settings.xmpp_domain,
        secret=settings.xmpp_secret.get_secret_value(),
        host=settings.xmpp_server.host,
        port=settings.xmpp_server.port,
        tls=settings.xmpp_context(),
        legacy_unlock_ns=settings.legacy_unlock_ns,
        strict_iq_type=settings.strict_iq_type,
        event_log=settings.event_log,
        node_defaults=settings.node_defaults,
    )
    core = RedisCore(settings, traces.outlet(component) if traces else component)
    asked = traces.core(core) if traces else core
    _Counters.of(core)

    Gauge(
        "stanzaq_xmpp_gets_for_sets",
        "Retracts and unlocks that came in an IQ of type get (QX1)",
        registry=core.metrics.registry,
    ).set_function(lambda: component.gets_for_sets)

    def reasons() -> list[str]:
        return [*core.healthy(), *([] if component.connected else ["there is no stream to the XMPP server"])]

    up = asyncio.Event()

    def link(connected: bool) -> None:  # noqa: FBT001  (the component's one argument)
        core.on_stream_state(connected)
        if connected:
            up.set()

    async def drain(seconds: float) -> None:
        # Open requests end and their deliveries are marked as sent while the stream still exists.
        component.refuse()
        await core.drain(seconds)
        await component.drain(seconds)

    async def use(fresh: Settings) -> None:
        core.roles.named = fresh.roles
        component.replace(fresh.xmpp_secret.get_secret_value(), fresh.xmpp_context())

    opening = partial(component.start, asked, link, core.roles.of)
    frontend = _Frontend(core, reasons, opening, drain, settings.xmpp_domain, up)
    await _keep(frontend, settings, watchdog, partial(sources.watch, use=use))


async def _serve_rest(
    settings: CommandSettings, sources: _Sources[CommandSettings], watchdog: Watchdog, traces: "Traces | None"
) -> None:
    # The extra `rest` is optional.
    from frontends.logins.passwords import Passwords  # noqa: PLC0415
    from frontends.rest.app import Door  # noqa: PLC0415
    from frontends.rest.auth.identity import Identity  # noqa: PLC0415
    from frontends.rest.http.server import HttpServer  # noqa: PLC0415
    from frontends.rest.http.values import SignOn  # noqa: PLC0415

    # HTTP clients fetch items: pushes are left to frontends that can send.
    core = RedisCore(settings, None, "rest")
    counters = _Counters.of(core)
    failed = counters.failed_logins("rest")
    passwords = Passwords(settings.http_passwords.get_secret_value(), failed)
    source = _TokenSource(settings, core)
    identity = Identity(passwords, source.tokens, settings.http_anonymous, failed)

    async def use(fresh: CommandSettings) -> None:
        core.roles.named = fresh.roles
        identity.replace_passwords(fresh.http_passwords.get_secret_value())
        if source.renew(fresh):
            identity.replace_tokens(source.tokens)

    door = Door(
        identity,
        rate=settings.http_rate,
        header_bytes=settings.http_header_bytes,
        body_bytes=settings.http_body_bytes,
        slow_seconds=settings.http_slow_seconds,
        subscriptions=settings.http_leases,
        proxies=settings.trusted_proxies,
        sign_on=SignOn(settings.jwt_issuer, settings.page_client, settings.page_scope)
        if settings.page_client
        else SignOn(),
    )
    held = settings.http_connections, settings.http_account_connections, settings.http_address_connections
    try:
        server = HttpServer(
            door,
            *settings.http_bind,
            slow_seconds=settings.http_slow_seconds,
            header_bytes=settings.http_header_bytes,
            connection_limits=counters.connection_limits(*held),
            keep_alive_seconds=settings.http_keep_alive,
            drain_seconds=settings.drain_seconds,
        )
    except OSError as fault:
        msg = f"{settings.http_bind}: {fault}"
        raise Occupied(msg) from fault

    def open_door() -> None:
        door.open(traces.core(core) if traces else core)
        server.start()

    frontend = _pull_frontend(
        core, server, open_door, lambda _seconds: server.drain(), str(settings.http_bind._replace(port=server.port))
    )
    await _keep(frontend, settings, watchdog, partial(sources.watch, use=use))


async def _serve_amqp(
    settings: CommandSettings, sources: _Sources[CommandSettings], watchdog: Watchdog, traces: "Traces | None"
) -> None:
    # The extra `amqp` is optional.
    from frontends.amqp.auth.identity import Identity  # noqa: PLC0415
    from frontends.amqp.auth.shared_keys import Keys  # noqa: PLC0415
    from frontends.amqp.server import AmqpServer, tls  # noqa: PLC0415
    from frontends.logins.passwords import Passwords  # noqa: PLC0415

    bind = settings.amqp_bind
    # Links read by themselves: this core pushes nothing.
    core = RedisCore(settings, None, "amqp")
    counters = _Counters.of(core)
    failed = counters.failed_logins("amqp")
    source = _TokenSource(settings, core)
    identity = Identity(
        Passwords(settings.amqp_passwords.get_secret_value(), failed),
        source.tokens,
        settings.amqp_anonymous,
        Keys(settings.amqp_event_hubs_keys.get_secret_value()),
        failed,
    )
    held = settings.amqp_connections, settings.amqp_account_connections, settings.amqp_address_connections
    try:
        context = tls(settings.amqp_certificate, settings.amqp_key, settings.amqp_client_ca)
        server = AmqpServer(identity, *bind, context=context, connection_limits=counters.connection_limits(*held))
    except OSError as fault:
        msg = f"{bind}: {fault}"
        raise Occupied(msg) from fault

    async def use(fresh: CommandSettings) -> None:
        core.roles.named = fresh.roles
        tokens = source.tokens if source.renew(fresh) else None
        identity.replace(fresh.amqp_passwords.get_secret_value(), fresh.amqp_event_hubs_keys.get_secret_value(), tokens)
        server.review()
        try:
            context = tls(fresh.amqp_certificate, fresh.amqp_key, fresh.amqp_client_ca)
        except OSError as fault:
            msg = f"{PREFIX}AMQP_CERTIFICATE: {fresh.amqp_certificate}, its key or the clients' authorities: {fault}"
            raise SettingsError(msg) from fault
        if context:
            await server.replace(context)

    opening = partial(server.start, traces.core(core) if traces else core)
    at = str(bind._replace(port=server.port))
    frontend = _pull_frontend(core, server, opening, server.drain, at)
    await _keep(frontend, settings, watchdog, partial(sources.watch, use=use))


class _TokenSource:
    """What verifies the tokens of a door, made again when their settings change."""

    def __init__(self, settings: Settings, core: RedisCore) -> None:
        """Tell the core what verified tokens say."""
        self._core = core
        self._made_of: tuple[object, ...] = ()
        self.renew(settings)

    def renew(self, settings: Settings) -> bool:
        """Verify by these settings; returns whether they are others."""
        # The extras `rest` and `amqp` have its library.
        from frontends.logins.tokens import Tokens  # noqa: PLC0415

        made_of = settings.jwt_keys, settings.jwt_roles
        if made_of == self._made_of:
            return False
        self._made_of = made_of
        # What a withdrawn key has signed, or a line that is gone has given, must not last.
        self._core.forget_tokens()
        self.tokens = Tokens(
            settings.jwt_keys,
            settings.jwt_issuer,
            settings.jwt_audience,
            settings.jwt_claim,
            role_claim=settings.jwt_role_claim,
            roles=settings.jwt_roles,
            group_claim=settings.jwt_group_claim,
            note=self._core.note_token,
        )
        return True


@dataclass(frozen=True, slots=True)
class _Counters:
    """Metrics that every frontend has, though only HTTP and AMQP count: failed logins, and refused connections."""

    logins: Counter
    connections: Counter

    @classmethod
    def of(cls, core: RedisCore) -> "_Counters":
        """Register them."""
        registry = core.metrics.registry
        refused = (
            "Connections to HTTP or AMQP that had no place, by `reason`: `account`, `address` or `full` is the limit that"
            " refused one; `displaced` ones made room, since nobody had logged in"
        )
        return cls(
            Counter("stanzaq_failed_logins", "Failed logins, by `door`", ["door"], registry=registry),
            Counter("stanzaq_connections_refused", refused, ["reason"], registry=registry),
        )

    def failed_logins(self, door: str) -> FailedLogins:
        """Return the failed logins of a door."""
        failed = FailedLogins(door)
        failed.count = self.logins.labels(door).inc
        return failed

    def connection_limits(self, most: int, of_account: int | None, of_address: int) -> ConnectionLimits:
        """Return the limits of a door's connections."""
        limits = ConnectionLimits(most, of_account, of_address)
        reasons = {reason: self.connections.labels(reason) for reason in (ACCOUNT, ADDRESS, FULL, DISPLACED)}
        limits.count = lambda reason: reasons[reason].inc()
        return limits


class _Serving(Protocol):
    @property
    def serving(self) -> bool: ...


def _pull_frontend(
    core: RedisCore,
    server: _Serving,
    open_door: Callable[[], None],
    leave: Callable[[float], Coroutine[None, None, None]],
    at: str,
) -> _Frontend:
    """Open a door whose core pushes nothing; until the frontend opens, each command is refused, as when Redis is lost."""
    core.refusal = _STARTING
    open_door()

    def serve() -> None:
        core.refusal = None

    def reasons() -> list[str]:
        return [*core.healthy(), *([] if server.serving else ["the server accepts no connections"])]

    async def drain(seconds: float) -> None:
        core.cancel_waits()
        await leave(seconds)
        await core.drain(seconds)

    # A server is up as soon as it listens.
    up = asyncio.Event()
    up.set()
    return _Frontend(core, reasons, serve, drain, at, up)


async def _keep(
    frontend: _Frontend,
    settings: Settings,
    watchdog: Watchdog,
    look: Callable[[asyncio.Event], Coroutine[None, None, None]],
) -> None:
    """Run a frontend from start to end, with probes and metrics; `look` reads its files again, and when an event asks for it."""
    core = frontend.core
    announced = asyncio.Event()

    def reasons() -> list[str]:
        # Ready only after the log says `serving`, so that whoever waits for the probe finds that line.
        return frontend.reasons() or ([] if announced.is_set() else ["it is starting"])

    Gauge(
        "stanzaq_ready", "1 when /readyz has no reason against this frontend", registry=core.metrics.registry
    ).set_function(lambda: not reasons())
    built = Gauge(
        "stanzaq_build_info",
        "1; its labels `version` and `functions` (the library in Redis) tell what runs",
        ["version", "functions"],
        registry=core.metrics.registry,
    )
    built.labels(*version.build()).set(1)
    ProcessCollector(registry=core.metrics.registry)
    # Half of the watchdog's time: /livez reports a hung loop before its process is killed.
    health = Health(reasons, core.metrics.registry, settings.watchdog_seconds / 2)
    stopping, hangup = on_signal(), on_hangup()
    with contextlib.ExitStack() as stack:
        if settings.metrics_bind is not None:
            stack.callback(HealthServer(health, *settings.metrics_bind).stop)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(look(hangup))
            watching = [group.create_task(_feed_watchdog(settings.watchdog_seconds, watchdog, health)), looking]
            beginning = group.create_task(_start(core, allow_eviction=settings.allow_eviction))
            await run_until(stopping, beginning)
            unfit = None if stopping.is_set() else beginning.result()
            served = not (stopping.is_set() or unfit)
            if served:
                frontend.open()
                watching.append(group.create_task(_measure(core)))
                await wait_for_any(frontend.up, stopping, core.ending)
                if frontend.up.is_set():
                    _log.info("serving", at=frontend.at, frontend=core.name)
                    announced.set()
                await wait_for_any(stopping, core.ending)
                if core.ending.is_set():
                    _log.warning("ending", frontend=core.name, reason=core.ended_why)
            # Changed files are for what comes, and nothing comes any more.
            looking.cancel()
            if served or not core.sends:
                _log.info("draining", seconds=settings.drain_seconds)
                await frontend.drain(settings.drain_seconds)
            await core.stop()
            for task in watching:
                task.cancel()
    if unfit:
        raise unfit
    if core.ending.is_set():
        raise FrontendDisconnected


async def _start(core: RedisCore, *, allow_eviction: bool) -> Unfit | OtherFormat | None:
    """Start; returns why this Redis must not be used."""
    try:
        await core.start()
    except OtherFormat as fault:
        return fault
    unfit = [] if allow_eviction else await _describe_unfit(core)
    return Unfit(*unfit) if unfit else None


async def _describe_unfit(core: RedisCore) -> list[str]:
    """Describe the masters that may evict keys; ignores those that do not answer or may not be asked."""
    try:
        found = await core.memory.evicting()
    except (CoreUnavailable, OperationDefect):
        return []
    return [f"{each.where}: {each.what} is {each.found}. {each.remedy}." for each in found]


async def _feed_watchdog(watch_seconds: float, watchdog: Watchdog, health: Health) -> None:
    """Show watchdog and probes that the event loop runs."""
    while True:
        watchdog.feed()
        health.turn()
        await asyncio.sleep(min(_LONGEST_TURN_SECONDS, watch_seconds / _TURNS_A_WATCH))


async def _measure(core: RedisCore) -> None:
    """Update the gauges of the nodes and their history."""
    failures = FailureLog("the nodes could not be counted")
    while True:
        try:
            await core.measure()
        except Exception as fault:  # noqa: BLE001  (logged; the service does not depend on it)
            failures.report(fault)
        else:
            failures.note_success()
        await asyncio.sleep(_MEASURE_SECONDS)


class Unreachable(Exception):  # noqa: N818  (named after the state of Redis)
    """The settings name a Redis that no other process can reach."""


def command(settings: CommandSettings, administrator: Jid, work: Callable[[RedisCore], Awaitable[_T]]) -> _T:
    """Run `work` on a core without a door, for an administrator; raises Unreachable.

    If Redis does not answer, it raises CoreUnavailable, which says where Redis is and why.
    """
    logs.set_up(as_json=settings.log_format is LogFormat.JSON)
    logging.getLogger().setLevel(logging.ERROR)
    if settings.redis_url.startswith(_EMBEDDED):
        directory = settings.redis_url.removeprefix(_EMBEDDED)
        if not directory:
            msg = "embedded:// without a directory is private to its frontend: name a directory, or another Redis"
            raise Unreachable(msg)
        settings = settings.model_copy(update={"redis_url": RedisServer(Path(directory)).url})
    rights = {"admins": (*settings.admins, administrator)}
    audit.ADDRESS.set(f"user {os.getuid()} at {socket.gethostname()}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_command(settings.model_copy(update=rights), work))


async def _command(settings: CommandSettings, work: Callable[[RedisCore], Awaitable[_T]]) -> _T:
    core = RedisCore(settings, None)
    try:
        await core.reach()
        return await work(core)
    finally:
        # Finish what has begun; frontends finish the rest.
        await core.drain(_ENDING_SECONDS)
        await core.stop()

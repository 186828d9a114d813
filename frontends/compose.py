"""The only joint: settings -> core -> door, with signals, health and a watchdog around them. Decides nothing."""

import asyncio
import contextlib
import signal
from pathlib import Path

import structlog
import uvloop
from prometheus_client import Gauge

from broker.model.problems import CoreUnavailable, ScriptDefect
from broker.redis_core.checkup import evicting
from broker.redis_core.service import RedisCore
from broker.settings import LogFormat, Settings
from frontends import logs
from frontends.health import Health, HealthServer
from frontends.servers.redis import RedisServer
from frontends.watchdog import Watchdog
from frontends.xmpp.component import Component

_EMBEDDED = "embedded://"
_PULSES_A_WATCH = 5
_LONGEST_PULSE_SECONDS = 1.0
_MEASURE_SECONDS = 15.0

_log = structlog.get_logger()


class Unfit(Exception):  # noqa: N818  (what Redis is)
    """Redis would lose what the queue holds: one sentence for each master that would."""


def serve_xmpp(settings: Settings) -> None:
    """Run the XMPP door until SIGTERM or SIGINT; raises Unfit."""
    logs.set_up(as_json=settings.log_format is LogFormat.JSON)
    # The order matters: an embedded Redis dies with the thread that started it, the watchdog is a fork, and neither
    # may find an event loop or other threads here yet. The watchdog's time begins when Redis has loaded its data.
    with contextlib.ExitStack() as stack:
        if settings.redis_url.startswith(_EMBEDDED):
            server = stack.enter_context(_embedded(settings.redis_url.removeprefix(_EMBEDDED)))
            settings = settings.model_copy(update={"redis_url": server.url})
        watchdog = stack.enter_context(Watchdog(settings.watchdog_seconds))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, watchdog))


def _embedded(directory: str) -> RedisServer:
    """Choose the Redis of `embedded://`: in a named directory it keeps what it holds, else it forgets."""
    return RedisServer(Path(directory), options={"appendonly": "yes"}) if directory else RedisServer()


async def _serve(settings: Settings, watchdog: Watchdog) -> None:
    component = Component(
        domain=settings.xmpp_domain,
        secret=settings.xmpp_secret.get_secret_value(),
        host=settings.xmpp_server.host,
        port=settings.xmpp_server.port,
        legacy_unlock_ns=settings.legacy_unlock_ns,
        strict_iq_type=settings.strict_iq_type,
        event_log=settings.event_log,
    )
    core = RedisCore(settings, component)

    Gauge(
        "stanzaq_xmpp_gets_for_sets",
        "Retracts and unlocks that came in an IQ of type get (QX1)",
        registry=core.metrics.registry,
    ).set_function(lambda: component.gets_for_sets)

    def reasons() -> list[str]:
        return [*core.healthy(), *([] if component.connected else ["there is no stream to the XMPP server"])]

    Gauge(
        "stanzaq_ready", "1 when /readyz has no reason against this frontend", registry=core.metrics.registry
    ).set_function(lambda: not reasons())
    # Half of the watchdog's time: a hung loop shows in /livez before its process is killed.
    health = Health(reasons, core.metrics.registry, settings.watchdog_seconds / 2)
    stopping = _stopping()
    with contextlib.ExitStack() as stack:
        if settings.metrics_bind is not None:
            stack.callback(HealthServer(health, *settings.metrics_bind).stop)
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(_pulse(settings.watchdog_seconds, watchdog, health))]
            await _until(stopping, group.create_task(core.start()))
            unfit = [] if stopping.is_set() else await _unfit(settings)
            if not (stopping.is_set() or unfit):
                component.start(core, core.link)
                if settings.metrics_bind is not None:
                    watching.append(group.create_task(_measure(core)))
                _log.info("serving", domain=settings.xmpp_domain)
                await stopping.wait()
                _log.info("draining", seconds=settings.drain_seconds)
                # What is under way ends and is marked as sent while there is still a stream to send it on.
                component.refuse()
                await core.drain(settings.drain_seconds)
                await component.drain(settings.drain_seconds)
            await core.stop()
            for task in watching:
                task.cancel()
    if unfit:
        raise Unfit(*unfit)


async def _unfit(settings: Settings) -> list[str]:
    """Tell of masters that would drop what the queue holds; who does not answer now is not judged."""
    if settings.allow_eviction:
        return []
    try:
        found = await evicting(settings.redis_url, settings.redis_timeout)
    except CoreUnavailable:
        return []
    return [f"{each.where}: {each.what} is {each.found}. {each.remedy}." for each in found]


def _stopping() -> asyncio.Event:
    """Give an event that SIGTERM or SIGINT sets; a second signal ends the process as if there were no drain."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


async def _until(stopping: asyncio.Event, starting: asyncio.Task[None]) -> None:
    """Wait for a start that may take for ever, or for the signal that calls it off."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait([waiting, starting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    starting.cancel()


async def _pulse(watch_seconds: float, watchdog: Watchdog, health: Health) -> None:
    """Show that the loop turns, to those who watch from outside."""
    while True:
        watchdog.feed()
        health.turn()
        await asyncio.sleep(min(_LONGEST_PULSE_SECONDS, watch_seconds / _PULSES_A_WATCH))


async def _measure(core: RedisCore) -> None:
    """Keep the gauges of the nodes fresh, for as long as somebody may read them."""
    while True:
        try:
            await core.measure()
        except (CoreUnavailable, ScriptDefect) as fault:
            _log.warning("the nodes could not be counted", error=str(fault))
        await asyncio.sleep(_MEASURE_SECONDS)

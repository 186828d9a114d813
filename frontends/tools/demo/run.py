"""`stanzaq demo`: starts the servers, runs the clients, prints the result. Must not know what the clients send."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from frontends.tools.demo.client import Unanswered
from frontends.tools.demo.frontend import Frontend
from frontends.tools.demo.play import Play, ServiceAddress, Workload
from frontends.tools.demo.tally import Summary, Tally
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError
from frontends.tools.servers.redis import RedisServer

_INTERRUPTED: Final = 130
"""The exit code of a shell for SIGINT."""


def main(  # noqa: PLR0913  (the options of the command)
    items: int,
    workers: int,
    credit: int,
    frontends: int,
    *,
    kill: bool,
    as_json: bool,
    afterwards: Callable[[str], int] = lambda _: 0,
) -> int:
    """Run the demo; 1 when anything was lost or left undone. Raises ServerError when its servers cannot start.

    `afterwards` gets the URL of the Redis when all is done, with workers still connected; its result, if not 0, is the exit code.
    """
    if kill and frontends == 1:
        msg = "after --kill at least one frontend must be left: --frontends 2"
        raise ServerError(msg)
    # Progress is for people; the last line of stdout is for programs.
    console = Console(stderr=True)
    workload = Workload(items, workers, credit)
    try:
        with ExitStack() as stack:
            with console.status(f"starting Redis, ejabberd and {frontends} frontends"):
                servers = stack.enter_context(_servers(frontends))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                looked = partial(afterwards, servers.redis_url)
                summary, failed = runner.run(_play(servers, workload, console, looked, kill=kill))
    except KeyboardInterrupt:
        return _INTERRUPTED
    if as_json:
        print(json.dumps(summary.record()))  # noqa: T201  (its purpose)
    else:
        Console().print(_table(summary))
    return 1 if summary.lost or summary.queued else failed


@dataclass(frozen=True, slots=True)
class _Servers:
    """A service that runs: its address for clients, its Redis, and its frontends."""

    address: ServiceAddress
    redis_url: str
    frontends: list[Frontend]


@contextmanager
def _servers(frontends: int) -> Iterator[_Servers]:
    """Run all servers; they end in reverse order, or with this process if it is killed."""
    with ExitStack() as stack:
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        settings = ejabberd.settings(redis.url) | {"TRUSTED_DOMAINS": ejabberd.anonymous}
        running = [stack.enter_context(Frontend(settings)) for _ in range(frontends)]
        address = ServiceAddress(ejabberd.domain, ejabberd.anonymous, ejabberd.host, ejabberd.c2s_port)
        yield _Servers(address, redis.url, running)


async def _play(
    servers: _Servers, workload: Workload, console: Console, afterwards: Callable[[], int], *, kill: bool
) -> tuple[Summary, int]:
    alive = list(servers.frontends)
    failed = 0

    async def at_the_end() -> None:
        nonlocal failed
        progress.stop()
        failed = await asyncio.to_thread(afterwards)

    with _progress(console) as progress:
        bars = [progress.add_task(name, total=workload.items) for name in ("published", "acknowledged")]

        def step(tally: Tally) -> None:
            for frontend in alive:
                frontend.must_live()
            for bar, done in zip(bars, (tally.published, tally.acknowledged), strict=True):
                progress.update(bar, completed=len(done))
            if kill and len(alive) == len(servers.frontends) and len(tally.acknowledged) * 2 >= workload.items:
                tally.note_kill(time.monotonic())
                alive.pop().kill()
                progress.console.print("killed one frontend")

        try:
            return await Play(servers.address, workload, step, at_the_end).run(), failed
        except* (ServerError, Unanswered) as faults:
            fault = faults.exceptions[0]
            while isinstance(fault, BaseExceptionGroup):
                fault = fault.exceptions[0]
            raise ServerError(str(fault)) from None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def _table(summary: Summary) -> Table:
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name in ("published", "delivered", "acknowledged", "redelivered", "duplicates", "queued", "lost"):
        table.add_row(name.replace("queued", "left in the queue"), f"{getattr(summary, name):,}")
    table.add_row("jobs/s", f"{summary.jobs_per_s:,}")
    table.add_row("latency p50", f"{summary.latency_ms.p50} ms")
    table.add_row("latency p99", f"{summary.latency_ms.p99} ms")
    if summary.killed:
        within = summary.resent_within_s
        table.add_row("takeover from the killed one", "incomplete" if within is None else f"within {within} s")
    return table

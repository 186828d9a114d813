"""A worker: functions for nodes, and a process that runs them until it is stopped. Must not know any transport."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from stanzaq import schemes
from stanzaq.codec import PLAIN, Codec
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.logs import show
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.publisher.declaring import check_create
from stanzaq.queue import Create
from stanzaq.transport.account import Password, Tls
from stanzaq.transport.interface import Transport
from stanzaq.worker import processes
from stanzaq.worker.hooks import Hooks
from stanzaq.worker.registration import MOST_JOBS
from stanzaq.worker.router import SCHEDULED, Router
from stanzaq.worker.runs import Runs
from stanzaq.worker.stopping import STUCK, Stop, end_at_once, end_if_blocked, watch_loop

log = logging.getLogger("stanzaq")

_END_SECONDS = 10.0
"""Time from the second signal to the end of the program, at most."""


class Worker(Router):
    """Processes the items of nodes with functions, which it declares as a router does, or includes.

    `url` is the account, `xmpp://user@example.org`, or over HTTP `https://user@example.org@queue.example.org`. `service` is
    the queue's domain; if it is not given, `queue.` before the account's. The password is a string, or a callable that
    returns it at each login; by default `STANZAQ_PASSWORD`.
    `address` is `host:port` of the XMPP server if it is not in DNS. `concurrency` jobs run at once; `prefetch` more are
    held ready. After `stop` or SIGTERM running jobs have `grace` seconds. With `create="if-missing"` missing nodes are
    created, and with `"update"` those changed whose options differ from what is declared. Workers of a `group` divide the
    partitions of their nodes among them. A `codec` changes payloads and results on their way: it encrypts them, say. Raises
    ValueError.
    """

    def __init__(  # noqa: PLR0913  (what users may say)
        self,
        url: str,
        *,
        service: str | None = None,
        password: Password = None,
        address: str | None = None,
        tls: Tls = "required",
        concurrency: int = 1,
        prefetch: int = 0,
        grace: Duration = 30.0,
        create: Create = "never",
        group: str | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Check the arguments; connects only in `run` or `serve`."""
        super().__init__()
        self._codec = codec or PLAIN
        self._resize(concurrency, prefetch)
        self._account = schemes.account(url, service, password, address, tls)
        self._group = schemes.check_group(self._account, group)
        self._grace = seconds(grace)
        self._create = check_create(create)
        self._stop = Stop()
        self._left = 0

    def _resize(self, concurrency: int, prefetch: int) -> None:
        if not (concurrency >= 1 and prefetch >= 0 and concurrency + prefetch <= MOST_JOBS):
            msg = f"concurrency={concurrency}, prefetch={prefetch}: together 1 to {MOST_JOBS} items are held at once"
            raise ValueError(msg)
        self._concurrency, self._credit = concurrency, concurrency + prefetch

    def run(self, *, concurrency: int | None = None) -> None:
        """Run as a program until SIGTERM or SIGINT; a second signal ends running jobs at once.

        `concurrency` replaces the worker's own. Exits with one line if the service cannot be used. Logs to stderr, unless
        logging is already set up.
        """
        if processes.runs_handlers() or _held:
            # This process imports the program for its handlers, or for the command that runs the worker.
            return
        if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None:  # noqa: SLF001
            msg = "worker.run() is a whole program, in the main thread and without an event loop: use `await worker.serve()` here"
            raise RuntimeError(msg)
        if concurrency is not None:
            self._resize(concurrency, self._credit - self._concurrency)
        show(logging.INFO)
        fault = ""
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve_until_signalled())
            except StanzaqError as error:
                fault = f"stanzaq: {error}"
            if self._left:
                # Neither asyncio nor Python would end before they do.
                log.warning("the program ends, although jobs go on: %d", self._left)
                end_at_once(fault)
        if fault:
            sys.exit(fault)

    async def serve(self) -> None:
        """Run in the current event loop until `stop`. Raises StanzaqError if the service cannot be used."""
        if processes.runs_handlers() or _held:
            return
        transport = schemes.worker(self._account, group=self._group)
        await self._serve(transport, self._hooks, self._grace)

    async def _serve(self, transport: Transport, hooks: Hooks, grace: float) -> None:
        if not self._tasks:
            msg = "the worker has no task: decorate a function with @worker.task(node)"
            raise ValueError(msg)
        if self._stop.serves:
            msg = "the worker runs already: make another Worker for another loop"
            raise RuntimeError(msg)
        runs = Runs(transport, self._tasks.values(), self._concurrency, hooks, self._codec)
        with self._stop.watched(runs.begin_no_more) as stopping:
            async with runs.lifespans():
                await self._work(transport, runs, stopping, grace)

    async def _work(self, transport: Transport, runs: Runs, stopping: asyncio.Event, grace: float) -> None:
        """Run jobs until `stop`."""
        await runs.start()
        self._publisher = runs.publisher = ConnectedPublisher(transport.sender(), self._codec)
        prepare = partial(self._declare, self._publisher)
        working = self._publisher.start(transport.run(runs, dict.fromkeys(self._queues, self._credit), prepare))
        waiting = asyncio.create_task(stopping.wait())
        watching = asyncio.create_task(watch_loop())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await runs.finish(self._stop.left_of(grace), owns=bool(self._group))
        finally:
            waiting.cancel()
            watching.cancel()
            runs.close()
            self._publisher = None
            await transport.close()
            if not working.done():
                working.cancel()
            await asyncio.wait({working})
            try:
                await runs.wait_closed()
            finally:
                self._left = runs.left
        if not working.cancelled():
            working.result()

    async def _declare(self, publisher: ConnectedPublisher, node: str, *, missing: bool) -> None:
        """Make a node what its tasks declare; raises StanzaqError."""
        queue = self._queues[node]
        wanted = {name: what for (where, name), what in self._schedules.items() if where == node}
        if missing or queue.options or wanted:
            await publisher.declare(queue, create=self._create)
        for name, (payload, when) in wanted.items():
            await publisher.schedule(node, name, payload, **when)
        if self._schedules:
            await self._forget_schedules(publisher, node, wanted)

    @staticmethod
    async def _forget_schedules(publisher: ConnectedPublisher, node: str, wanted: Collection[str]) -> None:
        """Delete what an earlier version of the program has scheduled, and this one does not. Raises StanzaqError."""
        try:
            found = await publisher.schedules(node)
        except StanzaqError:
            if wanted:
                raise
            # A node of others, or a collection.
            return
        for each in found:
            if each.id.startswith(SCHEDULED) and each.id not in wanted:
                await publisher.unschedule(node, each.id)
                log.info("%s of %s is deleted: the program has no such schedule", each.id, node)

    def stop(self) -> None:
        """Make `serve` end, also one that has not begun: no new jobs, and running ones have their grace.

        May be called from any thread.
        """
        self._stop.ask()

    async def _serve_until_signalled(self) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.create_task(self.serve())
        signalled, ended = 0, threading.Event()
        # For what does not end by being cancelled.
        ending = threading.Timer(_END_SECONDS, end_at_once, [STUCK])
        watching = threading.Thread(target=end_if_blocked, args=(loop, self._grace, ended))
        ending.daemon = watching.daemon = True

        def hear(_number: int, _frame: FrameType | None) -> None:
            nonlocal signalled
            signalled += 1
            if signalled == 1:
                # At once: a handler may block the event loop.
                self.stop()
                loop.call_soon_threadsafe(log.info, "stopping; a second signal ends running jobs at once")
                watching.start()
            elif signalled == 2:
                loop.call_soon_threadsafe(serving.cancel)
                ending.start()

        before = [(name, signal.signal(name, hear)) for name in (signal.SIGTERM, signal.SIGINT)]
        try:
            await serving
        except asyncio.CancelledError:
            if signalled < 2:
                raise
        finally:
            ended.set()
            ending.cancel()
            for name, handler in before:
                signal.signal(name, handler)


_held = False


@contextmanager
def held() -> Iterator[None]:
    """Let `run` and `serve` return at once: the command imports a program for its worker, whatever its last line is."""
    global _held  # noqa: PLW0603  (the import that is under way is the process's)
    _held = True
    try:
        yield
    finally:
        _held = False

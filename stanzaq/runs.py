"""Runs of jobs: runs the handler once per delivery, renews the lock meanwhile, and reports the outcome to the service.

A run ends in one of three ways: its handler ends, its lock is lost, or the worker stops. Must not know how stanzas look or who
registered which handler.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from stanzaq import logs, payloads
from stanzaq.errors import StanzaqError
from stanzaq.hooks import Hooks, Run
from stanzaq.job import Job
from stanzaq.retry import Reject, Release, decide_return
from stanzaq.task import IGNORES, SETTLE_SECONDS, Callers, Task
from stanzaq.transport import Content, Delivery, Lock, Progress, Transport

log = logging.getLogger("stanzaq")

_RENEWALS: Final = 3
"""A lock is renewed after a third of its time, so two renewals may fail before it ends."""

_RESULT_BYTES: Final = 65_536
"""The largest result that the service passes on."""

_APART: Final = (
    "a thread or process cannot be cancelled: its job goes on while others get its item; a longer grace lets it end"
)

_STOPPED: Final = Release("the worker stops")


class Runs:
    """All runs of one worker; receives the events of its transport."""

    def __init__(
        self,
        transport: Transport,
        tasks: Mapping[str, Task],
        concurrency: int,
        hooks: Hooks = Hooks(),  # noqa: B008  (a value)
        state: object = None,
    ) -> None:
        """Run `concurrency` jobs at once, each with a `state`; further deliveries wait here, under their locks."""
        self._transport = transport
        self._tasks = tasks
        self._state = state
        self._room = asyncio.Semaphore(concurrency)
        self._callers = Callers(concurrency)
        self._chains = {node: hooks.around(partial(self._call, task)) for node, task in tasks.items()}
        self._runs: dict[Lock, _Run] = {}
        self._of_item: defaultdict[tuple[str, str], set[_Run]] = defaultdict(set)
        self._leaving: asyncio.Task[None] | None = None
        self._cancelled: list[asyncio.Task[Release | None]] = []

    def deliver(self, delivery: Delivery) -> None:
        """Start the run of an item; a lock that is delivered again starts none."""
        lock = delivery.lock
        node = lock.node if lock.node in self._tasks else delivery.collection
        task = self._tasks.get(node)
        if lock in self._runs or task is None:
            return
        run = self._runs[lock] = _Run(self._transport, self._room, task, delivery, self._chains[node], self._state)
        self._of_item[lock.node, lock.item].add(run)
        run.task.add_done_callback(lambda _: self._forget(lock))
        if self._leaving:
            run.stop(self._leaving)

    def _forget(self, lock: Lock) -> None:
        run, runs = self._runs.pop(lock), self._of_item[lock.node, lock.item]
        # A task that was cancelled refers to frames, and so to the run: both would stay until Python collects garbage.
        del run.handling, run.task
        runs.discard(run)
        if not runs:
            del self._of_item[lock.node, lock.item]

    async def _call(self, task: Task, job: Job[Any]) -> None:
        """Call the handler, inside all middleware; raises what it raises."""
        if isinstance(job.payload, payloads.Unfit):
            # A new one: the frames of a fault that is raised refer to the job.
            raise payloads.Unfit(*job.payload.args)
        result = await self._callers.call(task, job)
        if result is not None:
            job._returned[:] = [result]  # noqa: SLF001  (the same package's)

    def lost(self, lock: Lock) -> None:
        """Cancel a run whose lock has ended."""
        if lock in self._runs:
            self._runs[lock].lose()

    def deleted(self, node: str, item: str) -> None:
        """Cancel a run whose item was deleted. Items acknowledged by this worker have no running handler."""
        for run in self._of_item.get((node, item), ()):
            run.lose()

    def locks(self, node: str) -> set[Lock]:
        """Return the locks of the runs of a node's task; those of a collection are on the nodes below it."""
        return {lock for lock, run in self._runs.items() if run.node == node}

    async def finish(self, grace: float) -> None:
        """Receive no more; return items not started yet at once, and those of jobs that do not end within `grace` seconds."""
        leaving = self._leaving = asyncio.create_task(self._transport.pause())
        try:
            await self._wait_for_runs(grace, leaving)
        finally:
            leaving.cancel()

    async def _wait_for_runs(self, grace: float, leaving: "asyncio.Task[None]") -> None:
        for run in list(self._runs.values()):
            if not run.began:
                run.stop(leaving)
        tasks = [run.task for run in self._runs.values()]
        if tasks:
            log.info("waiting up to %g s for %d running jobs", grace, len(tasks))
            await asyncio.wait(tasks, timeout=grace)
        for run in list(self._runs.values()):
            run.stop(leaving)
        if tasks:
            # Do not wait for a handler that ignores its cancellation, nor for a service that cannot be reached.
            await asyncio.wait(tasks, timeout=SETTLE_SECONDS)

    def close(self) -> None:
        """Cancel whatever still runs, and report nothing: there is no connection any more."""
        self._cancelled = [run.handling for run in self._runs.values()]
        for run in self._runs.values():
            run.task.cancel()
            run.cancel()
        self._callers.close()

    async def wait_closed(self) -> None:
        """Wait a moment for the handlers that `close` has cancelled."""
        if self._cancelled:
            await asyncio.wait(self._cancelled, timeout=SETTLE_SECONDS)
        for job in self._callers.jobs_running():
            log.warning(_APART, extra=logs.fields(job))

    @property
    def left(self) -> int:
        """The number of jobs that go on after `closed`."""
        return sum(not handling.done() for handling in self._cancelled) + len(self._callers.jobs_running())


class _Run:
    """One delivery, from its arrival until the service has confirmed its outcome."""

    def __init__(  # noqa: PLR0913, PLR0917  (what a run is)
        self, transport: Transport, room: asyncio.Semaphore, task: Task, delivery: Delivery, chain: Run, state: object
    ) -> None:
        self.node = task.node
        self._transport = transport
        self._room = room
        self._task = task
        self._chain = chain
        self._state = state
        self._delivery = delivery
        self._lost = self._ended = self._cancelled = False
        self._stopped: asyncio.Task[None] | None = None
        self._warning: asyncio.TimerHandle | None = None
        self._deadline = delivery.deadline
        self._returned: list[Any] = []
        self._lasts, self._renewed_at = 0.0, asyncio.get_running_loop().time()
        self.began = False
        self.handling = asyncio.create_task(self._run_handler())
        self.task = asyncio.create_task(self._work())

    def lose(self) -> None:
        """Cancel the handler because the lock has ended; report nothing to the service."""
        if not (self._lost or self._ended):
            log.warning("lock lost: the job is cancelled", extra=self._about)
            self._lost = True
            self.cancel()

    def stop(self, leaving: "asyncio.Task[None]") -> None:
        """Cancel the handler because the worker stops, and return the item once the worker has left: it would get it again."""
        if not self._ended:
            self._stopped = leaving
            self.cancel()

    def cancel(self) -> None:
        """Cancel the handler, and warn once if it ignores that."""
        self._cancelled = True
        self.handling.cancel()
        if self._warning is None:
            late = partial(log.warning, IGNORES, extra=self._about)
            warning = self._warning = asyncio.get_running_loop().call_later(SETTLE_SECONDS, late)
            self.handling.add_done_callback(lambda _: warning.cancel())

    @property
    def _about(self) -> dict[str, Any]:
        """The extra fields of a log record."""
        lock = self._delivery.lock
        return {"node": lock.node, "item": lock.item, "attempt": self._delivery.attempt, "token": lock.token}

    async def _work(self) -> None:
        renewing = asyncio.create_task(self._keep())
        try:
            # Unlike `await`, this tells a handler that was cancelled from a run that is.
            await asyncio.wait({self.handling})
        finally:
            self._ended = True
            self.handling.cancel()
            renewing.cancel()
        # Cancelled before its handler started.
        end = _STOPPED if self.handling.cancelled() else self.handling.result()
        if self._stopped:
            await asyncio.wait({self._stopped})
        try:
            await self._tell(end)
        except StanzaqError:
            log.exception("the end of a job could not be told: its lock will run out", extra=self._about)

    async def _tell(self, end: Release | None) -> None:
        """Acknowledge or return the item; do nothing if the lock has ended."""
        if self._lost:
            return
        done = await (self._acknowledge() if end is None else self._transport.release(self._delivery.lock, end))
        if not done:
            log.warning("the lock had ended before the job did: another worker gets the item", extra=self._about)

    async def _acknowledge(self) -> bool:
        """Acknowledge the item, with what its handler has returned; False if the lock has ended."""
        result = self._result()
        try:
            return await self._transport.acknowledge(self._delivery.lock, result)
        except StanzaqError as error:
            if result is None or error.condition != "not-acceptable":
                raise
            log.warning("a handler's result is dropped: %s", error, extra=self._about)
            return await self._transport.acknowledge(self._delivery.lock)

    def _result(self) -> Content | None:
        """Return what the handler has returned as a payload; None if that is nothing, or no payload of a fitting size."""
        if not self._returned:
            return None
        try:
            result = payloads.encode(self._returned[0])
        except Exception as error:  # noqa: BLE001  (a model's own methods may raise anything)
            log.warning("a handler's result is dropped: %s", error, extra=self._about)
            return None
        if len(result.body) > _RESULT_BYTES:
            told = f"it has {len(result.body)} bytes, at most {_RESULT_BYTES} are passed on"
            log.warning("a handler's result is dropped: %s", told, extra=self._about)
            return None
        return result

    async def _run_handler(self) -> Release | None:
        """Wait for room and run the handler; returns None if the item is completed, otherwise how to return it."""
        delivery, task = self._delivery, self._task
        attempts = min(filter(None, (delivery.max_attempts, task.retry.attempts)), default=0)
        async with self._room:
            self.began = True
            try:
                await self._run_of(attempts)
            except BaseException as error:
                # Any exception of a handler ends its job, not the worker.
                if self._cancelled:
                    return _STOPPED
                end = decide_return(error, delivery.attempt, attempts, task.retry)
                # The reason of a Reject says all that its author wants to say.
                told = not isinstance(error, Reject)
                log.warning("job failed: %s", end.reason, extra=self._about, exc_info=told)
                return end
        return None

    async def _run_of(self, attempts: int) -> None:
        """Run the handler inside the middleware."""
        delivery, lock, chain = self._delivery, self._delivery.lock, self._chain
        try:
            payload: Any = payloads.decode(delivery.content, self._task.payload)
        except payloads.Unfit as error:
            # Raised where the handler would be called, inside the middleware. Until then a value: this one has frames.
            payload = payloads.Unfit(*error.args)
        job: Job[Any] = Job(
            payload,
            lock.item,
            lock.node,
            lock.token,
            delivery.attempt,
            attempts,
            delivery.headers,
            delivery.key,
            delivery.published,
            delivery.deadline,
            self._state,
            self._renew,
            self._returned,
        )
        logs.current.set(logs.fields(job))
        await chain(job)

    async def _keep(self) -> None:
        """Renew the lock repeatedly until it is lost, or its time is over without an answer: another worker may have it then."""
        try:
            self._lasts = await self._transport.lock_seconds(self._delivery.lock.node)
        except StanzaqError:
            log.exception("a lock is not renewed: its time cannot be read", extra=self._about)
            return
        while not self._lost:
            await asyncio.sleep(self._lasts / _RENEWALS)
            try:
                async with asyncio.timeout_at(self._renewed_at + self._lasts):
                    await self._renew()
            except TimeoutError:
                self.lose()
            except StanzaqError:
                log.exception("a lock could not be renewed", extra=self._about)

    async def _renew(self, progress: Progress | None = None) -> None:
        asked = asyncio.get_running_loop().time()
        deadline = await self._transport.renew(self._delivery.lock, progress)
        if deadline is None:
            self.lose()
            return
        # An owner may have changed the lock time. Both deadlines are by the service's clock, so ours need not agree.
        longer = (deadline - self._deadline).total_seconds() - (asked - self._renewed_at)
        self._lasts, self._deadline, self._renewed_at = max(1.0, self._lasts + longer), deadline, asked

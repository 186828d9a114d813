"""Runs of jobs: runs the handler once per delivery, renews the lock meanwhile, and reports the outcome to the service.

A run ends in one of three ways: its handler ends, its lock is lost, or the worker stops. Must not know how stanzas look or who
registered which handler.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stanzaq import logs, payloads
from stanzaq.codec import PLAIN, Codec
from stanzaq.errors import StanzaqError
from stanzaq.job import Job
from stanzaq.publisher.connected import ConnectedPublisher, current
from stanzaq.publisher.publisher import make_item
from stanzaq.retry import Reject, Release, Retry, decide_before, decide_return
from stanzaq.transport.interface import PASSED, TASK, Content, Delivery, Lock, Outcome, Outgoing, Progress, Transport
from stanzaq.worker import passed
from stanzaq.worker.batches import Batches
from stanzaq.worker.callers import IGNORES, SETTLE_SECONDS, Callers
from stanzaq.worker.hooks import NO_HOOKS, Hooks, Run
from stanzaq.worker.processes import NotStartedError
from stanzaq.worker.registration import Registration

log = logging.getLogger("stanzaq")

_RENEWALS: Final = 3
"""A lock is renewed after a third of its time, so two renewals may fail before it ends."""

_RESULT_BYTES: Final = 65_536
"""The largest result that the service passes on."""

_MOST_THEN: Final = 10
_THEN_BYTES: Final = 262_144
"""The most items that the service publishes with an acknowledgement, and their payloads."""

_APART: Final = (
    "a thread or process cannot be cancelled: its job goes on while others get its item; a longer grace lets it end"
)

_STOPPED: Final = "the worker stops"

_TOLD_SECONDS: Final = 1.0
"""A job that has run for so long is told to have begun: if the worker dies, its item has lost an attempt, and no other."""

_DROPPED: Final = "a handler's result is dropped, for nobody asked for it: %s"

_LATER_SECONDS: Final = 10.0
"""How long an item rests whose job could not begin here; others may get it."""


class Runs:
    """All runs of one worker; receives the events of its transport."""

    def __init__(
        self,
        transport: Transport,
        tasks: Collection[Registration],
        concurrency: int,
        hooks: Hooks = NO_HOOKS,
        codec: Codec = PLAIN,
    ) -> None:
        """Run `concurrency` jobs at once; further deliveries wait here, under their locks."""
        self._transport = transport
        self.codec = codec
        self.publisher: ConnectedPublisher | None = None
        self.room = asyncio.Semaphore(concurrency)
        self._callers = Callers(tasks, concurrency)
        self._concurrency = concurrency
        self._hooks = hooks
        self._states: dict[object, object] = {}
        """What each lifespan has yielded."""
        self._tasks = defaultdict[str, dict[str, tuple[Registration, Run]]](dict)
        for task in tasks:
            self._tasks[task.node][task.name] = self._prepare(task)
        self._runs: dict[Lock, _Run] = {}
        self._of_item: defaultdict[tuple[str, str], set[_Run]] = defaultdict(set)
        self.begins_no_more = False
        self._leaving: asyncio.Task[None] | None = None
        self._cancelled: list[asyncio.Task[Release | None]] = []

    @asynccontextmanager
    async def lifespans(self) -> AsyncIterator[None]:
        """Run the lifespans of all tasks meanwhile, the worker's around those of its routers."""
        tasks = [task for named in self._tasks.values() for task, _ in named.values()]
        async with AsyncExitStack() as stack:
            for lifespan in dict.fromkeys(each for task in tasks for each in task.hooks.lifespans):
                self._states[lifespan] = await stack.enter_async_context(lifespan())
            yield

    def find_state(self, task: Registration) -> Any:  # noqa: ANN401  (what a lifespan yields)
        """Return the state of a task's jobs, which is its innermost lifespan's."""
        return self._states.get(task.hooks.lifespans[-1]) if task.hooks.lifespans else None

    async def start(self) -> None:
        """Start what a first job would wait for; raises StanzaqError if no job could begin."""
        await self._callers.start()

    def deliver(self, delivery: Delivery) -> None:
        """Start the run of an item; a lock that is delivered again starts none."""
        lock = delivery.lock
        node = lock.node if lock.node in self._tasks else delivery.collection
        if lock in self._runs or node not in self._tasks:
            return
        name = delivery.headers.get(TASK, "")
        task, chain = self._tasks[node].get(name) or self._refuse(node, name)
        run = self._runs[lock] = _Run(self, self._transport, task, delivery, chain)
        self._of_item[lock.node, lock.item].add(run)
        run.task.add_done_callback(lambda _: self._forget(lock))
        if self._leaving:
            run.stop(self._leaving)

    def _prepare(self, task: Registration) -> tuple[Registration, Run]:
        """Return a task, with all hooks around it, and what runs it inside all middleware."""
        hooks = task.hooks.inside(self._hooks)
        return replace(task, hooks=hooks), hooks.around(self._caller_of(task))

    def _refuse(self, node: str, name: str) -> tuple[Registration, Run]:
        """Return what makes a dead letter of an item: the worker has no task of its name."""
        tasks = self._tasks[node]
        known = ", ".join(repr(each) if each else "one without a name" for each in sorted(tasks))
        told = f"no task {name!r}" if name else "no task without a name"

        async def refuse(_job: Job[Any]) -> None:
            msg = f"the worker has {told} for {node}: it has {known}"
            raise Reject(msg)

        any_task, _ = next(iter(tasks.values()))
        settings: dict[str, Any] = {"retry": Retry(), "timeout": None, "run_in": "loop", "batch": 0, "hooks": NO_HOOKS}
        return self._prepare(replace(any_task, handler=refuse, payload=Any, **settings))

    def _forget(self, lock: Lock) -> None:
        run, runs = self._runs.pop(lock), self._of_item[lock.node, lock.item]
        # A task that was cancelled refers to frames, and so to the run: both would stay until Python collects garbage.
        del run.handling, run.task
        runs.discard(run)
        if not runs:
            del self._of_item[lock.node, lock.item]

    def _caller_of(self, task: Registration) -> Run:
        """Return what runs a job of a task inside all middleware."""
        if task.batch:
            return partial(self._call_with_others, Batches(task, self._callers, self._concurrency))
        return partial(self._call, task)

    async def _call_with_others(self, batches: Batches, job: Job[Any]) -> None:
        """Let the handler run a job beside others; raises what it has failed with."""
        if isinstance(job.payload, payloads.Unfit):
            raise payloads.Unfit(*job.payload.args)
        result = await batches.run(job)
        if result is not None:
            job._returned[:] = [result]  # noqa: SLF001  (the same package's)

    async def _call(self, task: Registration, job: Job[Any]) -> None:
        """Call the handler, inside all middleware; raises what it raises."""
        if isinstance(job.payload, payloads.Unfit):
            # A new one: the frames of a fault that is raised refer to the job.
            raise payloads.Unfit(*job.payload.args)
        result = await self._callers.call(task, job, job._begin)  # noqa: SLF001  (the same package's)
        if result is not None:
            job._returned[:] = [result]  # noqa: SLF001

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

    def locks_of(self, node: str, item: str) -> list[Lock]:
        """Return the locks of the runs of an item."""
        return [run.lock for run in self._of_item.get((node, item), ())]

    async def find_end(self, node: str, item: str) -> Outcome:
        """Read how an item has ended, over the worker's connection. Raises StanzaqError."""
        assert self.publisher is not None
        return await self.publisher.find_end(node, item)

    def begin_no_more(self) -> None:
        """Let no further job begin. May be called from any thread, and while a handler blocks the event loop."""
        self.begins_no_more = True

    async def finish(self, grace: float, *, owns: bool = False) -> None:
        """Receive no more; return items not started yet at once, and those of jobs that do not end within `grace` seconds.

        A worker that `owns` partitions receives, but begins nothing, until its jobs have ended: when it leaves, its locks end.
        """
        if owns:
            ends = asyncio.get_running_loop().time() + grace
            if began := [run.task for run in self._runs.values() if run.began]:
                await asyncio.wait(began, timeout=grace)
            grace = max(0.0, ends - asyncio.get_running_loop().time())
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
            log.info("waiting up to %g s for %d running jobs", round(grace, 1), len(tasks))
            await asyncio.wait(tasks, timeout=grace)
        for run in list(self._runs.values()):
            run.stop(leaving)
        # Items that arrive until the worker has left are returned as well. Do not wait for a handler that ignores its
        # cancellation, nor for a service that cannot be reached.
        ends = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            tasks = [task for task in (leaving, *(run.task for run in self._runs.values())) if not task.done()]
            if not tasks:
                break
            await asyncio.wait(tasks, timeout=left)

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

    def __init__(self, runs: Runs, transport: Transport, task: Registration, delivery: Delivery, chain: Run) -> None:
        self.node, self.lock = task.node, delivery.lock
        self._runs = runs
        self._transport = transport
        self._task = task
        self._chain = chain
        self._delivery = delivery
        self._lost = self._ended = self._cancelled = False
        self._stopped: asyncio.Task[None] | None = None
        self._warning: asyncio.TimerHandle | None = None
        self._deadline = delivery.deadline
        self._returned: list[Any] = []
        self._then: list[Outgoing] = []
        self._result: Content | None = None
        self._lasts, self._renewed_at = 0.0, asyncio.get_running_loop().time()
        self._is_told = False
        self._telling: asyncio.TimerHandle | None = None
        self._announcement: asyncio.Task[None] | None = None
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
        lock = self.lock
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
            for each in (self._telling, self._announcement):
                if each is not None:
                    each.cancel()
        # Cancelled before its handler started.
        end = self._return_stopped() if self.handling.cancelled() else self.handling.result()
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
        done = await (self._acknowledge() if end is None else self._transport.release(self.lock, end))
        if not done and self.began:
            log.warning("the lock had ended before the job did: another worker gets the item", extra=self._about)

    async def _acknowledge(self) -> bool:
        """Acknowledge the item, with what its handler has returned, and noted to be published; False if the lock has ended."""
        lock, result, then = self.lock, self._result, self._then
        try:
            return await self._transport.acknowledge(lock, result, then)
        except StanzaqError as error:
            if then:
                return await self._transport.release(lock, self._return_failed(error))
            if result is None or error.condition != "not-acceptable":
                raise
            if self._delivery.reply:
                return await self._transport.release(lock, self._return_failed(_refuse_result(error)))
            log.warning(_DROPPED, error, extra=self._about)
            return await self._transport.acknowledge(lock)

    def _read_result(self) -> Content | None:
        """Return what the handler has returned as a payload; None if it is nothing, or cannot be sent and nobody asked for it.

        Raises TypeError if it cannot be sent and somebody asked.
        """
        if not self._returned:
            return None
        try:
            result = self._runs.codec.encode(payloads.encode(self._returned[0]), self.lock.node)
            if len(result.body) > _RESULT_BYTES:
                msg = f"it has {len(result.body)} bytes, at most {_RESULT_BYTES} are passed on"
                raise ValueError(msg)  # noqa: TRY301
        except Exception as error:
            # A model's own methods may raise anything.
            if self._delivery.reply:
                raise _refuse_result(error) from error
            log.warning(_DROPPED, error, extra=self._about)
            return None
        return result

    async def _run_handler(self) -> Release | None:
        """Wait for room and run the handler; returns None if the item is completed, otherwise how to return it."""
        delivery, task = self._delivery, self._task
        if used_up := decide_before(delivery.attempt, task.retry):
            log.warning("job not begun: %s", used_up.reason, extra=self._about)
            return used_up
        async with self._runs.room:
            try:
                await self._wait_while_stopping()
                await self._run_of(self._attempts)
                self._result = self._read_result()
            except BaseException as error:  # noqa: BLE001  (any exception of a handler ends its job, not the worker)
                if self._cancelled:
                    return self._return_stopped()
                if isinstance(error, NotStartedError):
                    log.error("job not begun: %s", error, extra=self._about)  # noqa: TRY400  (the text says it all)
                    return Release(str(error), _LATER_SECONDS, untried=True)
                return self._return_failed(error)
        return None

    @property
    def _attempts(self) -> int:
        """The most attempts of the item; 0 is no limit."""
        return min(filter(None, (self._delivery.max_attempts, self._task.retry.attempts)), default=0)

    def _return_stopped(self) -> Release:
        """Return how to return the item when the worker stops: what has not begun has lost no attempt."""
        return Release(_STOPPED, untried=not self.began)

    def _return_failed(self, error: BaseException) -> Release:
        """Decide how to return the item of a job that has failed, and log it."""
        end = decide_return(error, self._delivery.attempt, self._attempts, self._task.retry, self._task.kinds)
        # The reason says all that the author of a Reject or a Retry wants to say.
        told = error if not isinstance(error, (Reject, Retry)) else None
        log.warning("job failed: %s", end.reason, extra=self._about, exc_info=told)
        return end

    async def _wait_while_stopping(self) -> None:
        """Wait until this run is cancelled, if no further job may begin."""
        if self._runs.begins_no_more:
            await asyncio.get_running_loop().create_future()

    async def _begin(self) -> None:
        """Note that the work begins, unless the worker stops."""
        await self._wait_while_stopping()
        self.began = True
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TOLD_SECONDS, self._tell_begun)

    def _tell_begun(self) -> None:
        if not (self._is_told or self._ended):
            self._announcement = asyncio.create_task(self._renew_soon())

    async def _renew_soon(self) -> None:
        try:
            await self._renew()
        except StanzaqError:
            log.exception("a lock could not be renewed", extra=self._about)

    async def _run_of(self, attempts: int) -> None:
        """Run the handler inside the middleware."""
        delivery, lock, chain = self._delivery, self.lock, self._chain
        try:
            if PASSED in delivery.headers:
                content = await passed.read(delivery, self._task.payload, self._runs.find_end, self._runs.codec)
            else:
                content = self._runs.codec.decode(delivery.content, _nodes_of(delivery))
            payload: Any = payloads.decode(content, self._task.payload)
        except Reject as error:
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
            self._runs.find_state(self._task),
            self._renew,
            self._begin,
            self._returned,
            self._publish,
            self._note,
            self._task.kinds,
        )
        logs.current.set(logs.fields(job))
        current.set(self._runs.publisher)
        await chain(job)

    async def _publish(self, node: str, payload: Any, **asked: Any) -> str:  # noqa: ANN401
        """Publish an item for the handler, which may have an event loop of its own, in a thread; returns the item's id."""
        outgoing, loop = make_item(node, payload, codec=self._runs.codec, **asked), self.task.get_loop()
        sending = self._transport.publish(outgoing)
        if asyncio.get_running_loop() is loop:
            await sending
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sending, loop))
        return outgoing.item

    def _note(self, node: str, payload: Any, **asked: Any) -> str:  # noqa: ANN401
        """Note an item for the acknowledgement; returns its id. Raises ValueError if that has too many, or too large ones."""
        outgoing = make_item(node, payload, codec=self._runs.codec, **asked)
        if (
            len(self._then) == _MOST_THEN
            or sum(len(each.content.body) for each in [*self._then, outgoing]) > _THEN_BYTES
        ):
            msg = f"with an acknowledgement at most {_MOST_THEN} items are published, of together {_THEN_BYTES} bytes"
            raise ValueError(msg)
        self._then.append(outgoing)
        return outgoing.item

    async def _keep(self) -> None:
        """Renew the lock repeatedly until it is lost, or its time is over without an answer: another worker may have it then."""
        try:
            self._lasts = await self._transport.lock_seconds(self.lock.node)
        except StanzaqError:
            log.exception("a lock is not renewed: its time cannot be read", extra=self._about)
            return
        while not self._lost:
            await asyncio.sleep(self._lasts / _RENEWALS)
            try:
                async with asyncio.timeout_at(self._renewed_at + self._lasts):
                    await self._renew_soon()
            except TimeoutError:
                self.lose()

    async def _renew(self, progress: Progress | None = None) -> None:
        asked = asyncio.get_running_loop().time()
        tells = self.began and not self._is_told
        deadline = await self._transport.renew(self.lock, progress, begun=tells and progress is None)
        self._is_told = self._is_told or tells
        if deadline is None:
            self.lose()
            return
        # An owner may have changed the lock time. Both deadlines are by the service's clock, so ours need not agree.
        longer = (deadline - self._deadline).total_seconds() - (asked - self._renewed_at)
        self._lasts, self._deadline, self._renewed_at = max(1.0, self._lasts + longer), deadline, asked


def _nodes_of(delivery: Delivery) -> set[str]:
    """Return where an item may have been published: the service says where it died, and from where it was moved."""
    told = (delivery.headers.get(name, "") for name in ("stanzaq-dead-node", "stanzaq-moved-from"))
    return {delivery.lock.node, *filter(None, told)}


def _refuse_result(error: Exception) -> TypeError:
    """Return the fault of a handler whose result cannot be sent to who asked for it."""
    return TypeError(f"the result cannot be sent: {error}")

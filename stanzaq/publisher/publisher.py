"""A publisher: sends items, and waits until the service has stored each. Must not know any transport."""

import asyncio
import logging
import os
import secrets
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, TypeVar, Unpack, overload

from stanzaq import payloads, schemes
from stanzaq.codec import PLAIN, Codec
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.publisher import declaring
from stanzaq.publisher.declaring import check_create
from stanzaq.queue import Create, Queue
from stanzaq.retry import Reject
from stanzaq.transport import traceparent
from stanzaq.transport.account import Password, Tls
from stanzaq.transport.interface import (
    Content,
    Hints,
    Outcome,
    Outgoing,
    Parent,
    Schedule,
    Scheduling,
    Sender,
    SendMany,
    SendOne,
)

if TYPE_CHECKING:
    from stanzaq.publisher.outbox import Outbox

log = logging.getLogger("stanzaq")

_T = TypeVar("_T")


class When(TypedDict, total=False):
    """When a node publishes by itself, and how: the arguments of `Publisher.schedule`."""

    cron: str
    zone: str
    every: Duration | None
    start: datetime | None
    end: datetime | None
    jitter: Duration
    overlap: str
    catchup: str
    key: str
    priority: int | None
    headers: Mapping[str, str] | None


_AT_ONCE: Final = 50
"""Number of items that `publish_many` sends at once, and of the outbox: the service limits what it holds for a sender."""

_MOST: Final = 10_000
"""The most items that wait for the service."""

_LEAVE_SECONDS: Final = 5.0
"""How long a publisher that is closed goes on sending items of an earlier run."""


def make_item(  # noqa: PLR0913  (what a publisher may ask for)
    node: str,
    payload: Any,  # noqa: ANN401
    *,
    id: str | None = None,  # noqa: A002  (the item's id, as everywhere)
    key: str = "",
    delay: Duration = 0,
    priority: int | None = None,
    ttl: Duration | None = None,
    headers: Mapping[str, str] | None = None,
    at: datetime | None = None,
    reply: bool = False,
    after: Iterable[Parent] = (),
    regardless: bool = False,
    keep: bool = False,
    confirm: str = "",
    codec: Codec = PLAIN,
) -> Outgoing:
    """Make an item from the arguments of `publish`, with its payload as a `codec` sends it; raises TypeError and ValueError."""
    lives = None if ttl is None else seconds(ttl)
    parents, due = _parents(after), _unix(at, delay)
    hints = Hints(key, seconds(delay), priority, lives, due, reply, parents, regardless, keep, confirm)
    told = {**traceparent.current(), **(headers or {})}
    item = secrets.token_hex(16) if id is None or id == "" else id
    content = codec.encode(payloads.encode(payload), node)
    return Outgoing(secrets.token_hex(16), node, item, content, told, hints)


def _parents(after: Iterable[Parent]) -> tuple[tuple[str, str], ...]:
    """Return the items to wait for, each with its node, '' for the own one; raises TypeError."""
    named: list[Any] = [after] if isinstance(after, str) else list(after)
    found = []
    for each in named:
        match ("", each) if isinstance(each, str) and each is not after else each:
            case (str(node), str(item)):
                found.append((node, item))
            case _:
                msg = f"after: {each!r} is no item to wait for; give a list of ids, and of pairs of a node and an id"
                raise TypeError(msg)
    return tuple(found)


def _unix(at: datetime | None, delay: Duration) -> float | None:
    """Return a moment as Unix time; raises ValueError if it is unclear when it is."""
    if at is None:
        return None
    if at.tzinfo is None:
        msg = f"the time {at.isoformat()} has no time zone: give one, such as datetime.UTC, or Z at the end of a text"
        raise ValueError(msg)
    if delay:
        msg = "give a delay or a time, not both"
        raise ValueError(msg)
    return at.timestamp()


def _iso(at: datetime | None) -> str:
    unix = _unix(at, 0)
    return "" if unix is None else datetime.fromtimestamp(unix, UTC).isoformat()


@dataclass(slots=True)
class _Wait:
    """A call of `publish`: what writes its item to the outbox, and whether its caller has gone."""

    saving: asyncio.Future[None] | None = None
    is_abandoned: bool = False

    async def is_kept(self) -> bool:
        """Return whether the item is in the outbox: the disk finishes what it has begun, whoever is cancelled meanwhile."""
        if self.saving is None:
            return False
        await asyncio.wait({self.saving})
        return self.saving.exception() is None


class Reply:
    """An item that was published with `reply=True`."""

    def __init__(
        self,
        id: str,  # noqa: A002
        ended: Callable[[], Awaitable[Outcome]],
        running: asyncio.Task[None],
        decode: Callable[[Content], Content] = lambda result: result,
    ) -> None:
        """Wait by `ended`, as long as the publisher is `running`, and `decode` the result."""
        self.id = id
        self._ended = ended
        self._running = running
        self._decode = decode

    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """Wait until the item has ended, and return what the worker's handler returned; None if that was nothing.

        Raises StanzaqError with the condition `dead`, `cancelled` or `expired` if no worker has completed the item, and
        TimeoutError after `timeout`.
        """
        result = await self.content(timeout)
        return None if result is None else payloads.decode(result, Any)

    async def content(self, timeout: Duration | None = None) -> Content | None:  # noqa: ASYNC109
        """Wait as `result` does, and return the result as its bytes and their type."""
        closed = f"the publisher was closed before {self.id} had ended"
        if self._running.done():
            raise _fault(self._running, closed)
        waiting = asyncio.ensure_future(self._ended())
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                await asyncio.wait({waiting, self._running}, return_when=FIRST_COMPLETED)
            if self._running.done():
                raise _fault(self._running, closed)
            outcome = waiting.result()
        finally:
            waiting.cancel()
            # A fault refers to this frame, and the future to the fault.
            del waiting
        if outcome.state != "acknowledged":
            msg = f"{self.id} is {outcome.state}{f': {outcome.reason}' if outcome.reason else ''}"
            raise StanzaqError(msg, outcome.state)
        try:
            return None if outcome.result is None else self._decode(outcome.result)
        except Reject as fault:
            # It would be taken for that of the job that waits.
            msg = f"the result of {self.id} cannot be read: {fault}"
            raise StanzaqError(msg, "not-acceptable") from fault


def _fault(running: asyncio.Task[None], closed: str, kept: str = "") -> BaseException:
    """Return why a connection has ended, which says where the item is `kept`; or that the publisher was `closed`."""
    fault = running.exception() if running.done() and not running.cancelled() else None
    if isinstance(fault, StanzaqError):
        # A new one: all that wait raise it, and it would keep the frames of all.
        return StanzaqError(f"{fault}: {kept}" if kept else str(fault), fault.condition)
    return fault or StanzaqError(closed)


class Publisher:
    """Sends items: `async with Publisher(...) as publisher: await publisher.publish("thumbnails", picture)`.

    The arguments are those of `Worker`. A publish whose answer is lost is repeated with the same id until it is answered. While
    the item waits, the repeat replaces it. Once a worker has the item or has completed it, a node with
    `stanzaq#dedupe` = `ignore` ignores the repeat; any other node takes it for a new item.

    A `codec` changes payloads on their way, and results on theirs back: it encrypts them, say.

    With an `outbox`, a path, items are in that file until the service has stored them, exactly once: they survive a restart of
    the program, and are sent by the next publisher that uses the file.
    """

    def __init__(  # noqa: PLR0913  (what users may say)
        self,
        url: str,
        *,
        service: str | None = None,
        password: Password = None,
        address: str | None = None,
        tls: Tls = "required",
        outbox: str | os.PathLike[str] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Check the arguments as a worker does; raises ValueError. Connects only in `async with`."""
        self._codec = codec or PLAIN
        self._account = schemes.account(url, service, password, address, tls)
        self._path = None if outbox is None else Path(outbox)
        self._outbox: Outbox | None = None
        self._sender: Sender | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._earlier: asyncio.Task[None] | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to connect, and to send what an earlier run left; the first publish waits for the connection.

        Raises StanzaqError if the outbox cannot be used.
        """
        account, left = self._account, list[Outgoing]()
        # Each opening may be in another event loop.
        self._room = asyncio.Semaphore(_AT_ONCE)
        try:
            if self._path is not None:
                from stanzaq.publisher.outbox import Outbox  # noqa: PLC0415  (most programs need none, nor SQLite)

                self._outbox = Outbox(self._path)
                left = await self._outbox.open()
                account = schemes.keep_resource(account, self._outbox.resource)
            self._sender = schemes.sender(account)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._running = asyncio.create_task(self._sender.run())
        if left:
            log.info("the outbox has %d items of an earlier run", len(left))
            self._earlier = asyncio.create_task(self._send_earlier(left))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect. What is in the outbox stays there for the next publisher."""
        if self._sender is not None and self._running is not None:
            if self._earlier is not None and kind is None:
                await asyncio.wait({self._earlier, self._running}, timeout=_LEAVE_SECONDS, return_when=FIRST_COMPLETED)
            tasks = self._sending | ({self._earlier} if self._earlier else set())
            for task in tasks:
                task.cancel()
            await self._sender.close()
            self._running.cancel()
            await asyncio.wait({self._running, *tasks})
        if self._outbox is not None:
            await self._outbox.close()
        self._sender = self._running = self._outbox = self._earlier = None

    @overload
    async def publish(
        self,
        node: str,
        payload: Any,  # noqa: ANN401
        *,
        reply: Literal[False] = False,
        **how: Unpack[SendOne],
    ) -> str: ...

    @overload
    async def publish(
        self,
        node: str,
        payload: Any,  # noqa: ANN401
        *,
        reply: Literal[True],
        **how: Unpack[SendOne],
    ) -> Reply: ...

    async def publish(self, node: str, payload: Any, *, reply: bool = False, **how: Unpack[SendOne]) -> str | Reply:
        """Send an item, and return its id once the service has stored it; with `reply` a `Reply`, which has the id.

        A dict, a list, a dataclass and the like are sent as JSON, an Element as XML, a str as text, bytes unchanged. `key` is
        the group key. The item is not handed out before `delay` nor after `ttl`, which the service counts in whole seconds; or
        not before the time `at`. `priority` is 0 to 9, 4 by default. The item waits until all items `after` are acknowledged,
        each an id, or a pair of another node and an id. If one of them ends otherwise it dies, unless it waits `regardless`.
        Publish items with `keep` that may have ended when others name them in `after`. With `confirm` "synced" the item is on
        the disk of Redis before this returns, with "replicated" in its replicas; by default that is as the node says.
        Raises StanzaqError if the service refuses, TypeError and ValueError for an unsuitable argument.
        """
        sender, running = self._open()
        outgoing = make_item(node, payload, reply=reply, codec=self._codec, **how)
        item = outgoing.item
        # Before it is sent: the end may come before the answer.
        answer = Reply(item, sender.reply(node, item), running, self._decode_from(node)) if reply else item
        if len(self._sending) >= _MOST:
            msg = f"{_MOST} items wait for the service already: publish {item} later"
            raise StanzaqError(msg, "resource-constraint")
        wait = _Wait()
        sending = asyncio.create_task(self._send(sender, outgoing, wait))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        try:
            # A connection that fails for good ends everything that waits for it.
            await asyncio.wait({sending, running}, return_when=FIRST_COMPLETED)
            if sending.done() and not sending.cancelled():
                sending.result()
                return answer
            sending.cancel()
        except asyncio.CancelledError:
            if self._outbox is None:
                sending.cancel()
            else:
                wait.is_abandoned = True
            raise
        finally:
            # A fault refers to this frame, and the task to the fault.
            del sending
        kept = f"{item} is in the outbox, and the next publisher sends it" if await wait.is_kept() else ""
        closed = f"the publisher was closed before {item} was answered: {kept or 'it may be in the queue'}"
        raise _fault(running, closed, kept)

    def _decode_from(self, node: str) -> Callable[[Content], Content]:
        """Return what reads the results of items of a node."""
        return lambda result: self._codec.decode(result, (node,))

    async def cancel(self, node: str, id: str) -> bool:  # noqa: A002
        """Cancel an item that this account has published, or that is in its own node, even if a worker has it.

        Returns False if there is no such item, e.g. because it is completed. Raises StanzaqError if the service refuses.
        """
        return await self._read_answer(lambda sender: sender.cancel(node, id), f"{id} was cancelled")

    async def declare(self, queue: Queue, *, create: Create = "if-missing") -> None:
        """Make a queue what is declared: create it if it is missing, and with `create="update"` change what differs.

        Only its owners see its options; for others nothing is compared. Raises StanzaqError if the service refuses, or, with the
        condition `conflict`, if an option differs, and ValueError.
        """
        asked = check_create(create)
        await self._read_answer(lambda sender: declaring.declare(sender, queue, asked), f"{queue.name} was declared")

    async def result(self, node: str, id: str) -> Any:  # noqa: A002, ANN401
        """Return what the handler of an item has returned that was published with `keep`, perhaps by another program.

        Raises StanzaqError: `dead`, `cancelled` or `expired` if no worker has completed the item, and `item-not-found` if it has
        not ended yet, its end is not kept, or another account has published it and owns the node.
        """
        sender, running = self._open()
        return await Reply(id, partial(sender.outcome, node, id), running).result()

    async def schedule(  # noqa: PLR0913  (what a publisher may ask for)
        self,
        node: str,
        id: str,  # noqa: A002
        payload: Any,  # noqa: ANN401
        *,
        cron: str = "",
        zone: str = "",
        every: Duration | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: Duration = 0,
        overlap: str = "queue",
        catchup: str = "last",
        key: str = "",
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Schedule:
        """Let an own node publish an item at certain times, and return the schedule; one with this id is replaced.

        The times are those of a `cron` expression in a `zone`, UTC by default, or come `every` so often, from `start` to `end`
        and by chance up to `jitter` later, in whole seconds. `overlap="skip"` publishes nothing while the last item is still in
        the node. After an outage `catchup` makes up for `none`, the `last` or `all` of the missed times. Raises StanzaqError if
        the service refuses, TypeError and ValueError for an unsuitable argument.
        """
        asked = {
            "cron": cron,
            "zone": zone,
            "every": "" if every is None else f"{round(seconds(every))}s",
            "start": _iso(start),
            "end": _iso(end),
            "jitter": f"{round(seconds(jitter))}s" if jitter else "",
            "overlap": overlap,
            "catchup": catchup,
        }
        when = {name: value for name, value in asked.items() if value}
        # Checked as an item is.
        content = self._codec.encode(payloads.encode(payload), node)
        item = Outgoing("", node, id, content, headers or {}, Hints(key, priority=priority))
        request = Scheduling(node, id, when, item.content, item.headers, item.hints)
        return await self._read_answer(lambda sender: sender.schedule(request), f"{id} was scheduled")

    async def schedules(self, node: str) -> list[Schedule]:
        """Return the schedules of an own node, by id. Raises StanzaqError if the service refuses."""
        return await self._read_answer(lambda sender: sender.schedules(node), f"schedules of {node} were listed")

    async def pause_schedule(self, node: str, id: str) -> Schedule:  # noqa: A002
        """Pause a schedule: times that pass meanwhile are not missed. Raises StanzaqError if the service refuses."""
        return await self._read_answer(lambda sender: sender.switch_schedule(node, id, paused=True), f"{id} was paused")

    async def resume_schedule(self, node: str, id: str) -> Schedule:  # noqa: A002
        """Resume a schedule. Raises StanzaqError if the service refuses."""
        return await self._read_answer(
            lambda sender: sender.switch_schedule(node, id, paused=False), f"{id} was resumed"
        )

    async def unschedule(self, node: str, id: str) -> bool:  # noqa: A002
        """Delete a schedule, and return False if there is none; its items stay. Raises StanzaqError if the service refuses."""
        return await self._read_answer(lambda sender: sender.unschedule(node, id), f"{id} was deleted")

    async def affiliations(self, node: str) -> dict[str, str]:
        """Return who has which affiliation with an own node, by bare JID, domain or `group:NAME`.

        Raises StanzaqError if the service refuses.
        """
        return await self._read_answer(
            lambda sender: sender.affiliations(node), f"affiliations with {node} were listed"
        )

    async def affiliate(self, node: str, changes: Mapping[str, str]) -> None:
        """Change affiliations with an own node, all of them or none; who is not named keeps what it has.

        They are `owner`, `publisher`, `publish-only`, `member` and `outcast`; `none` takes one away. Who is no longer admitted
        loses subscriptions and locks at once. Raises StanzaqError, which names what is wrong, if the service refuses: then
        nothing is changed.
        """
        await self._read_answer(
            lambda sender: sender.affiliate(node, changes), f"affiliations with {node} were changed"
        )

    async def requests(self, node: str) -> list[str]:
        """Return the JIDs of accounts that wait for the approval of an owner, the oldest request first.

        Raises StanzaqError if the service refuses.
        """
        return await self._read_answer(lambda sender: sender.requests(node), f"requests at {node} were listed")

    async def decide(self, node: str, jid: str, *, allow: bool) -> None:
        """Approve all requests of an account to subscribe to an own node, which makes it a member, or refuse them.

        An account that does not wait, or does not any more, is left as it is. Raises StanzaqError if the service refuses.
        """
        await self._read_answer(
            lambda sender: sender.decide(node, jid, allow=allow), f"the request of {jid} was decided"
        )

    async def _read_answer(self, ask: Callable[[Sender], Coroutine[Any, Any, _T]], done: str) -> _T:
        """Return the answer to a request; raises StanzaqError."""
        sender, running = self._open()
        asking = asyncio.create_task(ask(sender))
        try:
            # A connection that fails for good ends everything that waits for it.
            await asyncio.wait({asking, running}, return_when=FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        finally:
            asking.cancel()
            # A fault refers to this frame, and the task to the fault.
            del asking
        raise _fault(running, f"the publisher was closed before {done}")

    def _open(self) -> tuple[Sender, asyncio.Task[None]]:
        """Return the connection and its task; raises StanzaqError if there is none."""
        if self._sender is None or self._running is None:
            msg = "the publisher is not open: use it as `async with Publisher(...) as publisher`"
            raise StanzaqError(msg)
        return self._sender, self._running

    async def _send(self, sender: Sender, outgoing: Outgoing, wait: _Wait) -> None:
        """Send an item, from the outbox if there is one; raises StanzaqError."""
        if self._outbox is None:
            await sender.publish(outgoing)
            return
        wait.saving = asyncio.ensure_future(self._outbox.save(outgoing))
        await asyncio.shield(wait.saving)
        try:
            await self._send_kept(sender, outgoing)
        except StanzaqError as error:
            if not wait.is_abandoned:
                await self._forget(outgoing)
                raise
            log.error("an item stays in the outbox: %s", error)  # noqa: TRY400  (the text says it all)

    async def _send_kept(self, sender: Sender, outgoing: Outgoing) -> None:
        """Send an item of the outbox and remove it; raises StanzaqError, and then keeps it."""
        async with self._room:
            await sender.publish_once(outgoing, self._note)
        await self._forget(outgoing)

    async def _note(self, outgoing: Outgoing) -> None:
        """Save a step; without it the service still knows a repeat, for hours."""
        assert self._outbox is not None
        try:
            await self._outbox.save(outgoing)
        except StanzaqError as error:
            log.error("%s", error)  # noqa: TRY400  (the text says it all)

    async def _forget(self, outgoing: Outgoing) -> None:
        """Remove an item; if that is impossible, the service still knows a repeat, for hours."""
        assert self._outbox is not None
        try:
            await self._outbox.remove(outgoing)
        except StanzaqError as error:
            log.error("%s", error)  # noqa: TRY400

    async def _send_earlier(self, left: list[Outgoing]) -> None:
        """Send the items that an earlier run left; those that fail stay in the outbox."""
        assert self._sender is not None
        sender = self._sender

        async def send(outgoing: Outgoing) -> None:
            try:
                await self._send_kept(sender, outgoing)
            except StanzaqError as error:
                log.error("an item stays in the outbox: %s", error)  # noqa: TRY400

        await asyncio.gather(*map(send, left))

    async def publish_many(
        self, node: str, payloads: Iterable[Any] | AsyncIterable[Any], **how: Unpack[SendMany]
    ) -> list[str]:
        """Send many items, several at once and so in no order, and return their ids. Raises as `publish` does."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def send(payload: Any) -> str:  # noqa: ANN401
            try:
                return await self.publish(node, payload, **how)
            finally:
                room.release()

        group, tasks = asyncio.TaskGroup(), list[asyncio.Task[str]]()
        try:
            async with group:
                async for payload in _iterate(payloads):
                    await room.acquire()
                    tasks.append(group.create_task(send(payload)))
            return [task.result() for task in tasks]
        except asyncio.CancelledError as left:
            # Frames of the group refer to what they raise, here and below.
            raise left.with_traceback(None)  # noqa: B904  (the same)
        except ExceptionGroup as failed:
            faults = list(failed.with_traceback(None).exceptions)
        finally:
            # A fault refers to this frame, and the tasks to the fault.
            del group, tasks
        raise faults.pop(0)


async def _iterate(values: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterable[Any]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value

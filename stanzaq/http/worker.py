"""Items over HTTP: one subscription for each node, whose messages arrive as a stream of events. Must not know handlers.

The service ends a subscription, and gives its messages to others, as soon as its stream is closed, unless a restart of the
service closed it.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from stanzaq.errors import StanzaqError
from stanzaq.http import messages
from stanzaq.http.connection import HttpConnection, LostError
from stanzaq.http.messages import Addresses
from stanzaq.http.publisher import HttpSender
from stanzaq.retry import Release
from stanzaq.transport.account import HttpAccount
from stanzaq.transport.backoff import Backoff
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import READY, Content, Lock, Outgoing, Prepare, Progress, Receiver, Sender

log = logging.getLogger("stanzaq")

_LEASE_SECONDS: Final = 60
"""How long the service keeps a subscription whose stream it cannot serve."""

_PAUSE_SECONDS: Final = _LEASE_SECONDS / 6
"""The longest pause before a stream is opened again: well before its subscription ends."""

_OVER: Final = {"gone", "item-not-found"}
"""The errors for a subscription that has ended."""

_LEAVE_SECONDS: Final = 2.0

_REMEMBERED: Final = 100
"""How many messages are remembered for each that may be held: more than are held between two looks of a stream."""

_PARTS: Final = 4
"""Into how many requests the acknowledgements of all that is held are divided: some jobs run while others are acknowledged."""

_STOPPED: Final = Release("the worker stops")

_Ask = Callable[[Addresses, str], Awaitable[Any]]
"""Sends a request about a lock by its addresses; the text says what for."""


class _Subscription:
    """A subscription to a node: its path, and the tokens of the last messages that it delivered."""

    def __init__(self, node: str, path: str, credit: int) -> None:
        self.node = node
        self.path = path
        self._most = _REMEMBERED * credit
        self._delivered: dict[tuple[str, int | None, int], None] = {}

    def is_new(self, lock: Lock) -> bool:
        """Return whether a message arrives for the first time.

        A stream repeats what it has not brought itself but an acknowledgement has, and when it is opened again, all that is held.
        """
        key = lock.node, lock.partition, lock.token
        if key in self._delivered:
            return False
        self._delivered[key] = None
        if len(self._delivered) > self._most:
            del self._delivered[next(iter(self._delivered))]
        return True


class HttpTransport:
    """The transport of a worker with an account of the RESTful Queue."""

    def __init__(self, account: HttpAccount) -> None:
        """Use an account."""
        self._connection = HttpConnection(account)
        self._gatherer = Gatherer(self._acknowledge_all)
        self._sender = HttpSender(self._connection)
        self._subscriptions: dict[str, _Subscription] = {}
        # Those of locks that the worker has let go of without a word are forgotten.
        self._addresses: WeakKeyDictionary[Lock, Addresses] = WeakKeyDictionary()
        self._lock_seconds: dict[str, float] = {}
        self._receiver: Receiver | None = None
        self._paused = asyncio.Event()
        self._closed = asyncio.Event()

    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:
        """Receive items until `close`; raises StanzaqError."""
        self._receiver = receiver
        self._gatherer.most = max(2, min([self._gatherer.most, *nodes.values()]) // _PARTS)
        try:
            async with asyncio.TaskGroup() as group:
                for node, credit in nodes.items():
                    group.create_task(self._follow(node, credit, prepare))
        except* StanzaqError as failed:
            raise failed.exceptions[0] from None
        await self._closed.wait()

    async def acknowledge(self, lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> bool:
        """Acknowledge an item, with a result for its publisher, and publish others; False if the lock had already ended."""
        how = partial(self._complete_and_publish, result, then) if then else partial(self._acknowledge, result)
        return await self._end(lock, "acknowledge", how)

    async def release(self, lock: Lock, how: Release) -> bool:
        """Return an item; False if the lock had already ended."""
        where, body = messages.release(how)
        return await self._end(lock, "give back", lambda at, what: self._post(what, getattr(at, where), body))

    async def renew(self, lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> datetime | None:
        """Restart the lock time, and tell how far the job is, or that it has `begun`.

        Returns the new deadline, or None if the lock had already ended.
        """
        told = messages.renewal(progress, begun=begun)
        said = await self._send_about_lock(lock, "renew the lock of", lambda at, what: self._post(what, at.renew, told))
        return None if said is None else messages.moment(said["expires"])

    async def lock_seconds(self, node: str) -> float:
        """Return the lock time of a node, which its messages tell."""
        return self._lock_seconds[node]

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        await self._sender.publish(outgoing)

    async def pause(self) -> None:
        """End the subscriptions; what they hold stays under its locks."""
        self._paused.set()
        for each in list(self._subscriptions.values()):
            await self._unsubscribe(each, "?keep=true")

    async def close(self) -> None:
        """Give back what is held, and disconnect."""
        paused = self._paused.is_set()
        self._paused.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                if paused:
                    await asyncio.gather(*map(self._give_back, list(self._addresses)))
                else:
                    await asyncio.gather(*(self._unsubscribe(each) for each in list(self._subscriptions.values())))
        self._closed.set()
        await self._connection.close()

    def sender(self) -> Sender:
        """Return what publishes over the same connection, which `run` keeps."""
        return self._sender

    async def _give_back(self, lock: Lock) -> None:
        try:
            await self.release(lock, _STOPPED)
        except StanzaqError as error:
            log.warning("%s", error)

    async def _follow(self, node: str, credit: int, prepare: Prepare) -> None:
        """Subscribe to a node, and receive its messages; raises StanzaqError."""
        await prepare(node, missing=False)
        backoff = Backoff(0.5, _PAUSE_SECONDS)
        while not self._paused.is_set():
            subscription = self._subscriptions.get(node)
            is_new = subscription is None
            if subscription is None:
                subscription = _Subscription(node, await self._subscribe(node, credit, prepare), credit)
                if self._paused.is_set():
                    await self._unsubscribe(subscription)
                    return
                self._subscriptions[node] = subscription
                log.info(READY, node, credit)
            try:
                await self._receive(subscription, backoff)
            except LostError as lost:
                if not self._paused.is_set():
                    await self._connection.pause(lost, backoff)
            except StanzaqError as error:
                if error.condition not in _OVER:
                    raise
                self._forget(subscription)
                if is_new:
                    # The next one may end as soon.
                    await asyncio.sleep(backoff.delay())

    async def _receive(self, subscription: _Subscription, backoff: Backoff) -> None:
        """Receive messages until the stream is over; raises LostError, or StanzaqError if the service refuses."""
        what = f"get the items of {subscription.node}"
        async with contextlib.aclosing(self._connection.events(what, subscription.path, backoff)) as events:
            async for kind, said in events:
                if kind == "message":
                    self._deliver(subscription, said)
                else:
                    told = messages.problem(said)
                    renewed = told.condition == messages.EXPIRED
                    raise LostError(str(told.fault(what)), renewed=renewed) if told.passing else told.fault(what)

    def _deliver(self, subscription: _Subscription, message: Mapping[str, Any]) -> None:
        """Report a message to the worker, once under each lock."""
        assert self._receiver is not None
        delivery = replace(messages.delivery(message), collection=subscription.node)
        lock = delivery.lock
        if not subscription.is_new(lock):
            return
        for earlier in self._receiver.locks_of(lock.node, lock.item):
            if earlier.partition == lock.partition:
                # Its lock has ended, or this one would not exist.
                self._lose(earlier)
        self._addresses[lock] = Addresses.of(message, subscription.path)
        self._lock_seconds[lock.node] = float(message["lock_seconds"])
        self._receiver.deliver(delivery)

    def _forget(self, subscription: _Subscription) -> None:
        """Report the locks of a subscription that has ended as lost."""
        del self._subscriptions[subscription.node]
        if not self._paused.is_set():
            log.warning("the subscription to %s has ended: subscribing again", subscription.node)
            assert self._receiver is not None
            for lock in self._receiver.locks(subscription.node):
                self._lose(lock)

    def _lose(self, lock: Lock) -> None:
        assert self._receiver is not None
        self._addresses.pop(lock, None)
        self._receiver.lost(lock)

    async def _subscribe(self, node: str, credit: int, prepare: Prepare) -> str:
        """Subscribe, if need be to a new node, and return the subscription's path; raises StanzaqError."""
        body, what = messages.subscription(node, credit, _LEASE_SECONDS), f"subscribe to {node}"
        try:
            said = await self._connection.ask(what, "POST", "/subscriptions", body)
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            await prepare(node, missing=True)
            said = await self._connection.ask(what, "POST", "/subscriptions", body)
        return str(said["href"])

    async def _unsubscribe(self, subscription: _Subscription, how: str = "") -> None:
        """End a subscription; one that has ended is no fault."""
        try:
            await self._connection.ask(f"unsubscribe from {subscription.node}", "DELETE", subscription.path + how)
        except StanzaqError as error:
            if error.condition not in _OVER:
                log.warning("%s", error)

    def _post(self, what: str, path: str, body: object) -> Awaitable[Any]:
        return self._connection.ask(what, "POST", path, body)

    async def _acknowledge(self, result: Content | None, at: Addresses, what: str) -> Any:  # noqa: ANN401
        """Acknowledge a message, with those of the same turn if it has no result."""
        if result is not None and at.complete:
            return await self._post(what, at.complete, result)
        path = at.acknowledge
        if await self._gatherer.ask(at.subscription, path, json.dumps(path), what) is None:
            await self._connection.ask(what, "DELETE", path)
        return {}

    async def _complete_and_publish(
        self, result: Content | None, then: Sequence[Outgoing], at: Addresses, what: str
    ) -> Any:  # noqa: ANN401
        """Acknowledge a message, and publish items with that."""
        if not at.then:
            msg = f"cannot {what}: the service does not publish with an acknowledgement: update its frontends"
            raise StanzaqError(msg, "not-acceptable")
        body, traced = messages.completion(result, then)
        return await self._connection.ask(what, "POST", at.then, body, headers=traced)

    async def _acknowledge_all(self, path: str, addresses: Mapping[str, str]) -> messages.HttpOutcomes | None:
        """Acknowledge messages of a subscription, and receive as many, once: without an answer each is acknowledged by itself.

        Raises StanzaqError if they are refused together.
        """
        subscription = next((each for each in self._subscriptions.values() if each.path == path), None)
        more = 0 if subscription is None or self._paused.is_set() else len(addresses)
        where, body = messages.acknowledgements(path, addresses.values(), more)
        said = await self._connection.ask("acknowledge items", "POST", where, body, once=True)
        if said is None:
            return None
        if subscription is not None:
            for message in said.get("messages", ()):
                self._deliver(subscription, message)
        return messages.outcomes(addresses, said)

    async def _end(self, lock: Lock, what: str, ask: _Ask) -> bool:
        """Complete or return an item, whose lock ends with that; False if it had already ended. Raises StanzaqError."""
        done = await self._send_about_lock(lock, what, ask) is not None
        self._addresses.pop(lock, None)
        return done

    async def _send_about_lock(self, lock: Lock, what: str, ask: _Ask) -> Any:  # noqa: ANN401
        """Send a request about a lock; returns its answer, or None if the lock had already ended. Raises StanzaqError."""
        addresses = self._addresses.get(lock)
        if addresses is None:
            return None
        try:
            return await ask(addresses, f"{what} {lock.item}")
        except StanzaqError as error:
            if error.condition not in messages.ENDED:
                raise
            self._addresses.pop(lock, None)
            return None

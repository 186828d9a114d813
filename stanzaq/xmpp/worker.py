"""Items over XMPP: subscribes with credit, and receives and answers deliveries and ends of locks. Must not know handlers."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from xml.etree.ElementTree import Element

from stanzaq.errors import StanzaqError
from stanzaq.retry import Release
from stanzaq.transport.account import Account
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import READY, Content, Lock, Outgoing, Prepare, Progress, Receiver, Sender
from stanzaq.transport.program import program
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import XmppConnection
from stanzaq.xmpp.membership import Membership
from stanzaq.xmpp.publisher import XmppSender

log = logging.getLogger("stanzaq")

_AGAIN_SECONDS: Final = 60.0
"""Interval between repeated subscribe requests, which restore a subscription that was lost without notice."""

_BATCH: Final = 100
"""The most items that the service puts in a message."""

_NO_NODE: Final = "item-not-found"

_NO_WORK: Final = "feature-not-implemented"
"""The condition that other requests for work of a log have."""

_STAYS: Final = {"moved", "stolen"}
"""Why a partition is lost while this worker stays in its group; otherwise it must join again."""

_WAITS: Final = "not-authorized"
"""The error of another subscribe, while an owner has not approved the first one."""


class XmppTransport:
    """The transport of a worker with an XMPP account."""

    def __init__(self, account: Account, *, group: str = "") -> None:
        """Use an account; subscribe as a member of a `group` if one is named."""
        self._connection = XmppConnection(account)
        self._sender = XmppSender(self._connection)
        self._service = account.service
        self._group = group
        self._memberships: dict[str, Membership] = {}
        self._nodes: Mapping[str, int] = {}
        self._receiver: Receiver | None = None
        self._prepare: Prepare | None = None
        self._unprepared: list[str] = []
        self._lock_seconds: dict[str, float] = {}
        self._collections: set[str] = set()
        self._subids: dict[str, str] = {}
        self._pending: set[str] = set()
        self._paused = False
        self._wakeup = asyncio.Event()
        self._subscribing = asyncio.Lock()
        self._gatherer = Gatherer(self._settle)

    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:
        """Receive items until `close`; raises StanzaqError."""
        self._receiver, self._nodes, self._prepare = receiver, nodes, prepare
        self._unprepared = list(nodes)
        if self._group:
            self._memberships = {
                node: Membership(node, self._connection, receiver, self._lock_seconds) for node in nodes
            }
        await self._connection.run(self)

    async def connected(self) -> None:
        """Send presence, so that the service notices when this worker goes offline, and subscribe at intervals."""
        if self._paused:
            return
        assert self._prepare is not None
        while self._unprepared:
            await self._prepare(self._unprepared[-1], missing=False)
            self._unprepared.pop()
        await self._find_all()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sender.connected())
                renewing = [tasks.create_task(each.renew()) for each in self._memberships.values()]
                await self._stay_subscribed()
                for task in renewing:
                    task.cancel()
        except* StanzaqError as failed:
            raise failed.exceptions[0] from None

    async def _stay_subscribed(self) -> None:
        while not self._paused:
            self._wakeup.clear()
            # Items of an earlier run may follow at once, and their lock time must be known.
            self._connection.send(f"<presence to='{self._service}'/>")
            for node, credit in self._nodes.items():
                try:
                    await self._subscribe(node, credit)
                except StanzaqError as error:
                    if error.condition != _NO_NODE:
                        raise
                    # It was deleted since it was found.
                    await self._find(node)
                    await self._subscribe(node, credit)
                await self._compare(node)
            try:
                async with asyncio.timeout(_AGAIN_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311  (guards nothing)
                    await self._wakeup.wait()
            except TimeoutError:
                pass
            if not self._paused:
                await self._find_all()

    def message(self, message: Element) -> None:
        """Receive deliveries, ends of locks and ends of subscriptions."""
        if self._receiver is None:
            return
        if delivered := stanzas.deliveries(message):
            for delivery in delivered:
                self._receiver.deliver(delivery)
            return
        self._sender.message(message)
        for lock in stanzas.read_ended(message):
            self._receiver.lost(lock)
        for node, item in stanzas.read_deleted(message):
            self._receiver.deleted(node, item)
        for node, partition, reason in stanzas.read_lost(message):
            self._lose_partition(node, partition, reason)
        for node in stanzas.read_unsubscribed(message):
            log.warning("the subscription to %s has ended: subscribing again", node)
            self._wakeup.set()

    def _lose_partition(self, node: str, partition: int, reason: str) -> None:
        if membership := self._memberships.get(node):
            log.info("partition %d of %s is lost: %s", partition, node, reason)
            membership.lose(partition)
            if reason not in _STAYS:
                self._wakeup.set()

    async def acknowledge(self, lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> bool:
        """Acknowledge an item, with a result for its publisher, and publish others; False if the lock had already ended."""
        return await self._send_about_lock(lock, "acknowledge", stanzas.ack(lock, result, then)) is not None

    async def release(self, lock: Lock, how: Release) -> bool:
        """Return an item; False if the lock had already ended."""
        return await self._send_about_lock(lock, "give back", stanzas.release(lock, how)) is not None

    async def renew(self, lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> datetime | None:
        """Restart the lock time, and tell how far the job is, or that it has `begun`.

        Returns the new deadline, or None if the lock had already ended.
        """
        told = await self._send_about_lock(lock, "renew the lock of", stanzas.renew(lock, progress, begun=begun))
        return None if told is None else stanzas.moment(told.expires)

    async def lock_seconds(self, node: str) -> float:
        """Return the lock time of a node, which is read with each subscription; below a collection with the first item."""
        if node not in self._lock_seconds:
            await self._read_lock_seconds(node)
        return self._lock_seconds[node]

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        await self._sender.publish(outgoing)

    async def pause(self) -> None:
        """Unsubscribe; existing locks stay."""
        self._paused = True
        self._wakeup.set()
        # Another frontend may carry out what is sent before an answer first.
        async with self._subscribing:
            for node in self._nodes:
                try:
                    ask = stanzas.unsubscribe(node, self._connection.jid, self._subids.get(node, ""))
                    await self._connection.ask(f"unsubscribe from {node}", "set", ask)
                except StanzaqError as error:
                    log.warning("%s", error)

    async def close(self) -> None:
        """Disconnect; the service notices and gives held items to others."""
        await self._connection.close()

    def sender(self) -> Sender:
        """Return what publishes over the same connection, which `run` keeps."""
        return self._sender

    async def _find_all(self) -> None:
        for node in self._nodes:
            await self._find(node)

    async def _find(self, node: str) -> None:
        """Read a node's lock time before its first lock, or declare the node if it is missing. Raises StanzaqError."""
        try:
            await self._read_lock_seconds(node)
        except StanzaqError as error:
            if error.condition != _NO_NODE:
                raise
            assert self._prepare is not None
            await self._prepare(node, missing=True)
            await self._read_lock_seconds(node)

    async def _read_lock_seconds(self, node: str) -> None:
        found = await self._connection.ask(f"find {node}", "get", stanzas.describe(node))
        told = stanzas.field(found, "stanzaq#lock_seconds")
        if not told:
            msg = f"{self._service} has {node}, but is no stanzaq service: correct its domain (service=)"
            raise StanzaqError(msg)
        if stanzas.is_log(found):
            # Its entries would come without locks, and nobody would be told.
            msg = f"cannot subscribe to {node}: the node is a log: its entries are not handed out as work"
            raise StanzaqError(msg, _NO_WORK)
        self._lock_seconds[node] = float(told)
        if stanzas.is_collection(found):
            self._collections.add(node)
        else:
            self._collections.discard(node)

    async def _subscribe(self, node: str, credit: int) -> None:
        """Subscribe, or confirm the existing subscription, unless this worker has left; raises StanzaqError."""
        async with self._subscribing:
            if self._paused:
                return
            options = stanzas.requests(
                *(credit, min(credit, _BATCH)),
                collection=node in self._collections,
                group=self._group,
                client=program(),
            )
            if not self._group and (subid := self._subids.get(node, "")):
                # On some nodes another subscribe would be another subscription, with a credit of its own.
                ask = stanzas.confirm(node, self._connection.jid, subid, options)
                with contextlib.suppress(StanzaqError):
                    await self._connection.ask(f"confirm the subscription to {node}", "set", ask)
                    if node in self._pending:
                        self._note_ready(node, credit)
                    return
            ask = stanzas.subscribe(node, self._connection.jid, options)
            try:
                answer = await self._connection.ask(f"subscribe to {node}", "set", ask)
            except StanzaqError as error:
                if error.condition != _WAITS:
                    raise
                state = "pending"
            else:
                self._subids[node], state = stanzas.read_subscribed(answer)
        if state == "pending":
            self._pending.add(node)
            log.warning("the subscription to %s waits for the approval of an owner", node)
        else:
            self._note_ready(node, credit)

    def _note_ready(self, node: str, credit: int) -> None:
        self._pending.discard(node)
        log.info(READY, node, credit)

    async def _compare(self, node: str) -> None:
        """Find locks that ended while this worker was not connected. Raises StanzaqError."""
        assert self._receiver is not None
        # Only locks known before the request: one delivered meanwhile may be missing in the answer.
        known = self._receiver.locks(node)
        for each in {lock.node for lock in known}:
            try:
                answer = await self._connection.ask(f"list the locks at {each}", "get", stanzas.locks(each))
                listed = stanzas.read_held(answer)
            except StanzaqError as error:
                if error.condition not in stanzas.ENDED:
                    raise
                # A queue below a collection may be deleted, or bar this worker, and its locks end with that.
                listed = set()
            for lock in known - listed:
                if lock.node == each:
                    self._receiver.lost(lock)

    async def _send_about_lock(self, lock: Lock, what: str, row: str) -> stanzas.XmppOutcomes | None:
        """Send a row about a lock, beside others or alone; None if the lock had already ended. Raises StanzaqError."""
        what = f"{what} {lock.item}"
        try:
            told = await self._gatherer.ask(lock.node, lock.item, row, what)
            if told is not None:
                return told
            payload = stanzas.settle(lock.node, row)
            return stanzas.outcomes(await self._connection.ask(what, "set", payload, lock.item))
        except StanzaqError as error:
            if error.condition in stanzas.ENDED:
                return None
            raise

    async def _settle(self, node: str, rows: Mapping[str, str]) -> stanzas.XmppOutcomes:
        """Send rows about locks until they are answered; raises StanzaqError if the service refuses them together."""
        payload = stanzas.settle(node, "".join(rows.values()))
        return stanzas.outcomes(await self._connection.ask(f"settle items of {node}", "set", payload))

"""Sends items over XMPP. Must not look into payloads."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from weakref import WeakSet, WeakValueDictionary
from xml.etree.ElementTree import Element

from stanzaq.errors import StanzaqError
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import Outcome, Outgoing, Save, Schedule, Scheduling
from stanzaq.xep_qos import elements
from stanzaq.xep_qos.exchange import Exchange, Move, Timing, Unconfirmed, Undelivered
from stanzaq.xep_qos.outbox import Outstanding, Step
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import XmppConnection

_TIMING: Final = Timing(first=math.inf, cap=math.inf, tries=1, remembered=3_600.0)
"""The connection repeats requests, so one failure is final. Services remember twice as long, for clocks and queues on the way."""


class XmppPublishing:
    """Sends items over a connection, those of one turn of the event loop and one node together."""

    def __init__(self, connection: XmppConnection) -> None:
        """Send over a connection."""
        self._connection = connection
        self._gatherer = Gatherer(self._send)

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        what, item = f"publish to {outgoing.node}", _item(outgoing)
        # What would break the stream is refused below, alone.
        if not stanzas.UNSAYABLE.search(item):
            await self._connection.up()
            if await self._gatherer.ask(outgoing.node, outgoing.item, item, what):
                return
        await self._connection.ask(what, "set", stanzas.publish(outgoing.node, item))

    async def _send(self, node: str, items: Mapping[str, str]) -> stanzas.XmppOutcomes | None:
        """Send items once: if the answer is lost, or the service refuses them together, each is sent by itself."""
        answer = await self._connection.ask_once("set", stanzas.publish_all(node, "".join(items.values())))
        return None if answer is None or stanzas.refusal(answer) else stanzas.outcomes(answer)


class XmppSender:
    """The transport of a publisher with an XMPP account."""

    def __init__(self, connection: XmppConnection) -> None:
        """Use a connection, which may be a worker's."""
        self._connection = connection
        self._publishing = XmppPublishing(connection)
        # Those that nobody waits for any more are forgotten.
        self._expected: WeakValueDictionary[tuple[str, str], asyncio.Future[Outcome]] = WeakValueDictionary()
        # Of items that are stored: while one is on its way, the service may know the end of an earlier one of its id.
        self._sought: WeakSet[asyncio.Future[Outcome]] = WeakSet()

    async def run(self) -> None:
        """Stay connected until `close`; raises StanzaqError if no further attempt can succeed."""
        await self._connection.run(self)

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        await self._publishing.publish(outgoing)

    async def cancel(self, node: str, item: str) -> bool:
        """Cancel an item; False if there is none. Raises StanzaqError if the service refuses."""
        try:
            await self._connection.ask(f"cancel {item}", "set", stanzas.cancel(node, item), item)
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return False
        return True

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        """Begin to expect the end of an item; returns what waits for it once the item is stored."""
        ended = self._expected.get((node, item))
        if ended is None or ended.done():
            # An end that is known is that of an earlier item of this id.
            ended = self._expected[node, item] = asyncio.get_running_loop().create_future()
        return partial(self._await_end, node, item, ended)

    async def _await_end(self, node: str, item: str, ended: asyncio.Future[Outcome]) -> Outcome:
        if not ended.done():
            self._sought.add(ended)
            # It may have come already: without a connection, or to the item that this one was a repeat of.
            await self._find_end(node, item)
        return await asyncio.shield(ended)

    async def outcome(self, node: str, item: str) -> Outcome:
        """Read how an item has ended. Raises StanzaqError, `item-not-found` if that is not kept or is others' to read."""
        told = stanzas.read_ended_item(
            await self._connection.ask(f"read the end of {item}", "get", stanzas.outcome(node, item))
        )
        if told is None:
            msg = f"cannot read the end of {item}: item-not-found"
            raise StanzaqError(msg, "item-not-found")
        return told[2]

    async def schedule(self, request: Scheduling) -> Schedule:
        """Make or replace a schedule. Raises StanzaqError if the service refuses."""
        answer = await self._connection.ask(f"schedule {request.id}", "set", stanzas.schedule(request))
        return stanzas.read_schedules(answer)[0]

    async def schedules(self, node: str) -> list[Schedule]:
        """List the schedules of a node. Raises StanzaqError if the service refuses."""
        found, after = list[Schedule](), ""
        while True:
            answer = await self._connection.ask(f"list schedules of {node}", "get", stanzas.schedules(node, after))
            page = stanzas.read_schedules(answer)
            found += page
            after = stanzas.read_next_page(answer)
            if not (page and after):
                return found

    async def switch_schedule(self, node: str, name: str, *, paused: bool) -> Schedule:
        """Pause or resume a schedule. Raises StanzaqError if the service refuses."""
        what = "pause" if paused else "resume"
        request = stanzas.switch_schedule(f"{what}-schedule", node, name)
        return stanzas.read_schedules(await self._connection.ask(f"{what} {name}", "set", request))[0]

    async def unschedule(self, node: str, name: str) -> bool:
        """Delete a schedule; False if there is none. Raises StanzaqError if the service refuses."""
        try:
            await self._connection.ask(f"delete {name}", "set", stanzas.switch_schedule("unschedule", node, name))
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return False
        return True

    async def options(self, node: str) -> dict[str, str] | None:
        """Return the options of a node, None if there is none. Raises StanzaqError, `forbidden` if it has other owners."""
        try:
            return stanzas.read_options(await self._connection.ask(f"read {node}", "get", stanzas.options(node)))
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return None

    async def create(self, node: str, options: Mapping[str, str]) -> None:
        """Create a node. Raises StanzaqError if the service refuses, `conflict` if the node exists."""
        await self._connection.ask(f"create {node}", "set", stanzas.create(node, options))

    async def configure(self, node: str, options: Mapping[str, str]) -> None:
        """Change options of a node. Raises StanzaqError if the service refuses."""
        await self._connection.ask(f"change {node}", "set", stanzas.configure(node, options))

    async def affiliations(self, node: str) -> dict[str, str]:
        """Return the affiliations with a node, by bare JID or domain. Raises StanzaqError if the service refuses."""
        what = f"list the affiliations with {node}"
        return stanzas.read_affiliations(await self._connection.ask(what, "get", stanzas.affiliations(node)))

    async def affiliate(self, node: str, changes: Mapping[str, str]) -> None:
        """Change affiliations, all of them or none. Raises StanzaqError if the service refuses."""
        await self._connection.ask(f"change any affiliation with {node}", "set", stanzas.affiliations(node, changes))

    async def requests(self, node: str) -> list[str]:
        """Return who waits for an approval. Raises StanzaqError if the service refuses."""
        what = f"list the requests at {node}"
        return stanzas.read_waiting(await self._connection.ask(what, "get", stanzas.waiting(node)))

    async def decide(self, node: str, jid: str, *, allow: bool) -> None:
        """Approve or refuse the requests of an account. Raises StanzaqError if the service refuses."""
        await self._connection.ask(f"decide the request of {jid}", "set", stanzas.decide(node, jid, allow=allow))

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:
        """Send an item as assured (`urn:xmpp:qos`); raises StanzaqError if it is refused, or cannot be told from a second one."""
        what = f"publish to {outgoing.node}"
        message = stanzas.message(stanzas.publish(outgoing.node, _item(outgoing)))
        step = Step.DELIVER if outgoing.since else Step.ASSURED
        exchange = Exchange(Outstanding(outgoing.name, outgoing.sender, "", message, step, outgoing.since), _TIMING)
        try:
            await self._converse(
                exchange, what, lambda sent: save(replace(outgoing, since=sent.since, sender=sent.sender))
            )
        except Undelivered as fault:
            msg, condition = fault.text, fault.condition
            if isinstance(fault, Unconfirmed) or (fault.sent.step is Step.DELIVER and condition == "item-not-found"):
                msg = f"cannot tell whether {outgoing.item} is published: look for it in {outgoing.node}"
                condition = "item-not-found"
            elif condition == "gone":
                # What a missing node is otherwise; here that means that the service does not hold the item.
                msg, condition = f"cannot {what}: item-not-found (there is no such node)", "item-not-found"
            raise StanzaqError(msg, condition) from None

    async def _converse(self, exchange: Exchange, what: str, save: Callable[[Outstanding], Awaitable[None]]) -> None:
        """Send requests and act on the answers; raises Undelivered. The connection repeats a request until it is answered."""
        move = Move.PROCEED
        while move is not Move.DONE:
            await self._connection.up()
            exchange.speak_as(self._connection.jid)
            try:
                answer = elements.answer(await self._connection.ask(what, "set", elements.request(exchange.sent)))
            except StanzaqError as error:
                answer = elements.Error("cancel", error.condition, str(error))
            move = exchange.heard(answer, time.time())
            if exchange.sent.step is Step.DELIVER and move is Move.PROCEED:
                await save(exchange.sent)

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()

    async def connected(self) -> None:
        """Ask for ends that may be missed."""
        for (node, item), ended in list(self._expected.items()):
            if ended in self._sought and not ended.done():
                await self._find_end(node, item)

    def message(self, message: Element) -> None:
        """Receive the ends of items."""
        self._end(message)

    async def _find_end(self, node: str, item: str) -> None:
        """Ask for an end that was not told; the service knows it only if the node keeps ends."""
        with contextlib.suppress(StanzaqError):
            self._end(await self._connection.ask(f"find {item}", "get", stanzas.outcome(node, item)))

    def _end(self, stanza: Element) -> None:
        told = stanzas.read_ended_item(stanza)
        ended = self._expected.get(told[:2]) if told else None
        if told and ended is not None and not ended.done():
            ended.set_result(told[2])


def _item(outgoing: Outgoing) -> str:
    return stanzas.item(outgoing.item, outgoing.content, outgoing.headers, outgoing.hints)

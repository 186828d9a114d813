"""The slixmpp plugin: sends requests and waits for their answers. Must not know what an answer means."""

import asyncio
import itertools
import random
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakValueDictionary
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from slixmpp import JID
from slixmpp.plugins import BasePlugin
from slixmpp.stanza import Iq
from slixmpp.xmlstream import ElementBase
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.matcher.idsender import MatchIDSender
from slixmpp.xmlstream.stanzabase import StanzaBase

from stanzaq.xep_qos import elements
from stanzaq.xep_qos.exchange import Exchange, Move, Timing, Undelivered
from stanzaq.xep_qos.outbox import MemoryOutbox, Outbox, Outstanding, Step

if TYPE_CHECKING:
    from slixmpp import ClientXMPP

_HANDLER: Final = "QoS answers"

_AT_ONCE: Final = 50
"""The most open messages to one address: receivers limit what they store for a sender, and would refuse more."""

Requests = dict[str, tuple[MatchIDSender, "asyncio.Future[Element]"]]


class XepQos(BasePlugin):
    """Quality of Service (ProtoXEP `urn:xmpp:qos`) for senders.

    Bind a fixed resource: a receiver recognises a message by its msgId and the full JID of its sender.
    """

    name = "xep_qos"
    description = "Quality of Service, for senders"
    dependencies: ClassVar[set[str]] = {"xep_0030"}
    default_config: ClassVar[dict[str, Any]] = {
        # Nine attempts of a step take 43 minutes: less than the hour for which receivers remember.
        "first": 5.0,
        "cap": 3600.0,
        "tries": 9,
        "remembered": 3600.0,
        "outbox": None,
        "clock": time.time,
    }
    first: float
    cap: float
    tries: int
    remembered: float
    outbox: Outbox | None
    clock: Callable[[], float]

    def __init__(self, xmpp: "ClientXMPP", config: dict[str, Any] | None = None) -> None:
        """Prepare; slixmpp calls `plugin_init` when all dependencies are loaded."""
        super().__init__(xmpp, config)
        self._outbox: Outbox = MemoryOutbox() if self.outbox is None else self.outbox
        self._timing = Timing(self.first, self.cap, self.tries, self.remembered)
        # Unique among all runs of this sender, whatever it remembers of the others.
        self._run = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._online = asyncio.Event()
        self._carried: set[str] = set()
        self._requests: Requests = {}
        self._under_way: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def plugin_init(self) -> None:
        """Register handlers for answers and for the stream's state."""
        # One handler for all requests: slixmpp tries every handler on every stanza.
        self.xmpp.register_handler(Callback(_HANDLER, _Answers(self._requests), self._answered))
        self.xmpp.add_event_handler("session_resumed", self.session_bind)
        self.xmpp.add_event_handler("disconnected", self._disconnected)

    def plugin_end(self) -> None:
        """Remove the handlers."""
        self.xmpp.remove_handler(_HANDLER)
        self.xmpp.del_event_handler("session_resumed", self.session_bind)
        self.xmpp.del_event_handler("disconnected", self._disconnected)

    def session_bind(self, _: object) -> None:
        """Let requests go out."""
        self._online.set()

    async def supported(self, jid: JID | str) -> bool:
        """Tell whether a receiver supports QoS: from its presence if xep_0115 is registered, else by asking."""
        return bool(await self.xmpp.plugin["xep_0030"].supports(JID(jid), feature=elements.QOS))

    async def send_acknowledged(self, content: ElementBase | Element, mto: JID | str) -> None:
        """Send a message, or a payload, at least once; return when it is acknowledged, or raise Undelivered."""
        await self._send(content, mto, Step.ACKNOWLEDGED)

    async def send_assured(self, content: ElementBase | Element, mto: JID | str) -> None:
        """Send a message, or a payload, exactly once; return when it is delivered, or raise Undelivered."""
        await self._send(content, mto, Step.ASSURED)

    def resume(self) -> dict[str, "asyncio.Task[None]"]:
        """Send the messages that an earlier run left in the outbox, from their steps on; returns their tasks by msgId."""
        left = [sent for sent in self._outbox.pending() if sent.msg_id not in self._carried]
        return {sent.msg_id: self._start(Exchange(sent, self._timing, resumed=True)) for sent in left}

    async def _send(self, content: ElementBase | Element, mto: JID | str, step: Step) -> None:
        msg_id, to = f"{self._run}-{next(self._numbers)}", str(JID(mto))
        element = content.xml if isinstance(content, ElementBase) else content
        message = elements.embedded(element, self.xmpp.default_ns, msg_id)
        # It must be in the outbox before anybody else can have it.
        sent = Outstanding(msg_id, self.xmpp.boundjid.full, to, message, step, self.clock())
        self._outbox.save(sent)
        await self._start(Exchange(sent, self._timing))

    def _start(self, exchange: Exchange) -> "asyncio.Task[None]":
        msg_id = exchange.sent.msg_id
        self._carried.add(msg_id)
        carrying = asyncio.create_task(self._carry(exchange))
        carrying.add_done_callback(lambda _: self._carried.remove(msg_id))
        return carrying

    async def _carry(self, exchange: Exchange) -> None:
        """Run an exchange to its end; when cancelled, leave the message in the outbox."""
        under_way = self._under_way.setdefault(exchange.sent.to, asyncio.Semaphore(_AT_ONCE))
        try:
            async with under_way:
                await self._converse(exchange)
        except Undelivered:
            self._outbox.forget(exchange.sent.msg_id)
            raise
        self._outbox.forget(exchange.sent.msg_id)

    async def _converse(self, exchange: Exchange) -> None:
        """Send requests and act on the answers. A request keeps its id, so that a late answer counts."""
        move = Move.PROCEED
        request = ""
        while move is not Move.DONE:
            await self._online.wait()
            exchange.speak_as(self.xmpp.boundjid.full)
            if move is Move.PROCEED:
                request = self.xmpp.new_id()
            patience = exchange.patience
            answered = await self._ask(request, exchange.sent, patience)
            if answered.cancelled():
                # A broken stream is not a failed attempt.
                exchange.lost()
                continue
            answer = elements.answer(answered.result()) if answered.done() else None
            move = exchange.heard(answer, self.clock())
            if move is Move.PAUSE:
                # Random, so that messages refused together are not repeated together.
                await asyncio.sleep(patience * random.uniform(0.5, 1))  # noqa: S311  (not a secret)
            elif move is Move.PROCEED:
                self._outbox.save(exchange.sent)

    async def _ask(self, request: str, sent: Outstanding, patience: float) -> "asyncio.Future[Element]":
        """Send a request and wait up to `patience` seconds; returns the future of the answer, maybe unfinished."""
        answered: asyncio.Future[Element] = asyncio.get_running_loop().create_future()
        iq = self.xmpp.Iq()
        iq["type"], iq["id"], iq["to"] = "set", request, sent.to
        iq.append(ET.fromstring(elements.request(sent)))  # noqa: S314  (written by `elements`)
        matcher = MatchIDSender({"id": request, "self": self.xmpp.boundjid, "peer": iq["to"]})
        self._requests[request] = matcher, answered
        try:
            self.xmpp.send(iq)
            await asyncio.wait([answered], timeout=patience)
        finally:
            del self._requests[request]
        return answered

    def _answered(self, stanza: StanzaBase) -> None:
        _, answered = self._requests[stanza["id"]]
        if not answered.done():
            answered.set_result(stanza.xml)

    def _disconnected(self, _: object) -> None:
        """Hold requests back until there is a stream, and cancel the wait for answers."""
        self._online.clear()
        for _, answered in self._requests.values():
            answered.cancel()


class _Answers(MatcherBase):
    """Matches the answers to open requests."""

    _criteria: Requests

    def match(self, xml: StanzaBase) -> bool:
        """Tell whether a stanza is an answer from somebody who may give it."""
        if not isinstance(xml, Iq) or xml["type"] not in {"result", "error"} or xml["id"] not in self._criteria:
            return False
        return self._criteria[xml["id"]][0].match(xml)

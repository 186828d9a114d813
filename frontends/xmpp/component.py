"""The XMPP door's shell: stanzas to the core, outcomes and deliveries to the stream. Must not know Redis or slixmpp.

It holds nothing that matters: which requests wait for an answer, and no more.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element

import structlog

from broker.model.commands import Bounce, Command, Confirm, Presence, Retract, Stats, Transfer, Unlock
from broker.model.core import Core, Reply
from broker.model.items import Delivery, Notice
from broker.model.names import Jid
from broker.model.options import NodeConfig
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import Described, Refused, Result, Retracted, Unlocked
from frontends.xmpp import refusal_log, replies, requests, stanzas
from frontends.xmpp.adhoc import commands
from frontends.xmpp.adhoc.move_batches import MoveBatches
from frontends.xmpp.messages import confirmations, notifications, presence, publishing, qos
from frontends.xmpp.messages.misuse_log import EventLog
from frontends.xmpp.pubsub import approvals
from frontends.xmpp.stanzas import Answer, DescribedNode, Iq, MoveBatch, Question, View
from frontends.xmpp.stream import Stream

_log = structlog.get_logger("stanzaq.xmpp")

WAITING_MOST: Final = 20_000
"""Requests that may wait for the core at once: what a Redis that hangs can cost in memory."""

WAITING_MOST_OF_ONE: Final = 5_000
"""And of one sender: who floods the frontend takes no more than a share from its neighbours."""


class Component:
    """One frontend of the service: an `Outlet` for the core, a component for the XMPP server."""

    def __init__(  # noqa: PLR0913  (settings, each named where it is given)
        self,
        *,
        domain: str,
        secret: str,
        host: str,
        port: int,
        strict_iq_type: bool = False,
        legacy_unlock_ns: bool = False,
        event_log: Jid | None = None,
        admins: frozenset[Jid] = frozenset(),
        default_queueing: bool = True,
    ) -> None:
        """Prepare the door; `start` opens it. Must run inside the event loop."""
        self._domain = domain
        self._strict_iq_type = strict_iq_type
        self._events = notifications.Events(domain, secrets.token_hex(6), legacy_unlock_ns=legacy_unlock_ns)
        self._log = EventLog(domain, event_log)
        # All frontends of a service have its secret, so each knows the sessions of the others.
        self._adhoc_context = commands.AdhocContext(admins, secret.encode(), NodeConfig(queueing=default_queueing))
        self._move_batches = MoveBatches(lambda: self._draining)
        self._stream = Stream(domain, secret, host, port, receive=self.receive, changed=self._changed)
        self._core: Core
        self._link: Callable[[bool], None]
        self._waiting = 0
        self._waiting_of: dict[Jid, int] = {}
        self._draining = False
        self._idle = asyncio.Event()
        self.gets_for_sets = 0

    def start(self, core: Core, link: Callable[[bool], None]) -> None:
        """Open the stream and keep it open; `link` learns each time that it comes up or goes down."""
        self._core = core
        self._link = link
        self._stream.open()

    @property
    def connected(self) -> bool:
        """Tell whether the XMPP server has accepted us and the stream stands."""
        return self._stream.connected

    def deliver(self, delivery: Delivery) -> None:
        """Send an item to the subscriber that now holds it."""
        try:
            self._stream.write(self._events.delivery(delivery))
        except CorruptRecord as fault:
            # Its lock runs out like any other; after its last attempt it is a dead letter.
            where = {"node": delivery.partition.node, "item": delivery.item_id, "subscriber": delivery.subscriber}
            _log.error("an item cannot be read", **where, error=str(fault))

    def notify(self, notice: Notice) -> None:
        """Tell a subscriber what happened without its asking."""
        self._stream.write(self._events.notice(notice))

    def congested(self) -> bool:
        """Tell whether so much waits to be written that more deliveries had better wait in Redis."""
        return self._stream.congested()

    def flushed(self) -> bool:
        """Tell whether all that was handed over has left the process; never so while the stream is down."""
        return self._stream.flushed()

    def refuse(self) -> None:
        """Take no more requests: each is told at once to ask again, and another frontend will answer."""
        self._draining = True

    async def drain(self, seconds: float) -> None:
        """Take no more requests, wait for the answers that are due, write them and close the stream."""
        self.refuse()
        if self._waiting:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                _log.warning("closing with requests unanswered", waiting=self._waiting)
        await self._stream.close(seconds)

    def receive(self, element: Element, fault: MalformedRequest | None) -> None:
        """Take one stanza off the stream; one with a fault is without its children, and an IQ is told so."""
        match element.tag.rpartition("}")[2]:
            case "iq":
                self._receive_iq(element, fault)
            case "message":
                self._receive_message(element, fault)
            case _:
                self._receive_presence(element)

    def _receive_iq(self, element: Element, fault: MalformedRequest | None) -> None:
        iq = stanzas.asked(element)
        if iq is None:
            answer = confirmations.answered(element)
            if answer is not None:
                self._tell(answer)
        elif fault is not None:
            self._refuse(iq, fault)
        else:
            try:
                self._read(iq)
            except Exception as failure:  # noqa: BLE001  (told to the asker, and logged if it is ours)
                self._fail(iq, failure)

    def _fail(self, iq: Iq, failure: Exception) -> None:
        """Answer an IQ with a fault of its asker's, or of ours; its neighbours notice nothing."""
        if isinstance(failure, MalformedRequest):
            self._refuse(iq, failure)
            self._report(iq, failure.problem, failure.detail)
        else:
            _log.error("a request failed", exc_info=failure, **refusal_log.of_stanza(iq.element))
            self._stream.write(replies.refused(iq, MalformedRequest(Problem.UNAVAILABLE)))

    def _refuse(self, iq: Iq, fault: MalformedRequest) -> None:
        self._stream.write(replies.refused(iq, fault))
        refusal_log.log(iq.element, fault.problem, fault.detail)

    def _read(self, iq: Iq) -> None:
        # QoS is below all other protocols (S1), and is spoken at the address of a node too.
        if qos.concerns(iq):
            asked: Question | Answer = qos.read(iq, self._domain)
        elif iq.service == self._domain:
            asked = requests.read(iq, self._adhoc_context)
        else:
            asked = requests.elsewhere(iq, self._domain)
        if isinstance(asked, Answer):
            self._stream.write(replies.result(iq, asked.content))
            return
        if requests.is_get_for_set(asked):
            self.gets_for_sets += 1
            if self._strict_iq_type:
                raise MalformedRequest(Problem.BAD_REQUEST, "a change is a set")
        rate = asked.rate if isinstance(asked, MoveBatch) else None
        self._take(iq.sender, asked.command, partial(self._answered, asked), rate)

    def _answered(self, question: Question, outcome: Result) -> None:
        try:
            self._answer(question, outcome)
        except Exception as failure:  # noqa: BLE001  (likewise)
            self._fail(question.iq, failure)

    def _answer(self, question: Question, outcome: Result) -> None:
        iq = question.iq
        match outcome:
            # The holder learns of it before the asker does: one stream and one write keep their order (QX17).
            case Retracted() if isinstance(question.command, Retract):
                self._stream.write(self._events.retracted(question.command, outcome))
            case Unlocked() if isinstance(question.command, Unlock):
                self._stream.write(self._events.unlocked(question.command, outcome))
            case Described(record) if question.view is View.INFO:
                counts = DescribedNode(iq, Stats(record.name, iq.sender), record=record)
                self._submit(iq.sender, counts.command, partial(self._answered, counts))
                return
        self._stream.write(replies.answer(question, outcome))
        if isinstance(outcome, Refused):
            refusal_log.log(iq.element, outcome.problem, outcome.detail, question.command)
            self._report(iq, outcome.problem, outcome.detail)

    def _report(self, iq: Iq, problem: Problem, detail: str) -> None:
        """Tell whoever watches over the service that QoS was misused (S21)."""
        if problem in qos.INVALID and qos.concerns(iq):
            self._stream.write(self._log.misuse(iq.element, problem, detail, int(time.time() * 1000)))

    def _receive_message(self, message: Element, fault: MalformedRequest | None) -> None:
        bounce = notifications.bounced(message)
        if bounce is not None:
            self._tell(bounce)
        # An error is never answered with an error, and without a sender there is nobody to tell (RFC 6120 §8.3.1).
        elif message.get("type") != "error" and message.get("from"):
            if fault is None:
                self._receive_plain(message)
            else:
                self._refuse_message(message, fault)

    def _receive_plain(self, message: Element) -> None:
        """Do what a plain message asks for; its sender hears of it only if that fails (S2, S13)."""
        sender = Jid(message.get("from", ""))
        try:
            command = self._publish_or_answer(message, sender)
            if command is not None:
                self._take(sender, command, partial(self._answer_plain, message, command))
        except MalformedRequest as refusal:
            self._refuse_message(message, refusal)
        except Exception:  # noqa: BLE001  (logged and told, as for an IQ)
            _log.exception("a message failed", **refusal_log.of_stanza(message))
            self._stream.write(publishing.refused(message, MalformedRequest(Problem.UNAVAILABLE)))

    def _publish_or_answer(self, message: Element, sender: Jid) -> Command | None:
        """Read what a plain message brings: an owner's answer to a form, or an item for a node."""
        node = publishing.node_at(message.get("to", ""), self._domain)
        if node is None:
            return None
        # Forms are for the service itself: at a node's address any element is an item.
        answer = None if node else approvals.answered(message, sender)
        if answer is not None:
            return answer
        sent = publishing.read(message, node)
        return None if sent is None else sent.once(sender)

    def _answer_plain(self, message: Element, command: Command, outcome: Result) -> None:
        if isinstance(outcome, Refused):
            self._refuse_message(message, MalformedRequest(outcome.problem, outcome.detail), command)

    def _refuse_message(self, message: Element, fault: MalformedRequest, command: Command | None = None) -> None:
        self._stream.write(publishing.refused(message, fault))
        refusal_log.log(message, fault.problem, fault.detail, command)

    def _receive_presence(self, element: Element) -> None:
        heard = presence.heard(element)
        if heard is not None:
            self._tell(heard)
            return
        self._stream.write(presence.reply(element))

    def _tell(self, command: Presence | Bounce | Confirm) -> None:
        """Pass on what nobody waits to hear the outcome of; if lost, another try or the deadline makes up for it (QX16)."""
        try:
            self._submit(command.sender, command, _ignore)
        except MalformedRequest as fault:
            what = {"subscriber": command.sender, "command": type(command).__name__}
            _log.warning("passed over", **what, problem=fault.problem.value, detail=fault.detail)

    def _take(self, sender: Jid, command: Command, reply: Reply, rate: int | None = None) -> None:
        """Hand what somebody asks for to the core, unless this frontend is about to stop."""
        if self._draining:
            raise MalformedRequest(Problem.UNAVAILABLE, "this frontend is stopping: ask again, another one answers")
        self._submit(sender, command, reply, rate)

    def _submit(self, sender: Jid, command: Command, reply: Reply, rate: int | None = None) -> None:
        """Hand a command to the core, or with a `rate` to what takes several steps, unless too many wait already."""
        waiting = self._waiting_of.get(sender, 0)
        if waiting >= WAITING_MOST_OF_ONE or self._waiting >= WAITING_MOST:
            raise MalformedRequest(Problem.OUT_OF_MEMORY, "too many requests wait for an answer")
        self._waiting += 1
        self._waiting_of[sender] = waiting + 1
        try:
            ended = partial(self._ended, sender, reply)
            if rate is None:
                self._core.submit(command, ended)
            else:
                assert isinstance(command, Transfer), "only transfers are taken at a rate"
                self._move_batches.submit(self._core, rate, command, ended)
        except Exception:
            self._release(sender)
            raise

    def _ended(self, sender: Jid, reply: Reply, outcome: Result) -> None:
        self._release(sender)
        reply(outcome)
        if not self._waiting:
            self._idle.set()

    def _release(self, sender: Jid) -> None:
        self._waiting -= 1
        left = self._waiting_of[sender] - 1
        if left:
            self._waiting_of[sender] = left
        else:
            del self._waiting_of[sender]

    def _changed(self, up: bool) -> None:  # noqa: FBT001  (its one argument)
        self._link(up)


def _ignore(_: Result) -> None:
    pass

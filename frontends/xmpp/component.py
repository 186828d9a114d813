"""The component: passes stanzas to the core, and results and deliveries to the stream. Must not know Redis or slixmpp.

Its only state is which requests wait for an answer.
"""

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element

import structlog

from broker.model.commands import Bounce, Command, Confirm, MoveItems, Presence, Retract, RetractBatch, Stats, Unlock
from broker.model.core import Core, Reply
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid, prepare_jid
from broker.model.nodes.options import NodeConfig
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import Described, Refused, Result, Retracted, RetractedBatch, Unlocked
from broker.model.roles import Role
from frontends.xmpp import refusal_log, replies, requests, stanzas
from frontends.xmpp.adhoc import commands
from frontends.xmpp.adhoc.move_batches import MoveBatches
from frontends.xmpp.messages import deliveries, notifications, presence, publishing, qos
from frontends.xmpp.messages.misuse_log import EventLog
from frontends.xmpp.pubsub import approvals, batches
from frontends.xmpp.stanzas import BatchRequest, DescribedNode, DoorAnswer, Iq, MoveBatch, Question, View
from frontends.xmpp.stream import Stream

_log = structlog.get_logger("stanzaq.xmpp")

WAITING_MOST: Final = 20_000
"""The most requests that wait for the core at once, which bounds their memory when Redis hangs."""

_STOPPING: Final = "this frontend is stopping: ask again, another one answers"

WAITING_MOST_OF_ONE: Final = 5_000
"""The most of one sender, so that a flood leaves room for others."""


class Component:
    """One frontend of the service: an `Outlet` for the core, a component for the XMPP server."""

    def __init__(  # noqa: PLR0913  (settings, each named where it is given)
        self,
        *,
        domain: str,
        secret: str,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        strict_iq_type: bool = False,
        legacy_unlock_ns: bool = False,
        event_log: Jid | None = None,
        node_defaults: NodeConfig = NodeConfig(),  # noqa: B008  (a frozen value)
    ) -> None:
        """Prepare the component; `start` opens the stream. Must run inside the event loop."""
        self._domain = domain
        self._strict_iq_type = strict_iq_type
        self._events = notifications.Events(domain, secrets.token_hex(6), legacy_unlock_ns=legacy_unlock_ns)
        self._log = EventLog(domain, event_log)
        # All frontends of a service share its secret, so each recognises the sessions of the others.
        self._adhoc_context = commands.AdhocContext(key=secret.encode(), node=node_defaults)
        self._move_batches = MoveBatches(lambda: self._draining)
        self._stream = Stream(domain, secret, host, port, tls=tls, receive=self.receive, changed=self._on_link)
        self._core: Core
        self._link: Callable[[bool], None]
        self._waiting = 0
        self._waiting_of: dict[Jid, int] = {}
        self._draining = False
        self._idle = asyncio.Event()
        self.gets_for_sets = 0

    def start(
        self, core: Core, link: Callable[[bool], None], role_of: Callable[[Jid], Role | None] = commands.NOBODY.role_of
    ) -> None:
        """Open the stream and keep it open; `link` is called whenever it comes up or goes down. `role_of` tells roles."""
        self._core = core
        self._adhoc_context = replace(self._adhoc_context, role_of=role_of)
        self._link = link
        self._stream.open()

    def replace(self, secret: str, tls: ssl.SSLContext | None) -> None:
        """Use these when it connects again."""
        self._stream.replace(secret, tls)

    @property
    def connected(self) -> bool:
        """Tell whether the stream to the XMPP server is up."""
        return self._stream.connected

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Send items to the subscriber that holds them."""
        if len(batch) > 1:
            self._stream.write(deliveries.write_batch(self._domain, batch, _log_unreadable))
            return
        try:
            self._stream.write(deliveries.write_delivery(self._domain, batch[0]))
        except CorruptRecord as fault:
            _log_unreadable(batch[0], fault)

    def notify(self, notice: Notice) -> None:
        """Send a subscriber a notice that it did not request."""
        self._stream.write(self._events.notice(notice))

    def congested(self) -> bool:
        """Tell whether so much output is waiting that more deliveries should wait in Redis."""
        return self._stream.congested()

    def flushed(self) -> bool:
        """Tell whether all output has left the process; False while the stream is down."""
        return self._stream.flushed()

    def refuse(self) -> None:
        """Refuse new requests: each is told to ask again, and another frontend will answer."""
        self._draining = True

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, wait for the open ones, write their answers and close the stream."""
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
        """Process a stanza; one with a fault has no children, and its sender is told."""
        # Servers pass addresses on as clients and other servers write them.
        if sender := element.get("from"):
            element.set("from", prepare_jid(sender))
        if element.get("to") != self._domain:
            self._prepare_address(element)
        match element.tag.rpartition("}")[2]:
            case "iq":
                self._receive_iq(element, fault)
            case "message":
                self._receive_message(element, fault)
            case _:
                self._receive_presence(element)

    def _prepare_address(self, element: Element) -> None:
        """Write the service's domain in an address as it is set."""
        head, slash, resource = element.get("to", "").partition("/")
        local, at, domain = head.rpartition("@")
        if domain != self._domain and prepare_jid(domain) == prepare_jid(self._domain):
            element.set("to", local + at + self._domain + slash + resource)

    def _receive_iq(self, element: Element, fault: MalformedRequest | None) -> None:
        iq = stanzas.parse_iq(element)
        if iq is None:
            answer = deliveries.parse_answer(element)
            if answer is not None:
                self._tell(answer)
        elif fault is not None:
            self._refuse(iq, fault)
        else:
            try:
                self._read(iq)
            except Exception as failure:  # noqa: BLE001  (likewise)
                self._fail(iq, failure)

    def _fail(self, iq: Iq, failure: Exception) -> None:
        """Answer an IQ with the sender's fault or with ours, without effect on other requests."""
        if isinstance(failure, MalformedRequest):
            self._refuse(iq, failure)
            self._report(iq, failure.problem, failure.detail)
        else:
            _log.error("a request failed", exc_info=failure, **refusal_log.of_stanza(iq.element))
            self._stream.write(replies.write_refused(iq, MalformedRequest(Problem.UNAVAILABLE)))

    def _refuse(self, iq: Iq, fault: MalformedRequest) -> None:
        self._stream.write(replies.write_refused(iq, fault))
        refusal_log.log(iq.element, fault.problem, fault.detail)

    def _read(self, iq: Iq) -> None:
        # QoS is below all other protocols (S1), and also works at a node's address.
        if iq.element.find(qos.ANY) is not None:
            asked: Question | DoorAnswer | BatchRequest = qos.read(iq, self._domain)
        elif iq.service == self._domain:
            asked = requests.read(iq, self._adhoc_context)
        else:
            asked = requests.translate_at_node(iq, self._domain)
        if isinstance(asked, DoorAnswer):
            self._stream.write(replies.result(iq, asked.content))
            return
        if isinstance(asked, Question) and requests.is_get_for_set(asked):
            self.gets_for_sets += 1
            if self._strict_iq_type:
                raise MalformedRequest(Problem.BAD_REQUEST, "a change must be a set")
        if self._draining:
            raise MalformedRequest(Problem.UNAVAILABLE, _STOPPING)
        if isinstance(asked, BatchRequest):
            outcomes = batches.BatchOutcomes(asked)
            self._submit(
                iq.sender, partial(self._submit_rows, outcomes), partial(self._answer_batch, outcomes), len(asked.rows)
            )
            return
        submit: Callable[[Reply], object] = partial(self._core.submit, asked.command)
        if isinstance(asked, MoveBatch):
            assert isinstance(asked.command, MoveItems), "only transfers are taken at a rate"
            submit = partial(self._move_batches.submit, self._core, asked.rate, asked.command)
        self._submit(iq.sender, submit, partial(self._answer, asked))

    def _answer(self, question: Question, outcome: Result) -> None:
        iq = question.iq
        try:
            match outcome:
                # The holder is notified before the sender gets the result: one stream and one write keep this order (QX17).
                case Retracted() | Unlocked() if isinstance(question.command, Retract | Unlock):
                    knows = iq.sender if question.view is View.RESULT_ONLY else None
                    self._stream.write(self._events.write_ended((question.command, outcome), knows=knows))
                case RetractedBatch() if isinstance(question.command, RetractBatch):
                    ended = zip(question.command.items, outcome.ended, strict=True)
                    knows = iq.sender if question.view is View.RESULT_ONLY else None
                    self._stream.write(self._events.write_ended(*ended, knows=knows))
                case Described(record, reads=True) if question.view is View.INFO:
                    counts = DescribedNode(iq, Stats(record.name, iq.sender), record=record)
                    self._submit(iq.sender, partial(self._core.submit, counts.command), partial(self._answer, counts))
                    return
            self._stream.write(replies.answer(question, outcome))
            if isinstance(outcome, Refused):
                refusal_log.log(iq.element, outcome.problem, outcome.detail, question.command)
                self._report(iq, outcome.problem, outcome.detail)
        except Exception as failure:  # noqa: BLE001  (reported to the sender, and logged if it is our fault)
            self._fail(iq, failure)

    def _submit_rows(self, outcomes: batches.BatchOutcomes, answer: Reply) -> None:
        """Submit all commands of a batch in this turn of the event loop, in which the core gathers them into calls."""
        batch = outcomes.batch
        for number in batches.order(batch):
            command, reply = batch.rows[number][1], partial(self._end_row, outcomes, answer, number)
            if isinstance(command, Refused):
                reply(command)
                continue
            try:
                self._core.submit(command, reply)
            except Exception as failure:  # noqa: BLE001  (the other rows go on)
                _log.error("a request failed", exc_info=failure, **refusal_log.of_stanza(batch.iq.element))
                reply(Refused(Problem.UNAVAILABLE))

    def _end_row(self, outcomes: batches.BatchOutcomes, answer: Reply, number: int, outcome: Result) -> None:
        """Note the outcome of a row; the last one answers the batch."""
        iq, command = outcomes.batch.iq, outcomes.batch.rows[number][1]
        last = outcomes.add(number, outcome)
        if isinstance(outcome, Refused):
            given = None if isinstance(command, Refused) else command
            refusal_log.log(iq.element, outcome.problem, outcome.detail, given)
        # The result tells the sender that its own locks have ended.
        elif (
            isinstance(outcome, Retracted | Unlocked)
            and isinstance(command, Retract | Unlock)
            and outcome.holder != iq.sender
        ):
            self._stream.write(self._events.write_ended((command, outcome)))
        if last:
            answer(outcome)

    def _answer_batch(self, outcomes: batches.BatchOutcomes, _: Result) -> None:
        iq = outcomes.batch.iq
        try:
            self._stream.write(replies.result(iq, outcomes.write()))
        except Exception as failure:  # noqa: BLE001  (reported to the sender, and logged if it is our fault)
            self._fail(iq, failure)

    def _report(self, iq: Iq, problem: Problem, detail: str) -> None:
        """Report a misuse of QoS to the service's observer (S21)."""
        if problem in qos.INVALID and iq.element.find(qos.ANY) is not None:
            self._stream.write(self._log.misuse(iq.element, problem, detail, int(time.time() * 1000)))

    def _receive_message(self, message: Element, fault: MalformedRequest | None) -> None:
        bounce = deliveries.parse_bounce(message)
        if bounce is not None:
            self._tell(bounce)
        # An error must not be answered by an error, and without a sender nobody can be answered (RFC 6120 §8.3.1).
        elif message.get("type") != "error" and message.get("from"):
            if fault is None:
                self._receive_plain(message)
            else:
                self._refuse_message(message, fault)

    def _receive_plain(self, message: Element) -> None:
        """Process a plain message; its sender gets an answer only if it fails (S2, S13)."""
        sender = Jid(message.get("from", ""))
        try:
            command = self._publish_or_answer(message, sender)
            if command is not None and self._draining:
                self._refuse_message(message, MalformedRequest(Problem.UNAVAILABLE, _STOPPING))
            elif command is not None:
                answer = partial(self._answer_plain, message, command)
                self._submit(sender, partial(self._core.submit, command), answer)
        except MalformedRequest as refusal:
            self._refuse_message(message, refusal)
        except Exception:  # noqa: BLE001  (logged and reported, as for an IQ)
            _log.exception("a message failed", **refusal_log.of_stanza(message))
            self._stream.write(publishing.write_refused(message, MalformedRequest(Problem.UNAVAILABLE)))

    def _publish_or_answer(self, message: Element, sender: Jid) -> Command | None:
        """Parse a plain message: an owner's answer to a form, or an item for a node."""
        node = publishing.node_at(message.get("to", ""), self._domain)
        if node is None:
            return None
        # Forms are for the service itself: at a node's address any element is an item.
        answer = None if node else approvals.parse_answer(message, sender)
        if answer is not None:
            return answer
        sent = publishing.read(message, node)
        return None if sent is None else sent.publish_once(sender)

    def _answer_plain(self, message: Element, command: Command, outcome: Result) -> None:
        if isinstance(outcome, Refused):
            self._refuse_message(message, MalformedRequest(outcome.problem, outcome.detail, outcome.wait_ms), command)

    def _refuse_message(self, message: Element, fault: MalformedRequest, command: Command | None = None) -> None:
        self._stream.write(publishing.write_refused(message, fault))
        refusal_log.log(message, fault.problem, fault.detail, command)

    def _receive_presence(self, element: Element) -> None:
        heard = presence.parse_presence(element)
        if heard is not None:
            self._tell(heard)
            return
        self._stream.write(presence.reply(element))

    def _tell(self, command: Presence | Bounce | Confirm) -> None:
        """Submit a command that nobody waits for; if it is lost, a retry or the deadline makes up for it (QX16)."""
        try:
            self._submit(command.sender, partial(self._core.submit, command), _ignore)
        except MalformedRequest as fault:
            what = {"subscriber": command.sender, "command": type(command).__name__}
            _log.warning("passed over", **what, problem=fault.problem.value, detail=fault.detail)

    def _submit(self, sender: Jid, submit: Callable[[Reply], object], reply: Reply, commands: int = 1) -> None:
        """Submit a request of so many commands, unless too many are waiting."""
        waiting = self._waiting_of.get(sender, 0) + commands
        if waiting > WAITING_MOST_OF_ONE or self._waiting + commands > WAITING_MOST:
            raise MalformedRequest(Problem.OUT_OF_MEMORY, "too many requests wait for an answer")
        self._waiting += commands
        self._waiting_of[sender] = waiting
        try:
            submit(partial(self._on_result, sender, commands, reply))
        except Exception:
            self._release(sender, commands)
            raise

    def _on_result(self, sender: Jid, commands: int, reply: Reply, outcome: Result) -> None:
        self._release(sender, commands)
        reply(outcome)
        if not self._waiting:
            self._idle.set()

    def _release(self, sender: Jid, commands: int) -> None:
        self._waiting -= commands
        left = self._waiting_of[sender] - commands
        if left:
            self._waiting_of[sender] = left
        else:
            del self._waiting_of[sender]

    def _on_link(self, up: bool) -> None:  # noqa: FBT001  (its one argument)
        self._link(up)


def _ignore(_: Result) -> None:
    pass


def _log_unreadable(delivery: Delivery, fault: CorruptRecord) -> None:
    # Its lock expires like any other; after its last attempt it becomes a dead letter.
    where = {"node": delivery.partition.node, "item": delivery.item_id, "subscriber": delivery.subscriber}
    _log.error("an item cannot be read", **where, error=str(fault))

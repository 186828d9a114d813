"""The transport of workers in the service's own process: commands to its core, and deliveries from it. Must not know Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from weakref import WeakValueDictionary

from broker import codec, payloads
from broker.model.commands import (
    Affiliate,
    Approve,
    Cancel,
    Command,
    Complete,
    CompleteAndPublish,
    Configure,
    Declare,
    Describe,
    ListRequests,
    ListSchedules,
    PauseSchedule,
    Publish,
    PutSchedule,
    ReadOutcome,
    RemoveSchedule,
    Renew,
    Retract,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.core import Core
from broker.model.items import hints as broker_hints
from broker.model.items import items, trace
from broker.model.items import progress as model
from broker.model.items.dependencies import Dependencies
from broker.model.items.headers import validate_headers
from broker.model.items.items import Envelope
from broker.model.items.outcomes import ItemOutcome, ReplyMode
from broker.model.names import ITEM_ID_BYTES, Jid, prepare_jid, read_affiliate
from broker.model.nodes import schedules
from broker.model.nodes.fields import values
from broker.model.nodes.nodes import Affiliation, form_values
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import (
    Described,
    Ended,
    Renewed,
    Result,
    Scheduled,
    ScheduleList,
    SubscriptionList,
    refusal_of,
)
from frontends.errors import ERRORS
from frontends.xmpp.errors import wire
from stanzaq.codec import PLAIN, Codec
from stanzaq.errors import StanzaqError
from stanzaq.retry import Release
from stanzaq.testing.sent import Sent
from stanzaq.transport import traceparent
from stanzaq.transport.interface import (
    Content,
    Delivery,
    Lock,
    Outcome,
    Outgoing,
    Prepare,
    Progress,
    Receiver,
    Save,
    Schedule,
    Scheduling,
    Sender,
    line,
)
from stanzaq.xmpp.stanzas import sayable

OWNER: Final = Jid("owner@localhost/test")
"""The owner of all nodes, who publishes."""

_WORKER: Final = Jid("worker@localhost/test")

_UNKNOWN_NODE: Final = "the test has no such queue: check its name, or declare it, e.g. by nodes="

_ENDED: Final = {"item-not-found", "conflict", "forbidden", "unexpected-request"}
"""The errors for a lock, named by its token, that its holder has lost."""


async def ask(core: Core, what: str, command: Command) -> Result:
    """Submit a command; raises StanzaqError, as for a service behind XMPP, if the core refuses to do `what`."""
    result = await core.ask(command)
    if (refused := refusal_of(result)) is not None:
        detail = _UNKNOWN_NODE if refused.problem is Problem.NODE_NOT_FOUND else refused.detail
        raise _fault(what, ERRORS[refused.problem].xmpp.condition, detail)
    return result


def _command(outgoing: Outgoing, by: Jid) -> Publish:
    """Return the command that publishes an item. Durations are whole seconds, as on every wire. Raises StanzaqError."""
    node, content, asks = outgoing.node, outgoing.content, outgoing.hints
    what = f"publish to {node}"
    traced, others = traceparent.split(outgoing.headers)
    lives = None if asks.ttl is None else max(1, round(asks.ttl)) * 1_000
    try:
        for name, text in (("id", outgoing.item), ("key", asks.key)):
            if len(text.encode()) > ITEM_ID_BYTES:
                # The doors check it.
                raise MalformedRequest(Problem.BAD_REQUEST, f"{name}: at most {ITEM_ID_BYTES} bytes")  # noqa: TRY301
        told = {
            **validate_headers(others.items()),
            **trace.headers(traced.get("traceparent"), traced.get("tracestate")),
        }
        envelope = payloads.make_envelope(content.body, content.type, told)
        at = None if asks.at is None else round(asks.at * 1_000)
        delay = round(asks.delay) * 1_000 if at is None else None
        reply = ReplyMode.TOLD if asks.reply else ReplyMode.KEPT if asks.keep else ReplyMode.NONE
        after = Dependencies.parse_names(asks.parents, regardless=asks.regardless)
        confirm = asks.confirm or None
        hints = broker_hints.Hints.validate(delay, asks.priority, lives, reply, after, at=at, confirm=confirm)
    except MalformedRequest as fault:
        raise _fault(what, wire(fault).condition, fault.detail) from None
    return Publish(node, by, outgoing.item, codec.pack(envelope), len(content.body), key=asks.key, hints=hints)


def content(envelope: Envelope) -> Content:
    """Return the payload of an item."""
    return Content(envelope.body, payloads.kind(envelope))


def _fault(what: str, condition: str, detail: str) -> StanzaqError:
    return StanzaqError(f"cannot {what}: {condition}{f' ({detail})' if detail else ''}", condition)


class CoreTransport:
    """The transport of a worker; also the door of the core, which sends its items here."""

    def __init__(self, changed: Callable[[], None], group: str, codec: Codec = PLAIN) -> None:
        """Call `changed` after each event; `core` must be set before the worker runs, which may be the member of a group."""
        self.core: Core
        self._group = group
        self._codec = codec
        self.ready = asyncio.Event()
        """The worker has subscribed to its nodes."""
        self._changed = changed
        self._receiver: Receiver | None = None
        self._subscriptions: dict[str, Subscribe] = {}
        self._closed = asyncio.Event()
        self.sent: list[Sent] = []
        """What was published, in order."""
        self._expected: WeakValueDictionary[tuple[str, str], asyncio.Future[Outcome]] = WeakValueDictionary()

    # Used by the worker.

    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:  # noqa: ARG002
        """Receive items until `close`, of nodes that are there; raises StanzaqError."""
        self._receiver = receiver
        for node, credit in nodes.items():
            config = await self._config(node)
            scope = Scope(SubscriptionType.ITEMS, None) if config.collects else None
            # A member's credit is divided by the number of partitions, and this member owns them all.
            most = credit * config.partitions if self._group else credit
            command = Subscribe(node, _WORKER, _WORKER, most, scope=scope, group=self._group)
            await self._ask(f"subscribe to {node}", command)
            self._subscriptions[node] = command
        self.ready.set()
        await self._closed.wait()

    async def join_again(self) -> None:
        """Own again what a member of a group has lost while the clock was set ahead, which ends its leases."""
        for node, command in self._subscriptions.items() if self._group else ():
            await self._ask(f"subscribe to {node}", command)

    async def acknowledge(self, lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> bool:
        """Acknowledge an item, with a result for its publisher, and publish others; False if the lock had already ended."""
        about = lock.node, _WORKER, lock.item, lock.token, "", lock.partition
        told = b"", 0
        if result is not None:
            told = codec.pack(payloads.make_envelope(result.body, result.type, {})), len(result.body)
        command = Retract(*about) if result is None else Complete(*about, *told)
        if then:
            command = CompleteAndPublish(*about, *told, tuple(_command(each, _WORKER) for each in then))
        done = await self._submit_about_lock(lock, "acknowledge", command) is not None
        self.sent += [Sent.read(each, self._codec) for each in then if done]
        return done

    async def release(self, lock: Lock, how: Release) -> bool:
        """Return an item; False if the lock had already ended."""
        command = Unlock(
            *(lock.node, _WORKER, lock.item, lock.token),
            delay_ms=None if how.dead else round(how.delay) * 1_000,
            reason=sayable(how.reason),
            dead_letter=how.dead,
            partition=lock.partition,
            untried=how.untried,
        )
        return await self._submit_about_lock(lock, "give back", command) is not None

    async def renew(self, lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> datetime | None:
        """Restart the lock time, and tell how far the job is, or that it has `begun`.

        Returns the new deadline, or None if the lock had already ended.
        """
        told = None if progress is None else model.Progress(progress.share, line(progress.note))
        command = Renew(lock.node, _WORKER, lock.item, lock.token, lock.partition, progress=told, begun=begun)
        renewed = await self._submit_about_lock(lock, "renew the lock of", command)
        return _moment(renewed.deadline_ms) if isinstance(renewed, Renewed) else None

    async def lock_seconds(self, node: str) -> float:
        """Return the lock time of a node."""
        return float((await self._config(node)).lock_seconds)

    async def publish(self, outgoing: Outgoing) -> None:
        """Publish an item. Raises StanzaqError if the core refuses it."""
        await self.send(outgoing, _WORKER)
        self._changed()

    async def send(self, outgoing: Outgoing, by: Jid = OWNER) -> None:
        """Publish an item for somebody. Raises StanzaqError."""
        what = f"publish to {outgoing.node}"
        await self._ask(what, _command(outgoing, by))
        self.sent.append(Sent.read(outgoing, self._codec))

    async def _config(self, node: str) -> NodeConfig:
        found = await self._ask(f"find {node}", Describe(node, _WORKER, as_owner=False))
        assert isinstance(found, Described)
        return found.record.config

    async def pause(self) -> None:
        """Unsubscribe; existing locks stay."""
        while self._subscriptions:
            node, _ = self._subscriptions.popitem()
            await self._ask(f"unsubscribe from {node}", Unsubscribe(node, _WORKER, _WORKER, ""))

    async def close(self) -> None:
        """End `run`."""
        self._closed.set()

    def sender(self) -> Sender:
        """Return what publishes to the same core."""
        return CoreSender(self)

    async def _submit_about_lock(self, lock: Lock, what: str, command: Command) -> Result | None:
        """Submit a command about a lock; returns its result, or None if the lock had already ended. Raises StanzaqError."""
        try:
            return await self._ask(f"{what} {lock.item}", command)
        except StanzaqError as error:
            if error.condition in _ENDED:
                return None
            raise
        finally:
            self._changed()

    async def _ask(self, what: str, command: Command) -> Result:
        return await ask(self.core, what, command)

    # Used by the core.

    def deliver(self, batch: Sequence[items.Delivery]) -> None:
        """Hand items to the worker."""
        for delivery in batch:
            self._deliver(delivery)

    def _deliver(self, delivery: items.Delivery) -> None:
        assert self._receiver is not None
        envelope = codec.unpack(delivery.envelope)
        node, number = delivery.partition.node, delivery.partition.number if delivery.partitioned else None
        self._receiver.deliver(
            Delivery(
                Lock(node, delivery.item_id, delivery.token, number),
                delivery.attempt,
                delivery.of,
                _moment(delivery.deadline_ms),
                content(envelope),
                payloads.shown_headers(envelope),
                delivery.key,
                _moment(int(delivery.position.partition("-")[0])),
                delivery.collection,
                delivery.reply,
            )
        )

    def notify(self, notice: items.Notice) -> None:
        """Report a lock that has ended; other notices are not for this worker."""
        if isinstance(notice, items.ItemEnded):
            self._end(notice)
        if isinstance(notice, items.LockEnded) and self._receiver is not None:
            self._receiver.lost(Lock(notice.node, notice.item_id, notice.token))
        self._changed()

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        """Begin to expect the end of an item; returns what waits for it."""
        ended = self._expected.get((node, item))
        if ended is None or ended.done():
            # An end that is known is that of an earlier item of this id.
            ended = self._expected[node, item] = asyncio.get_running_loop().create_future()
        return lambda: asyncio.shield(ended)

    def _end(self, notice: items.ItemEnded) -> None:
        outcome = notice.outcome
        ended = self._expected.get((notice.node, outcome.item_id))
        if ended is not None and not ended.done():
            ended.set_result(_outcome(outcome))

    def congested(self) -> bool:
        """Return whether items wait to be handed over: never."""
        return False

    def flushed(self) -> bool:
        """Return whether all items are handed over: always."""
        return True


class CoreSender:
    """The transport of publishers on a core: a worker's tasks send over it."""

    def __init__(self, transport: CoreTransport) -> None:
        """Use a worker's core, which tells it of ends."""
        self._transport = transport

    async def run(self) -> None:
        """Wait for ever: a core is always there."""
        await asyncio.Event().wait()

    async def publish(self, outgoing: Outgoing) -> None:
        """Publish an item. Raises StanzaqError."""
        await self._transport.send(outgoing)

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:  # noqa: ARG002  (there is one step)
        """Publish an item. Raises StanzaqError."""
        await self.publish(outgoing)

    async def cancel(self, node: str, item: str) -> bool:
        """Cancel an item; False if there is none. Raises StanzaqError."""
        return await self._remove(f"cancel {item}", Cancel(node, OWNER, item))

    async def _remove(self, what: str, command: Command) -> bool:
        try:
            await ask(self._transport.core, what, command)
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return False
        return True

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        """Begin to expect the end of an item; returns what waits for it."""
        return self._transport.reply(node, item)

    async def outcome(self, node: str, item: str) -> Outcome:
        """Read how an item has ended. Raises StanzaqError."""
        what = f"read the end of {item}"
        found = await ask(self._transport.core, what, ReadOutcome(node, OWNER, item))
        assert isinstance(found, Ended)
        if found.outcome is None:
            raise _fault(what, "item-not-found", "")
        return _outcome(found.outcome)

    async def options(self, node: str) -> dict[str, str] | None:
        """Return the options of a node; None if there is no such node. Raises StanzaqError."""
        try:
            found = await ask(self._transport.core, f"read {node}", Describe(node, OWNER, as_owner=True))
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return None
        assert isinstance(found, Described)
        return form_values(node, found.record.config)

    async def create(self, node: str, options: Mapping[str, str]) -> None:
        """Create a node. Raises StanzaqError."""
        fields = {name: (value,) for name, value in options.items()}
        await ask(self._transport.core, f"create {node}", Declare(node, OWNER, fields))

    async def configure(self, node: str, options: Mapping[str, str]) -> None:
        """Change options of a node. Raises StanzaqError."""
        fields = {name: (value,) for name, value in options.items()}
        await ask(self._transport.core, f"change {node}", Configure(node, OWNER, fields))

    async def schedule(self, request: Scheduling) -> Schedule:
        """Make or replace a schedule. Raises StanzaqError."""
        what = f"schedule {request.id}"
        item = _command(Outgoing("", request.node, "", request.content, request.headers, request.hints), OWNER)
        try:
            when = schedules.Schedule.read({**request.when, "id": request.id})
        except MalformedRequest as fault:
            raise _fault(what, wire(fault).condition, fault.detail) from None
        about = when, item.envelope, item.body_bytes, item.key, item.hints
        return _schedule(await ask(self._transport.core, what, PutSchedule(request.node, OWNER, *about)))

    async def schedules(self, node: str) -> list[Schedule]:
        """List the schedules of a node. Raises StanzaqError."""
        what, command = f"list the schedules of {node}", ListSchedules(node, OWNER, schedules.MOST_OF_NODE)
        found = await ask(self._transport.core, what, command)
        assert isinstance(found, ScheduleList)
        return [_read_schedule(each) for each in found.schedules]

    async def switch_schedule(self, node: str, name: str, *, paused: bool) -> Schedule:
        """Pause or resume a schedule. Raises StanzaqError."""
        what = f"{'pause' if paused else 'resume'} {name}"
        return _schedule(await ask(self._transport.core, what, PauseSchedule(node, OWNER, name, paused)))

    async def unschedule(self, node: str, name: str) -> bool:
        """Delete a schedule; False if there is none. Raises StanzaqError."""
        return await self._remove(f"delete {name}", RemoveSchedule(node, OWNER, name))

    async def affiliations(self, node: str) -> dict[str, str]:
        """Return the affiliations with a node. Raises StanzaqError."""
        what = f"list the affiliations with {node}"
        found = await ask(self._transport.core, what, Describe(node, OWNER, as_owner=True))
        assert isinstance(found, Described)
        return {jid: each.value for jid, each in found.record.affiliations.items()}

    async def affiliate(self, node: str, changes: Mapping[str, str]) -> None:
        """Change affiliations, all of them or none. Raises StanzaqError."""
        what = f"change any affiliation with {node}"
        if unknown := set(changes.values()) - set(values(Affiliation)):
            # The doors check it.
            raise _fault(what, "bad-request", f"{unknown.pop()!r} is none of {', '.join(values(Affiliation))}")
        try:
            told = {read_affiliate(name): each for name, each in changes.items()}
        except ValueError as wrong:
            raise _fault(what, "bad-request", str(wrong)) from None
        await ask(self._transport.core, what, Affiliate(node, OWNER, told))

    async def requests(self, node: str) -> list[str]:
        """Return who waits for an approval. Raises StanzaqError."""
        found = await ask(self._transport.core, f"list the requests at {node}", ListRequests(node, OWNER))
        assert isinstance(found, SubscriptionList)
        return [each.jid for each in found.subscriptions]

    async def decide(self, node: str, jid: str, *, allow: bool) -> None:
        """Approve or refuse the requests of an account. Raises StanzaqError."""
        await ask(
            self._transport.core, f"decide the request of {jid}", Approve(node, OWNER, prepare_jid(jid), "", allow)
        )

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def _schedule(found: Result) -> Schedule:
    assert isinstance(found, Scheduled)
    return _read_schedule(found.status)


def _read_schedule(status: schedules.ScheduleStatus) -> Schedule:
    return Schedule.read({**status.schedule.write(), **status.write_state()})


def _outcome(outcome: ItemOutcome) -> Outcome:
    result = content(codec.unpack(outcome.envelope)) if outcome.envelope else None
    return Outcome(outcome.state.value, outcome.reason, result)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)

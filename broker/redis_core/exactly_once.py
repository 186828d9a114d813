"""Messages in two steps, prepared ones (urn:xmpp:qos) and reserved ones (RX1): published once however often a step is repeated.

The two steps may reach two frontends, and each may die at any point. `hold` stores a publish. `deliver` claims its delivery,
publishes it with a ticket that counts once, and ends the delivery. `reserve` stores a place without a message; `redeem` brings
the message and claims its delivery. `finish` completes deliveries that were claimed and not ended. Must not know what a message
looks like on any wire, nor how a partition works.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import structlog

from broker import codec, keys
from broker.model.commands import Deliver, PrepareMessage, Publish, Redeem, Reserve
from broker.model.frozen import frozen
from broker.model.items.hints import Hints
from broker.model.names import Jid, bare_jid, domain, resource
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Done, Published, Refused, Reserved, Result
from broker.redis_core.redis_client.client import Answer, Server, Value
from broker.redis_core.registry.authorization import accepting
from broker.settings import Settings

log = structlog.get_logger()

LATE_MS = 5_000
"""A claim that is older and not ended belongs to a dead frontend; the ticket makes a second publish harmless anyway."""

FINISH_BATCH = 50

_QUOTA_EXCEEDED = Refused(Problem.TOO_MUCH_HELD, "too many messages are stored for you, or in all: deliver some first")
_UNTRUSTED = Refused(Problem.NOT_TRUSTED, "this service accepts assured messages only from senders that it trusts")
_AS_ITS_NODE = Refused(Problem.NOT_ACCEPTABLE, "this publish is confirmed as its node says: leave out confirm")
_GONE = Refused(Problem.NODE_GONE, "there is no such node (any more)")
_REDEEM_REFUSALS = {
    b"item-not-found": Refused(Problem.ITEM_NOT_FOUND, "nothing is reserved for you under this id"),
    b"reservation-expired": Refused(Problem.RESERVATION_EXPIRED, "the reservation has expired: make another"),
    b"reservation-used": Refused(Problem.RESERVATION_USED, "another body was sent to this reservation before"),
    b"too-much-held": _QUOTA_EXCEEDED,
}
_MISSING = (Problem.PARTITION_NOT_FOUND, Problem.ITEM_NOT_FOUND)
"""What a message may name that is not there: its partition, and an item that it waits for."""

_UNKNOWN = Refused(Problem.ITEM_NOT_FOUND, "no message is stored under this msgId: send it again as assured")


@frozen
class StoredMessage:
    """A stored publish: `nonce digest body-bytes partition node-length item-length key-length node item key envelope`.

    The partition is `-` when none is named. Scheduling options follow it, each after a slash.
    """

    nonce: str
    digest: str
    publish: Publish

    def pack(self) -> bytes:
        """Return the record as bytes."""
        publish = self.publish
        names = [text.encode() for text in (publish.node, publish.item_id or "", publish.key)]
        partition = "-" if publish.partition is None else str(publish.partition)
        partition = "/".join([partition, *str(publish.hints).split()])
        head = (
            f"{self.nonce} {self.digest} {publish.body_bytes} {partition} {' '.join(str(len(name)) for name in names)} "
        )
        return b"".join((head.encode(), *names, publish.envelope))

    @staticmethod
    def unpack(sender: Jid, record: bytes) -> "StoredMessage":
        """Read the record; the publish carries its ticket."""
        nonce, digest, body_bytes, told, node_length, item_length, key_length, rest = record.split(b" ", 7)
        partition, _, hints = told.decode().partition("/")
        item_at = int(node_length)
        key_at = item_at + int(item_length)
        body_at = key_at + int(key_length)
        publish = Publish(
            rest[:item_at].decode(),
            sender,
            rest[item_at:key_at].decode(),
            rest[body_at:],
            int(body_bytes),
            # No item id of a publisher has a zero byte, so the ticket is unique in the set that holds both.
            ticket=f"\0{nonce.decode()}",
            partition=None if partition == "-" else int(partition),
            key=rest[key_at:body_at].decode(),
            hints=Hints.parse(hints.replace("/", " ")),
        )
        return StoredMessage(nonce.decode(), digest.decode(), publish)


def new_message(command: PrepareMessage) -> StoredMessage:
    """Make the record of a new message; its nonce makes item id and ticket unique."""
    publish = command.publish
    item = publish.item_id
    place = "\0".join([publish.node, str(publish.partition), publish.key, *str(publish.hints).split()])
    told = (place, command.stem if item is None else f"id {item}", codec.headless(publish.envelope))
    digest = hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in told))
    nonce = secrets.token_hex(12)
    named = replace(publish, item_id=f"{command.stem}~{nonce}" if item is None else item)
    return StoredMessage(nonce, digest.hexdigest()[:32], named)


def message_key(sender: Jid, msg_id: str) -> str:
    """Return the key of a message: by full JID (S14), ordered so that messages of one bare JID are adjacent (SX11)."""
    return f"{bare_jid(sender)}\0{resource(sender)}\0{msg_id}"


def reservation_key(sender: Jid, node: str, item_id: str) -> str:
    """Return the key of a reservation: no msgId has a zero byte, so no prepared message has the same key."""
    return message_key(sender, f"{node}\0{item_id}")


def sender_of(named: str) -> Jid:
    """Return the full JID in a key."""
    whose, at, _msg_id = named.split("\0", 2)
    return Jid(f"{whose}/{at}" if at else whose)


class ExactlyOnce:
    """Carries out the two steps; keeps all state in Redis."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        publish: Callable[[Publish], Awaitable[Any]],
        admits: Callable[[Publish], Awaitable[NodeRecord | Refused]],
    ) -> None:
        """Publish by `publish`; `admits` returns the node that somebody may publish to."""
        self._server = server
        self._publish = publish
        self._admits = admits
        self._hold_ms = int(settings.reservation_seconds * 1000)
        self._shared: dict[str, Value] = {
            "now": "",
            "window_ms": int(settings.qos_window_seconds * 1000),
            "remembered": settings.qos_remembered,
            "source_messages": settings.qos_source_messages,
            "source_bytes": settings.qos_source_bytes,
            "total_messages": settings.qos_total_messages,
            "total_bytes": settings.qos_total_bytes,
        }
        # By default the users of the component's own server are trusted.
        self._trusted = frozenset((*(settings.qos_trusted or settings.local_domains), *settings.admins))

    async def prepare(self, command: PrepareMessage) -> Result:
        """Store a message; after the answer it outlives every frontend."""
        whose = bare_jid(command.sender)
        if self._trusted.isdisjoint((whose, domain(whose))):
            return _UNTRUSTED
        if command.publish.hints.confirm:
            return _AS_ITS_NODE
        record = new_message(command).pack()
        named = message_key(command.sender, command.msg_id)
        answer = await self._run("prepare_message", name=named, record=record)
        return Done() if answer.code == b"ok" else _QUOTA_EXCEEDED

    async def deliver(self, command: Deliver) -> Result:
        """Publish a stored message; a repeat of a finished delivery succeeds too."""
        named = message_key(command.sender, command.msg_id)
        answer = await self._run("begin_delivery", name=named)
        if answer.code == b"ok":
            result = await self._publish_claimed(named, answer.record)
            if isinstance(result, Refused) and result.problem in _MISSING:
                # Answered with another error than an unknown message, which the sender would send again for ever.
                return Refused(Problem.NOT_ACCEPTABLE, result.detail)
            return result
        return Done() if answer.code == b"replayed" else _UNKNOWN

    async def reserve(self, command: Reserve) -> Result:
        """Reserve an item id for a sender that may publish to the node."""
        publish = Publish(command.node, command.sender, None, b"", 0, subscribed=True)
        node = await self._admits(publish)
        refused = node if isinstance(node, Refused) else accepting(publish, node)
        if refused is not None:
            return refused
        whose = reservation_key(command.sender, command.node, "")
        answer = await self._run("reserve", name=whose, nonce=secrets.token_hex(12), hold_ms=self._hold_ms)
        return Reserved(answer.item.decode(), answer.until_ms) if answer.code == b"ok" else _QUOTA_EXCEEDED

    async def redeem(self, command: Redeem) -> Result:
        """Publish to a reservation; a body that the node refuses leaves the reservation unused."""
        item_id = command.item_id
        if command.hints.confirm:
            return _AS_ITS_NODE
        publish = Publish(
            command.node,
            command.sender,
            item_id,
            command.envelope,
            command.body_bytes,
            key=command.key,
            hints=command.hints,
        )
        # Whether the sender is subscribed is asked when it is published.
        node = await self._admits(replace(publish, subscribed=True))
        if isinstance(node, Refused):
            return node
        refused = accepting(publish, node)
        named = reservation_key(publish.sender, publish.node, item_id)
        record = new_message(PrepareMessage(publish.sender, item_id, publish, "")).pack()
        only = "1" if refused else ""
        answer = await self._run("fulfil_reservation", name=named, record=record, if_replayed=only)
        if answer.code == b"replayed":
            return Published(item_id, duplicate=True)
        if refused is not None:
            return refused
        if answer.code != b"ok":
            return _REDEEM_REFUSALS[answer.code]
        concluded = await self._publish_claimed(named, answer.record)
        return Published(item_id) if isinstance(concluded, Done) else concluded

    async def finish(self) -> None:
        """Complete deliveries that were claimed and not ended, and drop messages that were stored for too long."""
        for each in (await self._run("claim_overdue", late_ms=LATE_MS, most=FINISH_BATCH)).messages:
            named = each.name.decode()
            try:
                result = await self._publish_claimed(named, each.record)
            except CoreUnavailable:
                raise
            except Exception:
                # Of another version, perhaps: the messages behind it go on.
                log.exception("assured message not completed", subscriber=sender_of(named))
                continue
            problem = result.problem.value if isinstance(result, Refused) else ""
            log.info("assured message completed", subscriber=sender_of(named), problem=problem)

    async def _publish_claimed(self, named: str, record: bytes) -> Result:
        stored = StoredMessage.unpack(sender_of(named), record)
        result = await self._publish(stored.publish)
        if isinstance(result, Refused) and result.problem.retryable:
            # It stays stored: its sender or `finish` tries again.
            return result
        delivered = isinstance(result, Published)
        await self._run("end_delivery", name=named, nonce=stored.nonce, delivered="1" if delivered else "")
        if isinstance(result, Refused):
            return _GONE if result.problem is Problem.NODE_NOT_FOUND else result
        return Done()

    async def _run(self, operation: str, **own: Value) -> Answer:
        header, known = self._server.operations[operation], self._shared | own
        names = [keys.of_qos(key) for key in header.keys]
        fixed = {each: known[each] for each in header.arguments}
        return await self._server.run(self._server.write_call(operation, names, fixed))

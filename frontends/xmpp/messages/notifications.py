"""Messages to subscribers: deliveries and notices; also parses bounces of deliveries. Must not know requests or replies.

A message has no `type`: a `headline` to an offline peer would vanish, while this kind bounces and frees its item (Q18). A
delivery with confirmation is the same content in an IQ, which `confirmations` writes.
"""

from collections.abc import Mapping
from itertools import count
from typing import Final, assert_never
from xml.etree.ElementTree import Element

from broker.model.commands import Bounce, Retract, Unlock
from broker.model.items import (
    ApprovalAsked,
    Delivery,
    Lock,
    LockEnded,
    NodeConfigured,
    NodeEvent,
    Notice,
    OwnershipGained,
    OwnershipLost,
    SubscriptionChanged,
    TreeEvent,
)
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.qos import Stage
from broker.model.results import Retracted, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp import stanzas
from frontends.xmpp.messages import confirmations, delivery_ids
from frontends.xmpp.pubsub import approvals, log_options, node_config, partition_options, payloads, subscription_lists
from frontends.xmpp.xml.text import escaped, escaped_name, moment

# A stored or copied delivery would give the work to two workers (X2; XEP-0334 §4.2, §4.3).
_ALONE: Final = f"<no-store xmlns='{ns.HINTS}'/><no-copy xmlns='{ns.HINTS}'/></message>"

_ALONE_BYTES: Final = _ALONE.encode()

STREAMED: Final = frozenset({Stage.STREAM, Stage.GAP})
_PLAIN: Final = STREAMED | {Stage.UNACKNOWLEDGED}

_GONE: Final = f"{{{ns.STANZAS}}}gone"


def lock(node: str, held: Lock | Delivery) -> str:
    """Write what a holder may know of its lock (QX14), and the item's partition if there are several (E13)."""
    if isinstance(held, Delivery):
        number, key = held.partition.number if held.partitioned else None, held.key
    else:
        number, key = held.partition, ""
    place = "" if number is None else f" partition='{number}'"
    group = f" key='{escaped(key)}'" if key else ""
    return (
        f"<lock xmlns='{ns.STANZAQ}' node='{escaped_name(node)}' item='{escaped(held.item_id)}' token='{held.token}'"
        f" attempt='{held.attempt}' of='{held.of}' expires='{moment(held.deadline_ms)}'{place}{group}/>"
    )


class Events:
    """The messages of one frontend; `run` is a prefix of its own that makes the ids of its notices unique (P28)."""

    def __init__(self, service: str, run: str, *, legacy_unlock_ns: bool) -> None:
        """Keep the service's JID, which all frontends share (QX6), and the switch for peers that need the typo (QX4)."""
        self._service = service
        self._from = f"<message from='{escaped(service)}'"
        self._run = run
        self._numbers = count(1)
        self._configured: tuple[NodeRecord | None, str] = None, ""
        self._unlock_ns = ns.QUEUEING_TYPO if legacy_unlock_ns else ns.QUEUEING

    def delivery(self, delivery: Delivery) -> bytes:
        """Write an item with its lock (Q16), or a log entry with its position, and its headers.

        Raises CorruptRecord when the envelope cannot be read. The second delivery of an assured item is the notice to start.
        """
        if delivery.stage is Stage.DELIVER:
            return confirmations.deliver(self._service, delivery)
        plain = delivery.stage in _PLAIN
        opening = self._opening(delivery) if plain else confirmations.opening(self._service, delivery)
        closing = _ALONE_BYTES if plain else confirmations.CLOSING[delivery.stage]
        body, headers = payloads.told(delivery.envelope, _through(delivery.collection, delivery.subid))
        partition = delivery.partition
        head = (
            f"{opening}<event xmlns='{ns.PUBSUB_EVENT}'><items node='{escaped_name(partition.node)}'>"
            f"<item id='{escaped(delivery.item_id)}'>"
        )
        where = lock(partition.node, delivery) if delivery.stage not in STREAMED else log_options.position(delivery)
        tail = f"</item></items></event>{where}".encode()
        return b"%b%b%b%b%b" % (head.encode(), body, tail, headers, closing)

    def _opening(self, delivery: Delivery) -> str:
        return f"{self._from} to='{escaped_name(delivery.subscriber)}' id='{delivery_ids.written(delivery)}'>"

    def retracted(self, command: Retract, outcome: Retracted) -> bytes:
        """Write the notification to the holder, the only subscriber to be notified (Q20); empty if nobody held the item."""
        if outcome.holder is None:
            return b""
        inside = f"<retract id='{escaped(command.item_id)}'/>"
        return self._items(outcome.holder, command.node, inside, _through(outcome.collection, outcome.subid))

    def unlocked(self, command: Unlock, outcome: Unlocked) -> bytes:
        """Write the notification to the holder whose lock was ended (Q29)."""
        inside = self._unlock(command.item_id, command.token)
        return self._items(outcome.holder, command.node, inside, _through(outcome.collection, outcome.subid))

    def notice(self, notice: Notice) -> bytes:  # noqa: PLR0911  (a table of cases)
        """Write a notice that a subscriber did not request (Q35, P24, P25)."""
        match notice:
            case LockEnded(node, subscriber, item_id, token, collection, subid):
                return self._items(subscriber, node, self._unlock(item_id, token), _through(collection, subid))
            case OwnershipGained() | OwnershipLost():
                return self._message(notice.subscriber, partition_options.told(notice))
            case TreeEvent(through, subscriber, collection, child, came, subid):
                what = "associate" if came else "dissociate"
                inside = f"<collection node='{escaped(collection)}'><{what} node='{escaped(child)}'/></collection>"
                return self._message(subscriber, inside, _through(through, subid))
            case SubscriptionChanged(changed):
                # Stored if the subscriber is offline: it may have waited for days.
                told = f"<subscription node='{escaped(changed.node)}' {subscription_lists.subscription(changed)}/>"
                return self._kept(changed.jid, f"<event xmlns='{ns.PUBSUB_EVENT}'>{told}</event>")
            case ApprovalAsked(owner, waiting):
                return self._kept(owner, approvals.asked(waiting))
            case NodeEvent(node, subscriber, what, redirect):
                inside = f"<redirect uri='{escaped(redirect)}'/>" if redirect else ""
                return self._message(subscriber, f"<{what} node='{escaped(node)}'>{inside}</{what}>")
            case NodeConfigured(subscriber, record):
                return self._message(subscriber, self._configuration(record))
            case _:
                assert_never(notice)

    def _configuration(self, record: NodeRecord) -> str:
        # Cached, since thousands of subscribers get the same text in a row.
        if self._configured[0] is not record:
            self._configured = record, node_config.changed(record)
        return self._configured[1]

    def _unlock(self, item_id: str, token: int | None) -> str:
        # The token tells a worker the end of an old lock from that of a newer one (X10).
        mark = "" if token is None else f" xmlns:q='{ns.STANZAQ}' q:token='{token}'"
        return f"<unlock xmlns='{self._unlock_ns}' id='{escaped(item_id)}'{mark}/>"

    def _items(self, to: Jid, node: str, inside: str, through: Mapping[str, str]) -> bytes:
        return self._message(to, f"<items node='{escaped_name(node)}'>{inside}</items>", through)

    def _message(self, to: Jid, inside: str, through: Mapping[str, str] | None = None) -> bytes:
        beside = payloads.written(through).decode() if through else ""
        return f"{self._begun(to)}<event xmlns='{ns.PUBSUB_EVENT}'>{inside}</event>{beside}{_ALONE}".encode()

    def _kept(self, to: Jid, inside: str) -> bytes:
        return f"{self._begun(to)}{inside}</message>".encode()

    def _begun(self, to: Jid) -> str:
        return f"{self._from} to='{escaped_name(to)}' id='{self._run}-{next(self._numbers)}'>"


def _through(collection: str, subid: str) -> dict[str, str]:
    """Return headers that name the subscription of a notification: its collection (H6), or which of several (P12)."""
    said = {"Collection": collection} if collection else {}
    return said | {"SubID": subid} if subid else said


def bounced(message: Element) -> Bounce | None:
    """Parse the bounce of a delivery; None for any other message."""
    sender = message.get("from")
    if message.get("type") != "error" or not sender:
        return None
    named = delivery_ids.read(message.get("id", ""))
    if named is None or named.stage not in _PLAIN:
        return None
    error = stanzas.error(message)
    gone = error is not None and (error.get("type") == "cancel" or error.find(_GONE) is not None)
    return Bounce(Jid(sender), named.partition, named.position, named.token, gone, named.stage)

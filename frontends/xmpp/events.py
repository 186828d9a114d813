"""Messages to subscribers: deliveries and notices, and the bounces of deliveries. Must not know requests or replies.

A message has no `type`: a `headline` to a peer that is offline vanishes, this kind comes back and frees its item (Q18).
"""

import re
from itertools import count
from typing import Final, assert_never
from xml.etree.ElementTree import Element

from broker.model.commands import Bounce, Retract, Unlock
from broker.model.items import Delivery, Lock, LockEnded, NodeEvent, Notice
from broker.model.names import Jid, Partition
from broker.model.results import Retracted, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp import payloads
from frontends.xmpp.markup import escaped, moment

# A stored or copied delivery would be work for two (X2; XEP-0334 §4.2, §4.3).
_ALONE: Final = f"<no-store xmlns='{ns.HINTS}'/><no-copy xmlns='{ns.HINTS}'/></message>"

_ALONE_BYTES: Final = _ALONE.encode()

# What a bounce must bring back. The partition stands last: a node's name may hold any character.
_DELIVERY_ID: Final = re.compile(r"sq:([0-9]{1,19}):([0-9]{1,20}-[0-9]{1,20}):(.{1,2100})", re.ASCII | re.DOTALL)
_ERROR_NAMES: Final = (f"{{{ns.COMPONENT}}}error", f"{{{ns.CLIENT}}}error")
_GONE: Final = f"{{{ns.STANZAS}}}gone"


def lock(node: str, held: Lock | Delivery) -> str:
    """Write what a holder may know of its lock (QX14)."""
    return (
        f"<lock xmlns='{ns.STANZAQ}' node='{escaped(node)}' item='{escaped(held.item_id)}' token='{held.token}'"
        f" attempt='{held.attempt}' of='{held.of}' expires='{moment(held.deadline_ms)}'/>"
    )


class Events:
    """The messages of one frontend; `run` is a text of its own that makes the ids of its notices unique (P28)."""

    def __init__(self, service: str, run: str, *, legacy_unlock_ns: bool) -> None:
        """Keep the service's JID, which all frontends share (QX6), and the switch for peers that need the typo (QX4)."""
        self._from = f"<message from='{escaped(service)}'"
        self._run = run
        self._numbers = count(1)
        self._unlock_ns = ns.QUEUEING_TYPO if legacy_unlock_ns else ns.QUEUEING

    def delivery(self, delivery: Delivery) -> bytes:
        """Write an item with its lock (Q16) and its headers; raises CorruptRecord when its envelope cannot be read."""
        body, headers = payloads.told(delivery.envelope)
        partition = delivery.partition
        head = (
            f"{self._from} to='{escaped(delivery.subscriber)}'"
            f" id='sq:{delivery.token}:{delivery.position}:{escaped(str(partition))}'>"
            f"<event xmlns='{ns.PUBSUB_EVENT}'><items node='{escaped(partition.node)}'>"
            f"<item id='{escaped(delivery.item_id)}'>"
        )
        tail = f"</item></items></event>{lock(partition.node, delivery)}".encode()
        return b"%b%b%b%b%b" % (head.encode(), body, tail, headers, _ALONE_BYTES)

    def retracted(self, command: Retract, outcome: Retracted) -> bytes:
        """Write the notification to the holder, the one subscriber who is told (Q20); nothing when nobody held the item."""
        if outcome.holder is None:
            return b""
        return self._items(outcome.holder, command.node, f"<retract id='{escaped(command.item_id)}'/>")

    def unlocked(self, command: Unlock, outcome: Unlocked) -> bytes:
        """Write the notification to the holder whose lock was ended (Q29)."""
        return self._items(outcome.holder, command.node, self._unlock(command.item_id, command.token))

    def notice(self, notice: Notice) -> bytes:
        """Write what a subscriber is told without its asking (Q35, P24, P25)."""
        match notice:
            case LockEnded(node, subscriber, item_id, token):
                return self._items(subscriber, node, self._unlock(item_id, token))
            case NodeEvent(node, subscriber, what):
                return self._message(subscriber, f"<{what} node='{escaped(node)}'/>")
            case _:
                assert_never(notice)

    def _unlock(self, item_id: str, token: int | None) -> str:
        # With the token a worker can tell an old lock's end from a new one's (X10).
        mark = "" if token is None else f" xmlns:q='{ns.STANZAQ}' q:token='{token}'"
        return f"<unlock xmlns='{self._unlock_ns}' id='{escaped(item_id)}'{mark}/>"

    def _items(self, to: Jid, node: str, inside: str) -> bytes:
        return self._message(to, f"<items node='{escaped(node)}'>{inside}</items>")

    def _message(self, to: Jid, inside: str) -> bytes:
        return (
            f"{self._from} to='{escaped(to)}' id='{self._run}-{next(self._numbers)}'>"
            f"<event xmlns='{ns.PUBSUB_EVENT}'>{inside}</event>{_ALONE}"
        ).encode()


def bounced(message: Element) -> Bounce | None:
    """Read the bounce of a delivery; None for every other message.

    What a forger can write here is judged by the core: the token must be that of a lock which the sender holds.
    """
    sender = message.get("from")
    if message.get("type") != "error" or not sender:
        return None
    found = _DELIVERY_ID.fullmatch(message.get("id", ""))
    if found is None:
        return None
    try:
        partition = Partition.parse(found[3])
    except ValueError:
        return None
    error = next((child for child in message if child.tag in _ERROR_NAMES), None)
    gone = error is not None and (error.get("type") == "cancel" or error.find(_GONE) is not None)
    return Bounce(Jid(sender), partition, found[2], int(found[1]), gone)

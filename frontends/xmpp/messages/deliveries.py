"""Deliveries: the stanza of an item or several, and what its receiver answers. Must not know requests, replies or notices.

A delivery is a message, or an IQ where its receiver confirms (urn:xmpp:qos): an acknowledged item is one IQ, an assured item is
two, and its receiver may start after the second. A message has no `type`: a `headline` to an offline peer would vanish, while
this kind bounces and frees its item (Q18). An answer may reach any frontend (SX13), so the id of the stanza, the only part that
the receiver must repeat, contains everything that is needed: the locks of all its items.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Bounce, Confirm
from broker.model.frozen import frozen
from broker.model.items.items import Delivery, Lock
from broker.model.items.qos import MAX_BATCH, Stage
from broker.model.names import Jid, Partition
from broker.model.problems import CorruptRecord
from frontends.xmpp import namespaces as ns
from frontends.xmpp import stanzas
from frontends.xmpp.pubsub import log_options, payloads
from frontends.xmpp.xml.text import escape, escaped_name, moment

# A stored or copied delivery would give the work to two workers (X2; XEP-0334 §4.2, §4.3).
ALONE: Final = f"<no-store xmlns='{ns.HINTS}'/><no-copy xmlns='{ns.HINTS}'/></message>"

_ALONE_BYTES: Final = ALONE.encode()

_STREAMED: Final = frozenset({Stage.STREAM, Stage.GAP})
_PLAIN: Final = _STREAMED | {Stage.UNACKNOWLEDGED}

_GONE: Final = f"{{{ns.STANZAS}}}gone"

_CLOSING: Final = {
    Stage.ACKNOWLEDGED: b"</message></acknowledged></iq>",
    Stage.ASSURED: b"</message></assured></iq>",
}
"""The end of an IQ that `_opening` begins."""

_ANOTHER: Final = b"</item><item id='%b'>%b"
_MESSAGE: Final = f"<message xmlns='{ns.CLIENT}'>"
_ITEM_NOT_FOUND: Final = f"{{{ns.STANZAS}}}item-not-found"
_MSG_IDS: Final = ("msgId", f"{{{ns.QOS}}}msgId")

_LETTERS: Final = {
    Stage.UNACKNOWLEDGED: "",
    Stage.ACKNOWLEDGED: "a:",
    Stage.ASSURED: "s:",
    Stage.DELIVER: "d:",
    Stage.STREAM: "r:",
    Stage.GAP: "g:",
}
_STAGES: Final = {letter: stage for stage, letter in _LETTERS.items()}

_NUMBER: Final = "[0-9]{1,20}"
# The partition is last: a node's name may contain any character.
_ID: Final = re.compile(
    rf"sq:([asdrg]:|)([0-9]{{1,19}}):({_NUMBER}-{_NUMBER})"
    rf"((?:,-?{_NUMBER}(?:\.-?{_NUMBER}){{1,2}}){{0,{MAX_BATCH - 1}}}):(.{{1,2100}})",
    re.ASCII | re.DOTALL,
)

DIFFERENCES_BYTES: Final = 2_900
"""The most bytes of an id that name further locks: with the longest name of a node it has fewer than 4,000 bytes."""

_SURELY_WITHIN: Final = DIFFERENCES_BYTES // 66
"""So many locks fit whatever their numbers are."""

_Lock = tuple[str, int]
"""The position and the token of a lock."""


@frozen
class Named:
    """The lock of a delivery, its stage, and the position and token of each `others` item in it."""

    partition: Partition
    position: str
    token: int
    stage: Stage
    others: tuple[_Lock, ...] = ()


def write_delivery(service: str, delivery: Delivery) -> bytes:
    """Write one delivery; raises CorruptRecord. The second one of an assured item is the notice to start."""
    if delivery.stage is Stage.DELIVER:
        return _write_start(service, (delivery,))
    payload, headers = payloads.payload_and_headers(
        delivery.envelope, subscription_headers(delivery.collection, delivery.subid)
    )
    return _write_items(service, (delivery,), payload, headers)


def write_batch(
    service: str, batch: Sequence[Delivery], unreadable: Callable[[Delivery, CorruptRecord], None]
) -> bytes:
    """Write deliveries to one subscriber in one stanza, without those that cannot be read.

    In several where items differ in their headers, because these are beside the items, and where the id would be too long.
    """
    if len(batch) > _SURELY_WITHIN and len(_differences(batch)) > DIFFERENCES_BYTES:
        half = len(batch) // 2
        return write_batch(service, batch[:half], unreadable) + write_batch(service, batch[half:], unreadable)
    if batch[0].stage is Stage.DELIVER:
        return _write_start(service, batch)
    common = subscription_headers(batch[0].collection, batch[0].subid)
    readable: list[tuple[bytes, Delivery, bytes]] = []
    for delivery in batch:
        try:
            payload, headers = payloads.payload_and_headers(delivery.envelope, common)
        except CorruptRecord as fault:
            unreadable(delivery, fault)
        else:
            readable.append((headers, delivery, payload))
    stanzas = []
    for headers, alike in groupby(readable, itemgetter(0)):
        _, items, (payload, *more) = zip(*alike, strict=True)
        stanzas.append(_write_items(service, items, payload, headers, more))
    return b"".join(stanzas)


def _write_items(
    service: str, batch: Sequence[Delivery], payload: bytes, headers: bytes, more: Sequence[bytes] = ()
) -> bytes:
    """Write items with their locks (Q16), or one log entry with its position; `more` are the payloads after the first."""
    delivery = batch[0]
    if delivery.stage in _PLAIN:
        opening = f"<message from='{escaped_name(service)}' to='{escaped_name(delivery.subscriber)}' id='{_id(batch)}'>"
        closing = _ALONE_BYTES
    else:
        opening, closing = _request(service, batch) + _level(batch) + _MESSAGE, _CLOSING[delivery.stage]
    name, item = delivery.partition.node, escape(delivery.item_id)
    head = f"{opening}<event xmlns='{ns.PUBSUB_EVENT}'><items node='{escaped_name(name)}'><item id='{item}'>"
    where = log_options.position(delivery) if delivery.stage in _STREAMED else lock(name, delivery)
    if more:
        others = zip(batch[1:], more, strict=True)
        payload += b"".join([_ANOTHER % (escape(each.item_id).encode(), body) for each, body in others])
        where += "".join([lock(name, each) for each in batch[1:]])
    tail = f"</item></items></event>{where}".encode()
    return b"%b%b%b%b%b" % (head.encode(), payload, tail, headers, closing)


def _write_start(service: str, batch: Sequence[Delivery]) -> bytes:
    """Write the IQ that lets the receiver of an assured message start; it contains the first of the locks' expiries."""
    first = batch[0]
    name = first.message or str(first.token)
    until = moment(min([each.deadline_ms for each in batch]))
    expires = f"xmlns:q='{ns.STANZAQ}' q:expires='{until}'"
    msg_id = _message_id(first.partition, name)
    return f"{_request(service, batch)}<deliver xmlns='{ns.QOS}' {expires} msgId='{msg_id}'/></iq>".encode()


def lock(node: str, held: Lock | Delivery) -> str:
    """Write what a holder may know of its lock (QX14), the item's partition if there are several (E13), and when it came.

    A delivery also tells if somebody wants to know the item's end.
    """
    if isinstance(held, Delivery):
        number, key = held.partition.number if held.partitioned else None, held.key
        published = f" published='{moment(int(held.position.partition('-')[0]))}'"
        reply = " reply='1'" if held.reply else ""
    else:
        number, key, published, reply = held.partition, "", "", ""
    place = "" if number is None else f" partition='{number}'"
    group = f" key='{escape(key)}'" if key else ""
    return (
        f"<lock xmlns='{ns.STANZAQ}' node='{escaped_name(node)}' item='{escape(held.item_id)}' token='{held.token}'"
        f" attempt='{held.attempt}' of='{held.of}' expires='{moment(held.deadline_ms)}'{published}{place}{group}{reply}/>"
    )


def subscription_headers(collection: str, subid: str) -> dict[str, str]:
    """Return headers that name the subscription of a notification: its collection (H6), or which of several (P12)."""
    said = {"Collection": collection} if collection else {}
    return said | {"SubID": subid} if subid else said


def _id(batch: Sequence[Delivery]) -> str:
    """Write the id of a stanza, escaped for an attribute."""
    first = batch[0]
    more = _differences(batch) if len(batch) > 1 else ""
    return f"sq:{_LETTERS[first.stage]}{first.token}:{first.position}{more}:{_partition(first.partition)}"


def _differences(batch: Sequence[Delivery]) -> str:
    """Write the locks after the first one, each as the difference to the one before: `,TOKEN.MS.SEQUENCE` or `,TOKEN.SEQUENCE`.

    The second form, in which the sequence is a difference too, is for positions of the same millisecond.
    """
    written = []
    for before, after in pairwise(batch):
        (ms, sequence), (next_ms, next_sequence) = _numbers(before.position), _numbers(after.position)
        place = f"{next_ms - ms}.{next_sequence}" if next_ms != ms else str(next_sequence - sequence)
        written.append(f",{after.token - before.token}.{place}")
    return "".join(written)


def _read_differences(position: str, token: int, text: str) -> tuple[_Lock, ...]:
    """Read what `_differences` wrote; raises ValueError for numbers below 0."""
    found = []
    ms, sequence = _numbers(position)
    for each in text.split(",")[1:]:
        step, *place = map(int, each.split("."))
        token += step
        ms, sequence = (ms, sequence + place[0]) if len(place) == 1 else (ms + place[0], place[1])
        if min(token, ms, sequence) < 0:
            msg = "no position or token is below 0"
            raise ValueError(msg)
        found.append((f"{ms}-{sequence}", token))
    return tuple(found)


def _numbers(position: str) -> tuple[int, int]:
    ms, _, sequence = position.partition("-")
    return int(ms), int(sequence)


@lru_cache(maxsize=1_024)
def _partition(partition: Partition) -> str:
    return escape(str(partition))


def read_id(text: str) -> Named | None:
    """Parse what `_id` wrote; None for any other id.

    The core detects forged ids: the token must be that of a lock which the sender holds.
    """
    found = _ID.fullmatch(text)
    if found is None:
        return None
    letter, token, position, others, partition = found.groups()
    try:
        return Named(
            Partition.parse(partition),
            position,
            int(token),
            _STAGES[letter],
            _read_differences(position, int(token), others),
        )
    except ValueError:
        return None


def _level(batch: Sequence[Delivery]) -> str:
    """Write the beginning of the level around a message, which has no addresses of its own (S7)."""
    first = batch[0]
    if first.stage is Stage.ASSURED:
        name = _message_name([(each.position, each.token) for each in batch])
        return f"<assured xmlns='{ns.QOS}' msgId='{_message_id(first.partition, name)}'>"
    return f"<acknowledged xmlns='{ns.QOS}'>"


def parse_answer(iq: Element) -> Confirm | Bounce | None:
    """Parse the answer to a delivery in an IQ; None for any other IQ, and for an incomplete result."""
    sender = iq.get("from")
    named = read_id(iq.get("id", ""))
    if not sender or named is None or named.stage is Stage.UNACKNOWLEDGED:
        return None
    held = (Jid(sender), named.partition, named.position, named.token)
    if iq.get("type") == "error":
        return Bounce(*held, _is_gone(iq), named.stage, named.others)
    name = _message_name([(named.position, named.token), *named.others])
    if named.stage is Stage.ASSURED and not _is_received(iq, _message_id(named.partition, name)):
        return None
    return Confirm(*held, named.stage, named.others, name if named.others else "")


def _request(service: str, batch: Sequence[Delivery]) -> str:
    return f"<iq type='set' from='{escape(service)}' to='{escape(batch[0].subscriber)}' id='{_id(batch)}'>"


def _message_id(partition: Partition, name: str) -> str:
    """Return the msgId of a message, unique in the service and across incarnations of a node (S14)."""
    return f"{partition.incarnation}-{partition.number}-{name}"


def _message_name(locks: Sequence[_Lock]) -> str:
    """Return what identifies a message in its partition: its token, with a digest if it has several."""
    if len(locks) == 1:
        return str(locks[0][1])
    digest = blake2b(repr(locks).encode(), digest_size=8).hexdigest()
    return f"{locks[0][1]}.{digest}"


def _is_received(iq: Element, message_id: str) -> bool:
    # Peers write `received` without its namespace, as in the examples, or qualify its attribute, as in the schema.
    return any(child.tag.rpartition("}")[2] == "received" and message_id in map(child.get, _MSG_IDS) for child in iq)


def _is_gone(iq: Element) -> bool:
    error = stanzas.error(iq)
    # A receiver that has lost an assured message answers item-not-found: it is available, and gets the message again.
    return error is not None and error.get("type") == "cancel" and error.find(_ITEM_NOT_FOUND) is None


def parse_bounce(message: Element) -> Bounce | None:
    """Parse the bounce of a delivery; None for any other message."""
    sender = message.get("from")
    if message.get("type") != "error" or not sender:
        return None
    named = read_id(message.get("id", ""))
    if named is None or named.stage not in _PLAIN:
        return None
    error = stanzas.error(message)
    gone = error is not None and (error.get("type") == "cancel" or error.find(_GONE) is not None)
    return Bounce(Jid(sender), named.partition, named.position, named.token, gone, named.stage, named.others)

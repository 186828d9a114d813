"""Reading a log over XMPP: start positions, commits, and the answer to a replay.

Must not know subscription forms or how a delivery is addressed. Only the model knows the form of offsets.
"""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model import offsets
from broker.model.commands import Commit, Partitions, Read
from broker.model.items.items import Delivery
from broker.model.items.qos import Stage
from broker.model.problems import Problem
from broker.model.results import Event, Extents, Replay
from broker.model.times import read_moment
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, payloads
from frontends.xmpp.stanzas import Iq, Question, expect
from frontends.xmpp.xml.text import escape, moment

READ_DEFAULT: Final = 50
READ_MOST: Final = 500
_REPLAY_BYTES: Final = 524_288
"""The size at which a replay stops early: the reader continues after the last event."""


def commit(iq: Iq, element: Element) -> Question:
    """Translate `<commit/>`."""
    expect(iq, "set")
    node = attributes.node(element)
    number = attributes.partition_number(element.get("partition", "0"))
    return Question(iq, Commit(node, iq.sender, number, element.get("offset", "")))


def replay(iq: Iq, element: Element) -> Question:
    """Translate `<replay/>`; without `from` it begins with the earliest event."""
    expect(iq, "get")
    node = attributes.node(element)
    most = element.get("max")
    # Too large a number is no error: the answer says that there is more.
    limit = READ_DEFAULT if most is None else attributes.parse_whole(most, 10**9, Problem.BAD_REQUEST, "max")
    begin = start(element.get("from", offsets.EARLIEST))
    number = attributes.partition_number(element.get("partition", "0"))
    return Question(iq, Read(node, iq.sender, number, begin, min(limit, READ_MOST)))


def partitions(iq: Iq, element: Element) -> Question:
    """Translate `<partitions/>`."""
    expect(iq, "get")
    return Question(iq, Partitions(attributes.node(element), iq.sender))


def start(text: str) -> str:
    """Parse a start position: as in the model, or a time (XEP-0082), as ms since 1970."""
    try:
        return str(max(read_moment(text), 0))
    except ValueError:
        offsets.read_partition(text)
        return text


def position(delivery: Delivery) -> str:
    """Write the position of an entry (E16); `gap` if earlier ones are lost to this reader (EX7)."""
    partition = delivery.partition
    gap = " gap='true'" if delivery.stage is Stage.GAP else ""
    key = f" key='{escape(delivery.key)}'" if delivery.key else ""
    return (
        f"<position xmlns='{ns.STANZAQ}' node='{escape(partition.node)}' partition='{partition.number}'"
        f" offset='{offsets.write_offset(partition, delivery.position)}'"
        f" timestamp='{moment(int(delivery.position.partition('-')[0]))}'{key}{gap}/>"
    )


def write_replay(node: str, found: Replay) -> bytes:
    """Write the entries of a replay; `next` continues after the last one, `more` says that there are others."""
    inside: list[bytes] = []
    size, after, more = 0, found.after, found.more
    for number, event in enumerate(found.events):
        payload = payloads.listed_element(event.envelope)
        size += len(payload)
        if size > _REPLAY_BYTES and inside:
            after, more = found.events[number - 1].offset, True
            break
        inside.append(b"%b%b</event>" % (_event(event).encode(), payload))
    marks = f" gap='{_boolean(found.gap)}' more='{_boolean(more)}' next='&gt;{after}'"
    head = f"<replay xmlns='{ns.STANZAQ}' node='{escape(node)}'{_extent(found)}{marks}>"
    return b"%b%b</replay>" % (head.encode(), b"".join(inside))


def write_extents(node: str, found: Extents) -> bytes:
    """Write the extent of each partition's log (E19, EX17)."""
    inside = "".join(f"<partition{_extent(each)}/>" for each in found.partitions)
    return f"<partitions xmlns='{ns.STANZAQ}' node='{escape(node)}'>{inside}</partitions>".encode()


def _extent(found: Replay) -> str:
    earliest = f" earliest='{found.earliest}'" if found.earliest else ""
    return f" partition='{found.partition}'{earliest} latest='{found.latest}'"


def _event(event: Event) -> str:
    key = f" key='{escape(event.key)}'" if event.key else ""
    return (
        f"<event offset='{event.offset}' timestamp='{moment(event.timestamp_ms)}' item='{escape(event.item_id)}'{key}"
        f" publisher='{escape(event.publisher)}'>"
    )


def _boolean(value: bool) -> str:  # noqa: FBT001  (its one argument)
    return "true" if value else "false"

"""Streams on the wire: starts, commits, replays, and entries with their positions (E16, E17)."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model import offsets
from broker.model.commands import Bounce, Commit, Partitions, Read
from broker.model.items.items import Delivery, Envelope
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event, Extents, Replay
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import deliveries
from frontends.xmpp.pubsub import attributes, log_options
from frontends.xmpp.stanzas import Question

_ME = Jid("reader@example.org/a")
_HERE = Partition("a 'log'", "8e71964d", 3)
_OFFSET = offsets.write_offset(_HERE, "1795232955075-0")


def _delivery(stage: Stage) -> Delivery:
    envelope = codec.pack(Envelope(b"<x xmlns='urn:x'/>"))
    return Delivery(
        _HERE, "1795232955075-0", "i", _ME, 0, 1, 20, 0, Jid("p@x"), envelope, 7, stage, key="k", partitioned=True
    )


@pytest.mark.parametrize(("stage", "gap"), [(Stage.STREAM, None), (Stage.GAP, "true")])
def test_an_entry(stage: Stage, gap: str | None) -> None:
    """E13, E16, EX7: a plain message with the entry's position, and no lock."""
    message = ET.fromstring(deliveries.write_delivery("queue.x", _delivery(stage)))
    assert message.get("to") == _ME and message.find(f"{{{ns.STANZAQ}}}lock") is None
    position = message.find(f"{{{ns.STANZAQ}}}position")
    assert position is not None
    assert (position.get("node"), position.get("partition"), position.get("offset")) == ("a 'log'", "3", _OFFSET)
    assert (position.get("key"), position.get("gap")) == ("k", gap)
    assert offsets.read(position.get("offset", ""), _HERE) == "1795232955075-0"


@pytest.mark.parametrize("stage", [Stage.STREAM, Stage.GAP])
def test_its_bounce(stage: Stage) -> None:
    """Q18: a bounced entry names itself."""
    message = ET.fromstring(deliveries.write_delivery("queue.x", _delivery(stage)))
    error = f"<error type='cancel'><service-unavailable xmlns='{ns.STANZAS}'/></error>"
    bounce = ET.fromstring(f"<message xmlns='{ns.COMPONENT}' type='error'>{error}</message>")
    bounce.set("from", _ME)
    bounce.set("id", message.get("id", ""))
    assert deliveries.parse_bounce(bounce) == Bounce(_ME, _HERE, "1795232955075-0", 0, gone=True, stage=stage)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("@earliest", "@earliest"),
        (_OFFSET, _OFFSET),
        (f">{_OFFSET}", f">{_OFFSET}"),
        ("1795232955075", "1795232955075"),
        ("1970-01-01T00:00:01.5Z", "1500"),
        ("1970-01-01T01:00:01+01:00", "1000"),
        ("1960-01-01T00:00:00Z", "0"),
    ],
)
def test_starts(text: str, start: str) -> None:
    """EX8, EX9: an offset, a word, a moment of XEP-0082, or milliseconds: nothing is guessed."""
    assert log_options.start(text) == start


@pytest.mark.parametrize(
    "text", ["", "now", "2026-02-30T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00", "9" * 40, "x" * 10_000_000]
)
def test_bad_starts(text: str) -> None:
    """Any other start is refused, however long."""
    with pytest.raises(MalformedRequest) as refused:
        log_options.start(text)
    assert refused.value.problem is Problem.OFFSET_INVALID


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1024", "99999", "٣", "x" * 10_000_000])
def test_bad_partitions(text: str) -> None:
    """E7: an impossible partition is an unknown one."""
    with pytest.raises(MalformedRequest) as refused:
        attributes.partition_number(text)
    assert refused.value.problem is Problem.PARTITION_NOT_FOUND


def test_requests(read: Callable[..., Question]) -> None:
    """Each request is a command; what it leaves out has a default."""
    replay = read(f"<replay xmlns='{ns.STANZAQ}' node='n'/>", kind="get").command
    assert isinstance(replay, Read) and (replay.partition, replay.start, replay.limit) == (0, "@earliest", 50)
    replay = read(f"<replay xmlns='{ns.STANZAQ}' node='n' partition='3' from='5' max='9999'/>", kind="get").command
    assert isinstance(replay, Read) and (replay.partition, replay.start, replay.limit) == (3, "5", 500)
    commit = read(f"<commit xmlns='{ns.STANZAQ}' node='n' offset='x'/>").command
    assert isinstance(commit, Commit) and (commit.partition, commit.offset) == (0, "x")
    assert isinstance(read(f"<partitions xmlns='{ns.STANZAQ}' node='n'/>", kind="get").command, Partitions)


def test_a_replay_fits_a_stanza() -> None:
    """A replay stops early rather than being larger than servers let through, and says where to continue."""
    body = codec.pack(Envelope(b"<x xmlns='urn:x'>" + b"y" * 200_000 + b"</x>"))
    found = [
        Event(offsets.write_offset(_HERE, f"{number}-0"), number, f"i{number}", "", Jid("p@x"), body)
        for number in range(5)
    ]
    written = log_options.write_replay(
        "n", Replay(3, tuple(found), "", found[-1].offset, found[-1].offset, gap=False, more=False)
    )
    replay = ET.fromstring(written)
    assert [event.get("item") for event in replay] == ["i0", "i1"]
    assert (replay.get("more"), replay.get("next")) == ("true", f">{found[1].offset}")
    assert ET.fromstring(log_options.write_extents("n", Extents(()))).get("node") == "n"


def test_a_replay_passes_an_unreadable_entry() -> None:
    """An entry that another version wrote is shown as its stored bytes: its readers go on after it."""
    good = codec.pack(Envelope(b"<x xmlns='urn:x'/>"))
    found = tuple(
        Event(offsets.write_offset(_HERE, f"{number}-0"), number, f"i{number}", "", Jid("p@x"), record)
        for number, record in enumerate((good, b"\xc1", good))
    )
    last = found[-1].offset
    replay = ET.fromstring(log_options.write_replay("n", Replay(3, found, "", last, last, gap=False, more=False)))
    assert [event.get("item") for event in replay] == ["i0", "i1", "i2"]
    assert (replay[1][0].get("type"), replay[1][0].text) == ("application/octet-stream", "wQ==")

"""Stanzas of several items, and the answers to them."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker import codec
from broker.model.commands import Bounce, Confirm
from broker.model.items.items import Delivery, Envelope
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import deliveries
from frontends.xmpp.messages.deliveries import parse_answer, parse_bounce, read_id, write_batch

_WORKER = Jid("w@x/1")
_PLACE = Partition("j'obs", "8e71964d", 3)
_STAGES = (Stage.UNACKNOWLEDGED, Stage.ACKNOWLEDGED, Stage.ASSURED, Stage.DELIVER)


def _delivery(number: int, stage: Stage = Stage.UNACKNOWLEDGED, headers: dict[str, str] | None = None) -> Delivery:
    envelope = codec.pack(Envelope(b"<a xmlns='urn:x'>%d</a>" % number, headers=headers or {}))
    where = (_PLACE, f"1526919030474-{number}", f"j<{number}>")
    when = 1_700_000_000_000 - number
    return Delivery(*where, _WORKER, 40 + number, 1, 20, when, Jid("p@x"), envelope, 1, stage, subid="7", batch=100)


def _batch(count: int, stage: Stage = Stage.UNACKNOWLEDGED) -> list[Delivery]:
    return [_delivery(number, stage) for number in range(count)]


def _stanzas(batch: list[Delivery], corrupt: list[str] | None = None) -> list[ET.Element]:
    found = [] if corrupt is None else corrupt
    text = write_batch("q.x", batch, lambda delivery, _fault: found.append(delivery.item_id))
    return list(ET.fromstring(b"<all>%b</all>" % text))


def _items(stanza: ET.Element) -> list[str]:
    items = [each.get("id", "") for each in stanza.iter(f"{{{ns.PUBSUB_EVENT}}}item")]
    assert [each.get("item") for each in stanza.iter(f"{{{ns.STANZAQ}}}lock")] == items
    return items


def _locks(batch: list[Delivery]) -> tuple[tuple[str, int], ...]:
    return tuple((each.position, each.token) for each in batch)


@pytest.mark.parametrize("stage", _STAGES[:3])
def test_items_then_locks(stage: Stage) -> None:
    """XEP-0060 §12.18: each item as in a message of its own, then the locks in the same order; one header for all."""
    batch = _batch(3, stage)
    (stanza,) = _stanzas(batch)
    assert _items(stanza) == ["j<0>", "j<1>", "j<2>"]
    assert [each.get("name") for each in stanza.iter(f"{{{ns.SHIM}}}header")] == ["SubID"]
    single = [ET.fromstring(deliveries.write_delivery("q.x", each)) for each in batch]
    for tag in (f"{{{ns.PUBSUB_EVENT}}}item", f"{{{ns.STANZAQ}}}lock"):
        assert [ET.tostring(each) for each in stanza.iter(tag)] == [
            ET.tostring(each) for alone in single for each in alone.iter(tag)
        ]
    assert (len(list(stanza.iter(f"{{{ns.HINTS}}}no-store"))) == 1) is (stage is Stage.UNACKNOWLEDGED)


@pytest.mark.parametrize("stage", [*_STAGES, Stage.STREAM])
def test_one_item_is_written_as_ever(stage: Stage) -> None:
    """A batch of one is byte for byte the delivery without the option."""
    alone = _delivery(1, stage)
    assert write_batch("q.x", [alone], _never) == deliveries.write_delivery("q.x", replace(alone, batch=1))


def _never(*_: object) -> None:
    raise AssertionError


_POSITION = st.builds("{}-{}".format, st.integers(0, 2**47), st.integers(0, 2**64 - 1))


@given(
    locks=st.lists(st.tuples(_POSITION, st.integers(1, 2**63 - 1)), min_size=2, max_size=100, unique=True),
    stage=st.sampled_from(_STAGES),
)
@example(
    locks=[(f"{2**47 * (n % 2)}-{2**64 - 1 - n}", 2**63 - 1 - 2**62 * (n % 2) - n) for n in range(100)],
    stage=Stage.ASSURED,
)
def test_ids_name_all_locks(locks: list[tuple[str, int]], stage: Stage) -> None:
    """SX13, Q18: the ids of a batch's stanzas, none too long, name each lock once, whatever the locks are."""
    one = replace(_delivery(0, stage), envelope=codec.pack(Envelope(b"<a/>")))
    batch = [replace(one, position=position, token=token) for position, token in locks]
    ids = [stanza.get("id", "") for stanza in _stanzas(batch)]
    named = [read_id(each) for each in ids]
    assert [lock for found in named if found for lock in ((found.position, found.token), *found.others)] == locks
    assert all(len(each) <= 3_000 for each in ids)


def test_usual_ids_are_short() -> None:
    """Locks of one script call differ little: a hundred take one id of a few hundred bytes."""
    (stanza,) = _stanzas(_batch(100))
    assert len(stanza.get("id", "")) < 500


@pytest.mark.parametrize("others", [",-50.1", ",1.-5000000000000000.1", ",1.1" * 100, ",1", ",1.1.1.1", ",,", ",x.1"])
def test_forged_ids(others: str) -> None:
    """Bad input: an id with impossible locks is none of ours."""
    assert read_id(f"sq:42:1526919030474-0{others}:jobs@i1/0") is None


def test_a_bounce_names_all() -> None:
    """Q18: the bounce of a message gives back all that it brought."""
    batch = _batch(3)
    stanza = _stanzas(batch)[0]
    error = ET.fromstring(
        f"<message xmlns='{ns.COMPONENT}' type='error' from='{_WORKER}'><error type='cancel'/></message>"
    )
    error.set("id", stanza.get("id", ""))
    first, *others = _locks(batch)
    assert parse_bounce(error) == Bounce(_WORKER, _PLACE, *first, gone=True, others=tuple(others))


def _reply(stanza: ET.Element, inside: str = "") -> ET.Element:
    reply = ET.fromstring(f"<iq xmlns='{ns.COMPONENT}' type='result' from='{_WORKER}' to='q.x'>{inside}</iq>")
    reply.set("id", stanza.get("id", ""))
    return reply


def test_one_handshake() -> None:
    """S9, S11: one `received` confirms the batch under its own msgId, and one notice begins it, with the earliest expiry."""
    batch = _batch(3, Stage.ASSURED)
    (stanza,) = _stanzas(batch)
    name = stanza[0].get("msgId", "")
    assert name not in {ET.fromstring(deliveries.write_delivery("q.x", each))[0].get("msgId") for each in batch}
    assert name != _stanzas(batch[:2])[0][0].get("msgId")
    assert parse_answer(_reply(stanza, "<received msgId='8e71964d-3-40'/>")) is None
    confirm = parse_answer(_reply(stanza, f"<received msgId='{name}'/>"))
    first, *others = _locks(batch)
    assert isinstance(confirm, Confirm) and name == f"8e71964d-3-{confirm.message}"
    assert confirm == Confirm(_WORKER, _PLACE, *first, Stage.ASSURED, tuple(others), confirm.message)
    begin = [replace(each, stage=Stage.DELIVER, envelope=b"", message=confirm.message) for each in batch]
    (notice,) = _stanzas(begin)
    assert notice[0].attrib == {"msgId": name, f"{{{ns.STANZAQ}}}expires": "2023-11-14T22:13:19.998Z"}
    # A notice that is repeated for one of them begins the same message.
    (alone,) = _stanzas(begin[1:2])
    assert alone[0].get("msgId") == name
    assert parse_answer(_reply(notice)) == replace(confirm, stage=Stage.DELIVER)


def test_acknowledged() -> None:
    """S4: one result confirms all items of a batch."""
    batch = _batch(3, Stage.ACKNOWLEDGED)
    confirm = parse_answer(_reply(_stanzas(batch)[0]))
    assert isinstance(confirm, Confirm) and (confirm.stage, confirm.others) == (Stage.ACKNOWLEDGED, _locks(batch)[1:])


def test_a_corrupt_item() -> None:
    """Guarantee 8: an item that cannot be read is left out and reported; the others come, also when only one is left."""
    batch = _batch(3)
    batch[1] = replace(batch[1], envelope=b"?")
    corrupt: list[str] = []
    (stanza,) = _stanzas(batch, corrupt)
    assert (_items(stanza), corrupt) == (["j<0>", "j<2>"], ["j<1>"])
    named = read_id(stanza.get("id", ""))
    assert named is not None and named.others == _locks(batch)[2:]
    (alone,) = _stanzas(batch[:2], corrupt)
    assert _items(alone) == ["j<0>"]
    assert not _stanzas(batch[1:2], corrupt)


def test_headers_are_for_all_items() -> None:
    """XEP-0131: headers are beside the items, so items with other headers take another message; the order stays."""
    batch = [_delivery(number, headers={"k": str(number // 2)} if number < 4 else None) for number in range(5)]
    assert [_items(stanza) for stanza in _stanzas(batch)] == [["j<0>", "j<1>"], ["j<2>", "j<3>"], ["j<4>"]]

"""Records of assured messages: they are read back as written, and names keep a JID's messages together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec
from broker.model.commands import PrepareMessage, Publish
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.redis_core.exactly_once import StoredMessage, message_key, new_message, sender_of

ALICE = Jid("alice@x/my desk")


def _hold(
    node: str = "n",
    item: str | None = None,
    body: bytes = b"b",
    *,
    stem: str = "m1",
    key: str = "",
    partition: int | None = None,
    hints: Hints = NO_HINTS,
) -> PrepareMessage:
    publish = Publish(node, ALICE, item, body, len(body), partition=partition, key=key, hints=hints)
    return PrepareMessage(ALICE, "m1", publish, stem)


@given(st.text(min_size=1), st.text(min_size=1), st.binary(), st.text(), st.none() | st.integers(0, 1023))
def test_records(node: str, item: str, body: bytes, key: str, partition: int | None) -> None:
    """Any node, id, key and payload come back, with a ticket that no publisher can write."""
    held = new_message(_hold(node, item, body, key=key, partition=partition))
    read = StoredMessage.unpack(ALICE, held.pack())
    assert (read.nonce, read.digest) == (held.nonce, held.digest)
    assert (read.publish.node, read.publish.item_id, read.publish.envelope) == (node, item, body)
    assert (read.publish.key, read.publish.partition) == (key, partition)
    assert read.publish.ticket == f"\0{held.nonce}" and read.publish.sender == ALICE


def test_digests() -> None:
    """SX10: copies have one digest and each its own nonce; another node, partition, id or payload is another message."""
    first, copy = new_message(_hold()), new_message(_hold())
    assert first.digest == copy.digest and first.nonce != copy.nonce
    assert first.publish.item_id == f"m1~{first.nonce}"
    others = (_hold("o"), _hold(item="m1"), _hold(body=b"c"), _hold(stem="m2"), _hold(key="k"), _hold(partition=0))
    asking = (_hold(hints=Hints(1)), _hold(hints=Hints(priority=1)))
    assert len({new_message(other).digest for other in (*others, *asking)} | {first.digest}) == 9


def test_hints() -> None:
    """S9: a stored message keeps its delay, priority and time to live; a record without them has the old form."""
    for partition in (None, 3):
        held = new_message(_hold(partition=partition, hints=Hints(5_000, 9, 60_000)))
        read = StoredMessage.unpack(ALICE, held.pack()).publish
        assert (read.hints, read.partition) == (Hints(5_000, 9, 60_000), partition)
    before = b"n d 1 - 1 1 1 n i k b".replace(b"n i k b", b"nikb")
    assert StoredMessage.unpack(ALICE, before).publish.hints == NO_HINTS
    assert b"/" not in new_message(_hold()).pack()


def test_headers_are_no_part_of_a_message() -> None:
    """SX10: a copy may come by another route, and a trace names a new step each time."""
    plain, traced = (codec.pack(Envelope(b"b", headers=given)) for given in ({}, {"traceparent": "1"}))
    first, copy = new_message(_hold(body=plain)), new_message(_hold(body=traced))
    assert first.digest == copy.digest and copy.publish.envelope == traced


def test_names() -> None:
    """S14: the sender is the full JID, and comes out of the name again."""
    for jid in ("alice@x/my desk", "alice@x", "x", "x/a/b"):
        assert sender_of(message_key(Jid(jid), "m\0 1")) == jid
    assert message_key(ALICE, "m1").startswith("alice@x\0")


def test_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """SX10: a time is stored as it was given, so copies are equal whenever they come, and less is left when it is delivered."""
    messages, left = [], []
    for seconds in (1_000.0, 1_002.0, 1_009.0):
        monkeypatch.setattr("time.time", lambda seconds=seconds: seconds)
        message = new_message(_hold(hints=Hints.validate(None, 7, None, at=1_005_000)))
        messages.append(message)
        left.append(StoredMessage.unpack(ALICE, messages[0].pack()).publish.hints.delay_ms)
    assert len({message.digest for message in messages}) == 1 and left == [5_000, 3_000, 0]

"""The envelope's bytes: small, whole or refused."""

from contextlib import suppress

import msgpack  # type: ignore[import-untyped]  # msgpack ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec
from broker.model.items.items import XML, Envelope
from broker.model.problems import CorruptRecord

_BODY = b"<job xmlns='urn:example'/>"

envelopes = st.builds(
    Envelope,
    body=st.binary(max_size=300),
    content_type=st.just(XML) | st.text(min_size=1, max_size=40),
    headers=st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
)


@given(envelopes)
def test_comes_back_as_it_was(envelope: Envelope) -> None:
    """Body, content type and headers survive the bytes unchanged."""
    assert codec.unpack(codec.pack(envelope)) == envelope


def test_costs_five_bytes() -> None:
    """An XML payload of 200 bytes is stored in 205: common values are not spelled out."""
    assert len(codec.pack(Envelope(b"x" * 200))) == 205


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (1, 0),
        (1, 0, _BODY, {}, 5),
        (1, 0, "text"),
        (1, 0, None),
        (1, 1, _BODY),
        (1, "", _BODY),
        (1, False, _BODY),
        (True, 0, _BODY),
        (0, 0, _BODY),
        (-1, 0, _BODY),
        (2, 0, _BODY),
        (1.0, 0, _BODY),
        (1, 0, _BODY, []),
        (1, 0, _BODY, {"a": 1}),
        (1, 0, _BODY, {b"a": "b"}),
        (1, 0, _BODY, {1: "b"}),
        (1, 0, msgpack.ExtType(5, b"x")),
        {"body": _BODY},
        "one",
        b"\x01\x00\x02",
        7,
        None,
    ],
)
def test_refuses_what_it_never_wrote(fields: object) -> None:
    """Wrong types, missing or extra fields and later versions are corrupt records, never half-read ones."""
    with pytest.raises(CorruptRecord):
        codec.unpack(msgpack.packb(fields))


@given(envelopes, st.data())
def test_refuses_pieces_and_leftovers(envelope: Envelope, data: st.DataObject) -> None:
    """A truncated record and one with trailing bytes are corrupt."""
    record = codec.pack(envelope)
    cut = data.draw(st.integers(0, len(record) - 1))
    for wrong in (record[:cut], record + b"\x00"):
        with pytest.raises(CorruptRecord):
            codec.unpack(wrong)


@given(st.binary(max_size=200))
def test_random_bytes_never_surprise(record: bytes) -> None:
    """Any bytes in Redis are read as an envelope or reported as corrupt."""
    with suppress(CorruptRecord):
        assert isinstance(codec.unpack(record), Envelope)


def test_a_deep_record_is_corrupt() -> None:
    """A record of arrays within arrays ends in CorruptRecord, not in the interpreter's stack."""
    with pytest.raises(CorruptRecord):
        codec.unpack(b"\x91" * 100_000)

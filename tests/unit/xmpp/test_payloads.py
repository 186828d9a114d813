"""Payloads on their way in and out."""

from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.items.items import Envelope
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import payloads


def _item(inside: str) -> ET.Element:
    return ET.fromstring(f"<item xmlns='{ns.PUBSUB}'>{inside}</item>")


def _told(headers: str = "") -> str:
    return f"<headers xmlns='{ns.SHIM}'>{headers}</headers>"


def test_goes_in_and_out_unchanged() -> None:
    """An XML payload is spliced into a delivery byte for byte as it was stored."""
    record, size = payloads.read_payload(_item("\n  <a xmlns='urn:x'>\U0001f41d</a>\n"))
    assert payloads.read_element(record) == "<a xmlns='urn:x'>\U0001f41d</a>".encode()
    assert size == len(payloads.read_element(record))


def test_json_stays_json() -> None:
    """Declarations that the reader of XML adds for a text are nothing that JSON cannot say."""
    item = _item(f"<json xmlns='{ns.JSON}'>{{\"a:b\": 1}}</json>")
    item[0].set("xmlns:a", "urn:a")
    record, _ = payloads.read_payload(item)
    assert codec.unpack(record) == Envelope(b'{"a:b": 1}', "application/json")


def test_headers_go_with_it() -> None:
    """Issue 9: a publisher's headers (XEP-0131) are the item's, count with it, and go to its receiver."""
    record, size = payloads.read_payload(
        _item("<a/>" + _told("<header name='color'>r&amp;d</header><header name='e'/>"))
    )
    assert codec.unpack(record).headers == {"color": "r&d", "e": ""}
    assert size == len(payloads.read_element(record)) + len("colorr&de")
    told = ET.fromstring(payloads.payload_and_headers(record, {})[1])
    assert [(header.get("name"), header.text) for header in told] == [("color", "r&d"), ("e", None)]
    alone, _size = payloads.read_payload(_item(_told()))
    assert codec.unpack(alone).headers == {}, "alone it is the payload"


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("", Problem.PAYLOAD_REQUIRED),
        ("only text", Problem.PAYLOAD_REQUIRED),
        ("<a/><b/>", Problem.PAYLOAD_INVALID),
        ("text<a/>", Problem.PAYLOAD_INVALID),
        ("<a/>text", Problem.PAYLOAD_INVALID),
        ("<a/>" + _told() + _told(), Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("<header>x</header>"), Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("<header name='a'/>" * 2), Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("<header name='a'><b/></header>"), Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("<header name='Stanzaq-dead-node'>x</header>"), Problem.PAYLOAD_INVALID),
        (f"<data xmlns='{ns.STANZAQ}'>no base64!</data>", Problem.PAYLOAD_INVALID),
        (f"<data xmlns='{ns.STANZAQ}' type='no type'>AP8=</data>", Problem.PAYLOAD_INVALID),
        (f"<data xmlns='{ns.STANZAQ}'>AP8=<a/></data>", Problem.PAYLOAD_INVALID),
        *(
            (f"<data xmlns='{ns.STANZAQ}' type='application/json{more}'>{text}</data>", Problem.PAYLOAD_INVALID)
            for text in ("", "TmFO", "Iv8i", "e30ge30=")
            for more in ("", "; charset=utf-8")
        ),
        # XEP-0335 §3: what stands there is JSON.
        *(
            (f"<json xmlns='{ns.JSON}'>{text}</json>", Problem.PAYLOAD_INVALID)
            for text in ("", "{", "{'a': 1}", "[1,]", "NaN", "1 2", "<a/>", "1<a/>", "[" * 100_000)
        ),
        (f"<json xmlns='{ns.JSON}' a='1'>no json</json>", Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("<header name='amqp'>data </header>"), Problem.PAYLOAD_INVALID),
        ("<a/>" + _told("".join(f"<header name='h{number}'/>" for number in range(33))), Problem.PAYLOAD_INVALID),
        (f"<a>{'x' * MAX_PAYLOAD_BYTES}</a>", Problem.PAYLOAD_TOO_BIG),
    ],
)
def test_refuses_what_is_not_one_element(inside: str, problem: Problem) -> None:
    """No payload, more than one, text beside it, or more than any node allows: each is refused by its name (P14)."""
    with pytest.raises(MalformedRequest) as caught:
        payloads.read_payload(_item(inside))
    assert caught.value.problem is problem


@pytest.mark.parametrize(
    ("envelope", "tag", "text"),
    [
        (Envelope(b'{"a": "<\xc3\xa9>"}', "application/json"), f"{{{ns.JSON}}}json", '{"a": "<é>"}'),
        (Envelope(b'"\xff"', "application/json"), f"{{{ns.STANZAQ}}}data", "Iv8i"),
        (Envelope(b'"\x01"', "application/json"), f"{{{ns.STANZAQ}}}data", "IgEi"),
        (Envelope(b"\x00\x01", "image/'png'"), f"{{{ns.STANZAQ}}}data", "AAE="),
    ],
)
def test_shows_what_other_doors_brought(envelope: Envelope, tag: str, text: str) -> None:
    """JSON is XEP-0335's element when XML can hold it; everything else is base64 with its content type."""
    element = ET.fromstring(payloads.read_element(codec.pack(envelope)))
    assert (element.tag, element.text) == (tag, text)
    assert element.get("type") in {None, envelope.content_type}


@pytest.mark.parametrize(
    ("inside", "kept"),
    [
        (f'<json xmlns=\'{ns.JSON}\'>{{"a": "é"}}</json>', Envelope('{"a": "é"}'.encode(), "application/json")),
        (f"<data xmlns='{ns.STANZAQ}' type='image/png'>AP8=</data>", Envelope(b"\x00\xff", "image/png")),
        (f"<data xmlns='{ns.STANZAQ}'>\n  A\tP8=\n</data>", Envelope(b"\x00\xff", "application/octet-stream")),
        (f"<data xmlns='{ns.STANZAQ}' type='text/plain'/>", Envelope(b"", "text/plain")),
        (f"<json xmlns='{ns.JSON}' a='b'>1</json>", Envelope(f"<json xmlns='{ns.JSON}' a='b'>1</json>".encode())),
    ],
)
def test_takes_what_it_shows(inside: str, kept: Envelope) -> None:
    """Issue 10: JSON (XEP-0335) and bytes are accepted in the shown form, and are the same at other doors."""
    record, size = payloads.read_payload(_item(inside))
    assert codec.unpack(record) == kept and size == len(kept.body)
    again, _size = payloads.read_payload(_item(payloads.read_element(record).decode()))
    assert again == record


def test_a_corrupt_record_is_not_shown() -> None:
    """An unreadable record is a fault, never a broken stanza."""
    with pytest.raises(CorruptRecord):
        payloads.read_element(b"garbage")

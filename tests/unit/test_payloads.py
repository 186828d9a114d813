"""The type of a payload: the one rule of all doors."""

import gc
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import payloads
from broker.model.items.items import XML, Envelope
from broker.model.problems import MalformedRequest, Problem

IN_X = b"<a xmlns='urn:x'>"


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", 'multipart/mixed; boundary="a b"', "application/vnd.x+json", XML, "text/xml"]
)
def test_types_stay(content_type: str) -> None:
    """Issue 10: a type comes back as given, whatever is in the payload; without a type it is bytes."""
    for body in (b"x", b"<a/>", b"<a xmlns='urn:x'/>", b""):
        kept = payloads.make_envelope(body, content_type, {"h": "v"})
        assert (payloads.kind(kept), kept.body) == (content_type or payloads.BYTES, body)
        assert payloads.shown_headers(kept) == {"h": "v"}


def _said(root: ET.Element) -> list[tuple[str, dict[str, str], str | None]]:
    return [(each.tag, each.attrib, each.text) for each in root.iter()]


@pytest.mark.parametrize("content_type", [XML, "Application/XML", "text/xml; charset=UTF-8", "application/atom+xml"])
@pytest.mark.parametrize(
    ("document", "element"),
    [
        ("<a xmlns='urn:x'>é<b/></a>", "<a xmlns='urn:x'>é<b/></a>"),
        ("<?xml version='1.0' encoding='utf-8'?>\r\n<a xmlns='urn:x'/>\n", "<a xmlns='urn:x'/>"),
        ("\ufeff<a xmlns='urn:x'><b xmlns=''/></a>", "<a xmlns='urn:x'><b xmlns=''/></a>"),
        ("<a b='c'><d/></a>", "<a xmlns='' b='c'><d/></a>"),
        ("<a/>", "<a xmlns=''/>"),
        ("<?xml version='1.0'?><a/>", "<a xmlns=''/>"),
        ("<x:a xmlns:x='urn:x'><b/></x:a>", "<x:a xmlns='' xmlns:x='urn:x'><b/></x:a>"),
        ("<x:a xmlns:x='urn:x'/>", "<x:a xmlns:x='urn:x'/>"),
        (
            "<x:a xmlns:x='urn:x'><b/><c xmlns='urn:y'/></x:a>",
            "<x:a xmlns='' xmlns:x='urn:x'><b/><c xmlns='urn:y'/></x:a>",
        ),
        ("<a><b xmlns='urn:y'/></a>", "<a xmlns=''><b xmlns='urn:y'/></a>"),
    ],
)
def test_elements(content_type: str, document: str, element: str) -> None:
    """Issue 10: XML of every such type is its element, also inside another document."""
    kept = payloads.make_envelope(document.encode(), content_type, {})
    assert payloads.element(kept) == element.encode()
    there = ET.fromstring(f"<item xmlns='urn:other'>{element}</item>")[0]
    assert _said(there) == _said(ET.fromstring(document.encode()))


@pytest.mark.parametrize(
    ("content_type", "document"),
    [
        ("text/plain", b"<a xmlns='urn:x'/>"),
        ("text/xml; charset=iso-8859-1", b"<a xmlns='urn:x'/>"),
        (XML, b"<?xml version='1.0' encoding='iso-8859-1'?><a xmlns='urn:x'/>"),
        (XML, b""),
        (XML, IN_X),
        (XML, b"<a xmlns='urn:x'/><b xmlns='urn:x'/>"),
        (XML, b"<a xmlns='urn:x'/>text"),
        (XML, b"<y:a xmlns='urn:x'/>"),
        (XML, b"<a xmlns='urn:x'>\xff</a>"),
        (XML, b"<a xmlns='urn:x'>&b;</a>"),
        (XML, b"<!DOCTYPE a [<!ENTITY b 'bbbb'>]><a xmlns='urn:x'>&b;</a>"),
        (XML, b"<a xmlns='urn:x'><!-- c --></a>"),
        (XML, b"<?p i?><a xmlns='urn:x'/>"),
        (XML, "<a xmlns='urn:x'/>".encode("utf-16")),
        (XML, IN_X * 251 + b"</a>" * 251),
        (XML, IN_X * 2 + b"<b/>" + IN_X * 249 + b"</a>" * 251),
        (XML, IN_X + b"<b/>" * 20_000 + b"</a>"),
    ],
)
def test_what_is_no_element(content_type: str, document: bytes) -> None:
    """Issue 10: XML that no stanza could hold, or that is not well-formed, stays bytes of its type."""
    kept = payloads.make_envelope(document, content_type, {})
    assert payloads.element(kept) is None and payloads.kind(kept) == content_type


@pytest.mark.parametrize(
    "document",
    [IN_X * 250 + b"</a>" * 250, IN_X + b"<b/>" * 19_999 + b"</a>", IN_X + b"<b/>" + IN_X * 249 + b"</a>" * 250],
)
def test_the_largest_elements(document: bytes) -> None:
    """Q31: an element of 250 levels and 20 000 elements still fits a stanza."""
    assert payloads.element(payloads.make_envelope(document, XML, {})) == document


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        ("application/json", True),
        ("Application/JSON ; charset=utf-8", True),
        ("application/json;profile=a;b=c", True),
        ("application/vnd.x+json", False),
        ("text/plain;application/json", False),
    ],
)
def test_json(content_type: str, json: bool) -> None:  # noqa: FBT001
    """A JSON type is recognised with any parameters."""
    assert payloads.is_json(payloads.make_envelope(b"{}", content_type, {})) is json


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=latin-1"])
@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b" ",
            b"NaN",
            b'{"a": [NaN]}',
            b"Infinity",
            b"-Infinity",
            b"{} {}",
            b"{}\0",
            b"{",
            b"[1,]",
            b"{'a': 1}",
            b"nul",
        ),
        *(b'"\xff"', b'{"\xc0\x80": 1}', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\n"', b"01", b"1 // one"),
        *(b"\xef\xbb\xbf{}", '"a"'.encode("utf-16"), b"[" * 100_000),
    ],
)
def test_what_is_no_json(content_type: str, body: bytes) -> None:
    """Issue 48.8: a payload that is called JSON and is none is refused at every door, for its envelope is made here."""
    with pytest.raises(MalformedRequest, match="the payload is not JSON: ") as refused:
        payloads.make_envelope(body, content_type, {})
    assert refused.value.problem is Problem.PAYLOAD_INVALID and "\n" not in refused.value.detail
    for other in ("", "text/plain", "application/vnd.x+json"):
        assert payloads.make_envelope(body, other, {}).body == body


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        " [ 1.0 ]\r\n",
        "1e400",
        "1" * 5_000,
        "0.10000000000000000000001",
        '"é\\ud83d\\ude00"',
        "-0",
        "null",
    ],
)
def test_json_stays_as_it_is(text: str) -> None:
    """RFC 8259: JSON is stored byte for byte, with repeated names, long numbers and blanks."""
    assert payloads.make_envelope(text.encode(), "application/json", {}) == Envelope(text.encode(), "application/json")


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("a/b", True),
        (f"a/{'b' * 253}", True),
        (f"a/{'b' * 254}", False),
        ("a", False),
        ("a/b\r\nc: d", False),
        ("", False),
    ],
)
def test_is_type(text: str, one: bool) -> None:  # noqa: FBT001
    """RFC 9110 §8.3.1: a media type has two names, and here at most 255 characters."""
    assert payloads.is_type(text) is one


@given(st.binary(max_size=40) | st.text("<>/a&;='\"x:mlns ?!-\n[]", max_size=40).map(str.encode))
def test_any_document(body: bytes) -> None:
    """Any text of an XML type is an element that fits a stanza, or is none."""
    found = payloads.element(payloads.make_envelope(body, XML, {}))
    assert found is None or len(ET.fromstring(b"<m xmlns='jabber:client'>%b</m>" % found)) == 1


def test_of_the_version_before() -> None:
    """XML that an earlier version kept as bytes stays so, and is shown without its mark."""
    before = Envelope(b"<a/>", f"{XML};")
    assert (payloads.kind(before), payloads.element(before)) == (XML, None)


@pytest.mark.parametrize("body", [b"<a>text</a>", b"<a>", b"<!DOCTYPE a><a/>"])
def test_nothing_stays_of_its_parser(body: bytes) -> None:
    """Guarantee 6: a payload's parser, with its copy of the text, goes at once and not when Python collects garbage."""

    def parsers() -> int:
        return sum(type(each).__name__ == "xmlparser" for each in gc.get_objects())

    gc.disable()
    try:
        before = parsers()
        payloads.make_envelope(body, XML, {})
        assert parsers() == before
    finally:
        gc.enable()

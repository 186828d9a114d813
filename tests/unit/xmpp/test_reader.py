"""A stream's bytes as elements: no client's bytes end the stream of a frontend."""

from itertools import pairwise
from xml.etree import ElementTree as ET
from xml.parsers import expat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.reader import _INSIDE_ONLY, Broken, Closed, Opened, Reader, Stanza
from frontends.xmpp.xml.text import DEPTH, serialise

_HEADER = f"<?xml version='1.0'?><stream:stream xmlns='{ns.COMPONENT}' xmlns:stream='{ns.STREAM}' id='s1'>".encode()
_IQ = "<iq type='set' id='i1' from='a@b/c' to='q'>{}</iq>"
_PLAIN = _IQ.format(
    "<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='n'><item xml:lang='en'>"
    "<p:a xmlns:p='urn:x' p:k='1' k='2'>\u00e9 &amp; <![CDATA[<b>]]><c xmlns=''/>tail</p:a></item></publish></pubsub>"
)


def _reader() -> Reader:
    reader = Reader()
    (opened,) = reader.feed(_HEADER)
    assert isinstance(opened, Opened) and opened.element.get("id") == "s1"
    return reader


def _stanza(text: str) -> Stanza:
    (stanza,) = _reader().feed(text.encode())
    assert isinstance(stanza, Stanza)
    return stanza


def test_reads_what_elementtree_reads() -> None:
    """For bytes that both accept, the elements are the same as those of ElementTree's own parser."""
    ours = _stanza(_PLAIN)
    (theirs,) = ET.fromstring(_HEADER + _PLAIN.encode() + b"</stream:stream>")
    assert ours.fault is None
    assert ET.canonicalize(ET.tostring(ours.element)) == ET.canonicalize(ET.tostring(theirs))


@given(st.lists(st.integers(0, 400), max_size=5))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    """However the network cuts the bytes, the stanzas are the same."""
    data = _PLAIN.encode() * 2 + b" " + b"</stream:stream>"
    reader = _reader()
    events = []
    edges = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(edges):
        events += reader.feed(data[start:end])
    assert [type(event) for event in events] == [Stanza, Stanza, Closed]
    assert [len(event.element[0]) for event in events if isinstance(event, Stanza)] == [1, 1]


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<p:a/>", Problem.BAD_REQUEST),
        ("<a p:k='1'/>", Problem.BAD_REQUEST),
        ("<a xmlns:p='urn:x'/><p:b/>", Problem.BAD_REQUEST),
        ("<:a/>", Problem.BAD_REQUEST),
        ("<a:/>", Problem.BAD_REQUEST),
        ("<p:q:a xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:1 xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:\u30fca xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:a xmlns:p=''/>", Problem.BAD_REQUEST),
        ("<a " + " ".join(f"xmlns:p{n}='urn:{n}'" for n in range(100)) + "/>", Problem.BAD_REQUEST),
        (f"<a xmlns='{'u' * 1_024}'/>", Problem.BAD_REQUEST),
        (f"<a xmlns:p='{'u' * 1_024}'/>", Problem.BAD_REQUEST),
        (f"<a>{'<b/>' * 25_000}</a>", Problem.PAYLOAD_INVALID),
        (f"<a>{'<b>' * 1_000_000}x{'</b>' * 1_000_000}</a>", Problem.PAYLOAD_INVALID),
        ("<a>" * DEPTH + "<p:b/>" + "</a>" * DEPTH, Problem.BAD_REQUEST),
    ],
)
def test_a_faulty_stanza_is_one_fault(inside: str, problem: Problem) -> None:
    """A meaningless stanza that a server lets through, a million levels too, is an error for its sender.

    The stanza's addresses are kept for the answer, and the next stanza is read normally.
    """
    reader = _reader()
    faulty, sound = reader.feed((_IQ.format(f"before{inside}after") + _PLAIN).encode())
    assert isinstance(faulty, Stanza) and isinstance(sound, Stanza)
    assert faulty.fault is not None and faulty.fault.problem is problem
    # Its frames would keep the bytes read.
    assert faulty.fault.__traceback__ is None
    assert (faulty.element.tag, faulty.element.get("id"), len(faulty.element)) == (f"{{{ns.COMPONENT}}}iq", "i1", 0)
    assert sound.fault is None
    assert sound.element[0].tag == f"{{{ns.PUBSUB}}}pubsub"


def test_a_name_behind_a_prefix_is_one_by_itself() -> None:
    """A name accepted behind a prefix can be written without it: checked for each letter there is against expat itself."""

    def well_formed(name: str) -> bool:
        try:
            expat.ParserCreate().Parse(f"<{name}/>".encode(), True)  # noqa: FBT003  (expat's)
        except expat.ExpatError:
            return False
        return True

    letters = [chr(code) for code in range(0x80, 0x10000) if chr(code).isalpha()]
    wrong = {letter for letter in letters if well_formed(f"p{letter}") and not well_formed(letter)}
    assert wrong == _INSIDE_ONLY


def test_a_fault_in_the_stanza_s_own_tag() -> None:
    """An undeclared prefix on the IQ itself is answered too."""
    stanza = _stanza("<iq p:k='1' type='get' id='i1' from='a@b'/>")
    assert stanza.fault is not None
    assert (stanza.element.tag, stanza.element.get("id")) == (f"{{{ns.COMPONENT}}}iq", "i1")


def _kept(payload: str, around: str = "") -> str:
    """Return how the payload of a stanza is written; `around` are attributes of the elements around it."""
    stanza = _stanza(_IQ.format(f"<pubsub xmlns='{ns.PUBSUB}' {around}><item>{payload}</item></pubsub>"))
    assert stanza.fault is None
    written = serialise(stanza.element[0][0][0]).decode()
    # Other parsers take it.
    ET.fromstring(written)
    return written


_XS, _XSI = "xmlns:xs='urn:xs'", "xmlns:xsi='urn:xsi'"


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (
            f"<a xmlns='urn:x' {_XS} {_XSI}><b xsi:type='xs:int'>1</b></a>",
            f"<a xmlns='urn:x'><b xmlns:n0='urn:xsi' n0:type='xs:int' {_XS}>1</b></a>",
        ),
        (f"<a xmlns='urn:x' {_XS} k='//xs:a[@xs:b]'/>", f"<a xmlns='urn:x' k='//xs:a[@xs:b]' {_XS}/>"),
        (f"<a xmlns='urn:x' {_XS}>xs:int</a>", f"<a xmlns='urn:x' {_XS}>xs:int</a>"),
        (f"<a xmlns='urn:x' {_XS}><b/>and xs:int</a>", f"<a xmlns='urn:x' {_XS}><b/>and xs:int</a>"),
        # The nearest declaration counts.
        (
            f"<a xmlns='urn:x' {_XS}><b xmlns:xs='urn:y'>xs:int</b></a>",
            "<a xmlns='urn:x'><b xmlns:xs='urn:y'>xs:int</b></a>",
        ),
        ("<a xmlns='urn:x' xmlns:stream='urn:s'>stream:a</a>", "<a xmlns='urn:x' xmlns:stream='urn:s'>stream:a</a>"),
        # It does not meet a declaration that the writer makes.
        (
            "<a xmlns='urn:x' xmlns:n0='urn:y' n0:k='n0:v'/>",
            "<a xmlns='urn:x' xmlns:n0_='urn:y' n0_:k='n0:v' xmlns:n0='urn:y'/>",
        ),
        # What nothing uses, and what is no prefix here or may not be one, is not kept.
        (f"<a xmlns='urn:x' {_XS}>12:30 xsd:int .xs:int</a>", "<a xmlns='urn:x'>12:30 xsd:int .xs:int</a>"),
        (f"<a xmlns='urn:x' {_XS}>stream:a xml:b</a>", "<a xmlns='urn:x'>stream:a xml:b</a>"),
        ("<a xmlns='urn:x' xmlns:xml='urn:y'>xml:a</a>", "<a xmlns='urn:x'>xml:a</a>"),
        ("<a xmlns='urn:x' xmlns:1='urn:y'>1:a</a>", "<a xmlns='urn:x'>1:a</a>"),
        ("<a xmlns='urn:x' xmlns:p=''>p:a</a>", "<a xmlns='urn:x'>p:a</a>"),
        (f"<a xmlns='urn:x' xmlns:p='{ns.XMLNS}'>p:a</a>", "<a xmlns='urn:x'>p:a</a>"),
    ],
)
def test_declarations_that_values_use(payload: str, written: str) -> None:
    """A prefix in a value or a text means its declaration, which comes with the element."""
    assert _kept(payload) == written


def test_declarations_around_a_payload() -> None:
    """A declaration may be on any element around."""
    assert _kept("<a xmlns='urn:x'>xs:int</a>", _XS) == f"<a xmlns='urn:x' {_XS}>xs:int</a>"


def test_bombs_of_declarations() -> None:
    """A stanza as long as servers take takes neither much memory nor long, whatever it declares and uses."""
    namespace, words = "u" * 1_023, "a:" * 120_000
    _kept(f"<a xmlns='{namespace}' xmlns:a='{namespace}'>{words}</a>")
    _kept(f"<a xmlns='urn:x' xmlns:a='urn:y'>{'a' * 250_000}:</a>")
    for inside in ("<a:b/>", "<b>a:</b>", "<b a:k=''/>"):
        stanza = _stanza(_IQ.format(f"<p xmlns='urn:x' xmlns:a='{namespace}'>{inside * 20_000}</p>"))
        with pytest.raises(MalformedRequest) as caught:
            serialise(stanza.element[0])
        assert caught.value.problem is Problem.PAYLOAD_TOO_BIG


def test_a_namespace_may_have_braces() -> None:
    """Any text is a namespace, also ElementTree's own spelling of names."""
    assert _stanza(_IQ.format("<a xmlns='urn:}{x}'/>")).element[0].tag == "{urn:}{x}}a"


@pytest.mark.parametrize(
    "data",
    [
        "<iq><a></iq>",
        "<iq>&bomb;</iq>",
        "<iq>\x01</iq>",
        "<iq k='1' k='2'/>",
        "<!DOCTYPE iq [<!ENTITY b 'x'>]><iq>&b;</iq>",
    ],
)
def test_what_is_not_xml_ends_the_stream(data: str) -> None:
    """A well-formedness fault is final; no entity and no document type is ever taken in (RFC 6120 §11.1)."""
    sound, broken = _reader().feed((_PLAIN + data).encode())
    assert isinstance(sound, Stanza) and isinstance(broken, Broken)


def test_a_document_type_before_the_stream_ends_it() -> None:
    """Nor may a document type precede the stream, where XML itself would let it stand."""
    (broken,) = Reader().feed(b"<!DOCTYPE x [<!ENTITY b 'boom'>]>" + _HEADER)
    assert isinstance(broken, Broken)


@pytest.mark.parametrize("header", ["<p:stream>", "<stream p:k='1'>"])
def test_a_faulty_header_ends_the_stream(header: str) -> None:
    """A meaningless header is the server's fault, and final."""
    (broken,) = Reader().feed(header.encode())
    assert isinstance(broken, Broken)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No bytes raise anything."""
    for event in _reader().feed(data):
        assert isinstance(event, Stanza | Closed | Broken)

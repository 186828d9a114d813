"""Stanzas as large as servers let through, as costly as possible: the loop keeps turning all the same."""

from collections.abc import Callable
from typing import Final

import pytest

from frontends.xmpp import namespaces as ns
from tests.fuzz.conftest import MOST_BYTES, Stage
from tests.fuzz.frontend import DOMAIN
from tests.fuzz.scene import ENGINE, ITEM, NODE, WORKER, iq, pubsub

_TEXTS: Final = {
    "letters": "x",
    "quotes": '"',
    "references": "&#10;",
    "beyond the plane": "\U0001f41d",
    "digits": "9",
    "at signs": "@",
    "slashes": "/",
    "colons": ":",
    "spaces": " ",
}
_MANY: Final = 10_000
_FULL: Final = MOST_BYTES - 2_000


def _publish(payload: str, item: str = "") -> bytes:
    return iq(pubsub(f"<publish node='{NODE}'><item{item}>{payload}</item></publish>"), ENGINE)


def _unlock(attributes: str, hint: str = "") -> bytes:
    unlock = (
        f"<unlock xmlns='{ns.QUEUEING}' node='{NODE}'><item {attributes}/><hint xmlns='{ns.STANZAQ}' {hint}/></unlock>"
    )
    return iq(pubsub(unlock))


def _form(field: str) -> str:
    return f"<x xmlns='{ns.FORM}' type='submit'>{field}</x>"


def _credit(field: str) -> bytes:
    return iq(pubsub(f"<subscribe node='{NODE}' jid='{WORKER}'/><options>{_form(field)}</options>"))


def _configure(field: str) -> bytes:
    return iq(pubsub(f"<configure node='{NODE}'>{_form(field)}</configure>", ns.PUBSUB_OWNER), ENGINE)


def _affiliations(entries: str) -> bytes:
    return iq(pubsub(f"<affiliations node='{NODE}'>{entries}</affiliations>", ns.PUBSUB_OWNER), ENGINE)


_PLACES: Final[dict[str, Callable[[str], bytes]]] = {
    "an id": lambda text: iq("<a xmlns='urn:x'/>", request=text),
    "an id that is echoed": lambda text: iq(pubsub(f"<retract node='{NODE}'><item/></retract>"), request=text),
    "a sender": lambda text: iq(pubsub(f"<retract node='{NODE}'><item id='{ITEM}'/></retract>"), f"a@b/{text}"),
    "a node": lambda text: iq(pubsub(f"<retract node='{text}'><item id='i'/></retract>")),
    "an item": lambda text: iq(pubsub(f"<retract node='{NODE}'><item id='{text}'/></retract>")),
    "a token": lambda text: _unlock(f"id='{ITEM}' token='{text}'"),
    "a reason": lambda text: _unlock(f"id='{ITEM}'", f"reason='{text}'"),
    "a delay": lambda text: _unlock(f"id='{ITEM}'", f"delay='{text}'"),
    "a JID": lambda text: iq(pubsub(f"<unsubscribe node='{NODE}' jid='{WORKER}{text}'/>")),
    "a JID alone": lambda text: iq(pubsub(f"<subscribe node='{NODE}' jid='{text}'/>")),
    "a subid": lambda text: iq(pubsub(f"<unsubscribe node='{NODE}' jid='{WORKER}' subid='{text}'/>")),
    "a limit": lambda text: iq(pubsub(f"<items node='{NODE}' max_items='{text}'/>"), ENGINE, "get"),
    "a credit": lambda text: _credit(f"<field var='pubsub#queue_requests'><value>{text}</value></field>"),
    "a field's name": lambda text: _configure(f"<field var='{text}'/>"),
    "a title": lambda text: _configure(f"<field var='pubsub#title'><value>{text}</value></field>"),
    "a number": lambda text: _configure(f"<field var='pubsub#max_items'><value>{text}</value></field>"),
    "an affiliation": lambda text: _affiliations(f"<affiliation jid='a@b' affiliation='{text}'/>"),
    "an affiliate": lambda text: _affiliations(f"<affiliation jid='{text}' affiliation='member'/>"),
    "a payload": lambda text: _publish(f"<a xmlns='urn:x'>{text}</a>"),
    "a payload's attribute": lambda text: _publish(f"<a xmlns='urn:x' k='{text}'/>"),
    "a payload's namespace": lambda text: _publish(f"<a xmlns='{text}'/>"),
    "ink about a payload": lambda text: _publish(f"{text}<a/>{text}"),
    "a presence's addresses": lambda text: f"<presence type='probe' from='{WORKER}' to='{text}'/>".encode(),
    "a bounce": lambda text: f"<message type='error' from='{WORKER}' to='{DOMAIN}' id='sq:1:1-1:{text}'/>".encode(),
    "a bounce's token": lambda text: f"<message type='error' from='{WORKER}' to='{DOMAIN}' id='sq:{text}'/>".encode(),
    "a name": lambda text: iq(f"<a xmlns='{text}'/>"),
}


def _times(pattern: str) -> str:
    """Repeat a pattern until a stanza is full; its number replaces `#`."""
    count = min(_MANY, _FULL // (len(pattern) + 3))
    return "".join(pattern.replace("#", str(number)) for number in range(count))


def _items(request: str, item: str) -> str:
    return pubsub(f"<{request} node='{NODE}'>{_times(item)}</{request}>")


_CROWDS: Final = {
    "items to retract": iq(_items("retract", "<item id='#'/>")),
    "items to browse": iq(_items("items", "<item id='#'/>"), ENGINE, "get"),
    "items to publish": iq(_items("publish", "<item><a/></item>"), ENGINE),
    "requests": iq(pubsub(_times("<create/>"))),
    "children": iq(_times("<a/>")),
    "fields": _configure(_times("<field var='#'/>")),
    "fields that are taken": _configure(_times("<field var='pubsub#title'/>")),
    "values": _credit("<field var='pubsub#queue_requests'>" + _times("<value>5</value>") + "</field>"),
    "affiliations": _affiliations(_times("<affiliation jid='#@b' affiliation='member'/>")),
    "hints": iq(_items("retract", f"<hint xmlns='{ns.STANZAQ}'/>")),
    "attributes": _publish("<a" + _times(" k#='1'") + "/>"),
    "attributes with a prefix": _publish("<a xmlns:p='urn:x'" + _times(" p:k#='1'") + "/>"),
    "prefixes": _publish("<a" + _times(" xmlns:p#='urn:#'") + "/>"),
    "prefixes anew": _publish("<a>" + _times("<a xmlns:p='urn:#'/>") + "</a>"),
    "prefixes in a crowd": _publish(
        "<a " + " ".join(f"xmlns:p{n}='urn:x'" for n in range(60)) + ">" + _times("<a xmlns:q='urn:#'/>") + "</a>"
    ),
    "namespaces": _publish("<a>" + _times("<a xmlns='urn:#'/>") + "</a>"),
    "elements": _publish("<a xmlns='urn:x'>" + _times("<a/>") + "</a>"),
    "as many elements as a stanza holds": _publish("<a xmlns='urn:x'>" + "<a/>" * (_FULL // 4) + "</a>"),
    "levels": _publish("<a>" * (_FULL // 7) + "</a>" * (_FULL // 7)),
    "levels that are allowed": _publish("<a>" * 250 + "</a>" * 250),
    "levels of the iq": iq("<a>" * (_FULL // 7) + "</a>" * (_FULL // 7)),
    "comments": _publish("<a>" + "<!---->" * (_FULL // 7) + "</a>"),
    "references": _publish("<a xmlns='urn:x'>" + "&amp;" * (_FULL // 5) + "</a>"),
    "pieces of text": _publish("<a xmlns='urn:x'>" + "<![CDATA[<]]>" * (_FULL // 13) + "</a>"),
}


@pytest.mark.parametrize("text", _TEXTS)
@pytest.mark.parametrize("place", _PLACES)
def test_a_long_text_does_not_keep_the_loop(place: str, text: str, stage: Stage) -> None:
    """A text that fills the stanza, wherever it is, is handled or refused in short turns."""
    piece = _TEXTS[text]
    data = _PLACES[place](piece * ((MOST_BYTES - 2_000) // len(piece.encode())))
    assert stage.longest_turn(data) < 1


@pytest.mark.parametrize("crowd", _CROWDS)
def test_a_crowd_does_not_keep_the_loop(crowd: str, stage: Stage) -> None:
    """Thousands of anything that may be repeated are handled or refused in short turns."""
    assert stage.longest_turn(_CROWDS[crowd]) < 1

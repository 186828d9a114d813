"""The examples of docs/protocol.md, from the first to the last, by a server that sends them to a real frontend.

Each request is answered with a result, and each shown stanza of the service is received: with the same elements and
attributes, and the same values where they are fixed. Tokens, offsets, subids and msgIds differ each time, so requests
use those received last. What the page omits between two examples is prepared.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from tests.journeys.client import OWNER, PUBSUB, submitted
from tests.journeys.fake import FakeServer, condition
from tests.journeys.service import Frontend

DOMAIN: Final = "queue.example.org"
ENGINE, WORKER, OTHER = "engine@example.org/1", "worker@example.org/a", "other@example.org/b"
ITEM: Final = "ae890ac52d0df67ed7cfdf51b644e901"
CHANGING: Final = frozenset(
    {
        *(
            "id",
            "item",
            "token",
            "attempt",
            "expires",
            "published",
            "subid",
            "fence",
            "epoch",
            "credit",
            "msgId",
            "partition",
        ),
        *("offset", "timestamp", "earliest", "latest", "next", "more", "publisher", "to"),
    }
)
"""Attributes whose values differ each time."""

EXAMPLES: Final = re.findall(
    r"```xml\n(.*?)```", (Path(__file__).parents[2] / "docs/protocol.md").read_text(), re.DOTALL
)


def _name(text: str) -> str:
    return text.replace("{jabber:client}", "{jabber:component:accept}")


def shown(example: Element, heard: Element) -> bool:
    """Return whether a received stanza has all that an example shows."""
    return (
        _name(example.tag) == _name(heard.tag)
        and all(
            name in heard.attrib and (name.rpartition("}")[2] in CHANGING or heard.get(name) == value)
            for name, value in example.attrib.items()
        )
        and all(any(shown(child, each) for each in heard) for child in example)
    )


def test_what_is_shown() -> None:
    """The comparison itself: fixed values count, there may be more elements and not fewer."""
    example = ET.fromstring("<a id='1' reason='x'><b/></a>")
    assert shown(example, ET.fromstring("<a id='2' reason='x' more='y'><c/><b/></a>"))
    for other in ("<a id='1' reason='y'><b/></a>", "<a id='1' reason='x'/>", "<a reason='x'><b/></a>", "<c/>"):
        assert not shown(example, ET.fromstring(other))


class Play:
    """Sends requests of the page, and what has to come before them."""

    def __init__(self, server: FakeServer) -> None:
        """Use this server; nothing was received yet."""
        self._server = server
        self._numbers = iter(range(10**6))
        self._since = 0
        self.last = Element("nothing")

    def say(self, text: str) -> None:
        """Send a stanza, with the values received last for those that differ."""
        self._server.send(self._fresh(text))

    def ask(self, text: str) -> Element:
        """Send a request, and return its answer, which is a result."""
        number = f"ask{next(self._numbers)}"
        before = len(self._server.heard)
        self.say(re.sub(r" id=.\w+.", f" id='{number}'", text, count=1))
        answer = self._server.until_answer(number, before)[-1]
        assert condition(answer) == "", (text, ET.tostring(answer))
        self.last = answer
        return answer

    def hear(self, example: Element) -> None:
        """Wait for a stanza that an example shows, since the preparation for it began."""

        def found() -> list[Element]:
            return [each for each in self._server.heard[self._since :] if shown(example, each)]

        try:
            self._server._until(lambda: bool(found()))
        except TimeoutError:
            said = b"\n".join(ET.tostring(each) for each in self._server.heard[self._since :]).decode()
            pytest.fail(f"never heard:\n{ET.tostring(example).decode()}\nbut:\n{said}")
        self.last = found()[-1]

    def prepare(self, steps: Callable[["Play"], None]) -> None:
        """Do what comes before an example; later stanzas may be the shown ones."""
        self._since = len(self._server.heard)
        steps(self)

    # The steps.

    def pubsub(self, inside: str, sender: str = ENGINE, space: str = PUBSUB, kind: str = "set") -> Element:
        """Send a request that the page does not show."""
        return self.ask(
            f"<iq type='{kind}' id='x' from='{sender}' to='{DOMAIN}'><pubsub xmlns='{space}'>{inside}</pubsub></iq>"
        )

    def node(self, name: str = "jobs", **options: str) -> None:
        """Create a node again."""
        before = len(self._server.heard)
        gone = f"<pubsub xmlns='{OWNER}'><delete node='{name}'/></pubsub>"
        number = f"gone{next(self._numbers)}"
        self.say(f"<iq type='set' id='{number}' from='{ENGINE}' to='{DOMAIN}'>{gone}</iq>")
        self._server.until_answer(number, before)
        fields = {key.replace("__", "#"): value for key, value in {"pubsub__publish_model": "open", **options}.items()}
        form = submitted(f"{PUBSUB}#node_config", fields)
        self.pubsub(f"<create node='{name}'/><configure>{form}</configure>")

    def subscribe(self, sender: str = WORKER, node: str = "jobs", **options: str) -> None:
        """Subscribe with these options."""
        fields = {key.replace("__", "#"): value for key, value in {"pubsub__queue_requests": "5", **options}.items()}
        form = submitted(f"{PUBSUB}#subscribe_options", fields)
        self.pubsub(f"<subscribe node='{node}' jid='{sender}'/><options>{form}</options>", sender)

    def publish(
        self, node: str = "jobs", item: str = "", payload: str = "<job xmlns='urn:example:jobs' kind='resize'/>"
    ) -> None:
        """Publish an item."""
        name = f" id='{item}'" if item else ""
        self.pubsub(f"<publish node='{node}'><item{name}>{payload}</item></publish>")

    def held(self) -> None:
        """Let the worker hold the item of the page."""
        self.node()
        self.subscribe()
        self.publish(item=ITEM)
        self.hear(
            ET.fromstring(f"<message xmlns='jabber:client'><lock xmlns='urn:stanzaq:0' item='{ITEM}'/></message>")
        )

    def _fresh(self, text: str) -> str:
        """Insert the values received last: tokens, offsets, subids, and ids of requests."""
        heard = [each for stanza in self._server.heard for each in stanza.iter()]

        def last(name: str) -> str:
            return next((found for each in reversed(heard) if (found := each.get(name))), "1")

        text = re.sub(r" token=.\d+.", f" token='{last('token')}'", text)
        text = re.sub(r"0{6}\d{13,}[0-9a-f]{20,}", last("offset"), text)
        text = re.sub(r" subid=.\d+.", f" subid='{last('subid')}'", text)
        if re.search(r" type=.result.", text):
            text = re.sub(r" id=([\"']).*?\1", f" id='{self.last.get('id')}'", text, count=1)
            text = re.sub(r" msgId=([\"']).*?\1", f" msgId='{last('msgId')}'", text)
        return text


def _two_held(play: Play) -> None:
    play.held()
    play.publish(item="resize-7")
    play.hear(ET.fromstring("<message xmlns='jabber:client'><lock xmlns='urn:stanzaq:0' item='resize-7'/></message>"))


def _to_cancel(play: Play) -> None:
    play.held()
    play.publish(item="resize-8")
    play.hear(ET.fromstring("<message xmlns='jabber:client'><lock xmlns='urn:stanzaq:0' item='resize-8'/></message>"))


def _to_wait_for(play: Play) -> None:
    for node, items in {"jobs": ("resize-7", "resize-8"), "scans": ("page 1",)}.items():
        play.node(node)
        for item in items:
            play.publish(node, item)


def _to_answer(play: Play) -> None:
    play.node(stanzaq__result_seconds="60")
    play.subscribe()


def _acknowledged(play: Play) -> None:
    play.node()
    play.subscribe(stanzaq__qos="acknowledged")
    play.publish(item=ITEM)


def _assured(play: Play) -> None:
    play.node()
    play.subscribe(stanzaq__qos="assured")
    play.publish()


def _together(play: Play) -> None:
    play.node()
    play.subscribe(stanzaq__batch="20")
    items = "<item><job xmlns='urn:example:jobs' kind='resize'/></item>" * 3
    batch = f"<publish xmlns='urn:stanzaq:0' node='jobs'>{items}</publish>"
    play.ask(f"<iq type='set' id='x' from='{ENGINE}' to='{DOMAIN}'>{batch}</iq>")


def _stolen(play: Play) -> None:
    play.subscribe(
        OTHER, pubsub__queue_requests="1", stanzaq__group="resizers", stanzaq__partition="0", stanzaq__epoch="9"
    )


def _several(play: Play) -> None:
    play.node(stanzaq__multi_subscribe="1")
    play.subscribe()
    play.subscribe()
    play.publish()


def _removed(play: Play) -> None:
    entry = f"<subscription jid='{WORKER}' subscription='none'/>"
    play.pubsub(f"<subscriptions node='jobs'>{entry}</subscriptions>", space=OWNER)


def _log(play: Play) -> None:
    play.node("readings", **{"{urn:xmpp:pubsub:queueing:0}enabled": "0"})
    play.publish("readings", payload="<reading xmlns='urn:example:meter'>23.3</reading>")
    reader = "from='reader@example.org/a'"
    replay = "<replay xmlns='urn:stanzaq:0' node='readings'/>"
    play.ask(f"<iq type='get' id='x' {reader} to='{DOMAIN}'>{replay}</iq>")


def _reading(play: Play) -> None:
    play.publish("readings", payload="<reading xmlns='urn:example:meter'>23.4</reading>")


def _asked(play: Play) -> None:
    play.node(pubsub__access_model="authorize")
    play.subscribe()


def _waiting(play: Play) -> None:
    play.node(pubsub__access_model="authorize")
    play.subscribe()
    play.subscribe(OTHER)


def _through(play: Play) -> None:
    play.publish("computers", ITEM, "<job xmlns='urn:example:jobs' kind='print'>ulysses</job>")


def _moved(play: Play) -> None:
    play.subscribe(node="uk/books", pubsub__subscription_type="all", pubsub__subscription_depth="all")
    for what in ("dissociate", "associate"):
        play.pubsub(f"<collection node='uk/books'><{what} node='computers'/></collection>", space=OWNER)


PREPARED: Final[dict[str, Callable[[Play], None]]] = {
    **dict.fromkeys(("r1", "u1", "u2", "n1", "l1", "bs1"), Play.held),
    "bp1": lambda play: play.node(),
    "sc1": lambda play: play.node(),
    "bc1": _to_cancel,
    "af1": _to_wait_for,
    "pr1": _to_answer,
    "br1": _two_held,
    "sq:a:42:1795232955075-0:jobs@8e71964d/0": _acknowledged,
    "sq:s:43:1795232955075-1:jobs@8e71964d/0": _assured,
    "sq:42:1795232955075-0,1.1,2.7.0:jobs@8e71964d/0": _together,
    "o1": lambda play: play.node(stanzaq__partitions="4"),
    "8e71964d-12": _stolen,
    "m1": _several,
    "s3": Play.held,
    "8e71964d-13": _removed,
    "s4": lambda play: play.node(),
    "st1": _log,
    "sq:r:0:1795232955102-0:readings@8e71964d/0": _reading,
    "5f0c-7": _asked,
    "g3": _waiting,
    "i4": _waiting,
    "h1": lambda play: play.node("jobs/dead"),
    "p2": lambda play: play.node(pubsub__access_model="whitelist"),
    "t2": lambda play: play.node("computers"),
    "sq:42:1795232955075-0:computers@8e71964d/0": _through,
    "8e71964d-14": _moved,
    "p5": lambda play: play.node(),
}
"""The preparation of an example, by the id of its first stanza."""


@pytest.fixture
def play() -> Iterator[Play]:
    """Provide a frontend of the page's own domain, with a Redis of its own, and a server that sends anything to it."""
    with FakeServer() as server, ThreadPoolExecutor(1) as aside:
        greeted = aside.submit(server.accept)
        settings = {"XMPP_DOMAIN": DOMAIN, "QOS_TRUSTED": "example.org"}
        with Frontend("embedded://", server.port, server.secret, **settings):
            greeted.result()
            yield Play(server)


def test_the_page_runs(play: Play) -> None:
    """Every example of docs/protocol.md works as written, in the order of the page."""
    met = set()
    for example in EXAMPLES:
        stanzas = list(ET.fromstring(f"<stream xmlns='jabber:client'>{example}</stream>"))
        name = stanzas[0].get("id", "")
        met.add(name)
        if name in PREPARED:
            play.prepare(PREPARED[name])
        for stanza in stanzas:
            if stanza.tag.endswith("}publish"):
                play.pubsub(example)
            elif stanza.get("from", "").rpartition("@")[2].partition("/")[0] == DOMAIN:
                play.hear(stanza)
            elif stanza.get("type") in {"get", "set"}:
                play.ask(_plain(stanza))
            else:
                play.say(_plain(stanza))
    assert set(PREPARED) <= met


def _plain(stanza: Element) -> str:
    """Write a stanza as a server routes it to a component."""
    stanza.tag = _name(stanza.tag)
    stanza.tail = None
    return ET.tostring(stanza, encoding="unicode")

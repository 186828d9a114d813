"""A plain XMPP client for journeys: slixmpp connects, all stanzas are text. Must not know anything of this project.

It keeps its own table of IQs under way, counts the answers of each, and records all it receives in order.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from slixmpp import ClientXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from tests.waiting import PATIENCE_SECONDS

CLIENT: Final = "jabber:client"
PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = f"{PUBSUB}#owner"
EVENT: Final = f"{PUBSUB}#event"
ERRORS: Final = f"{PUBSUB}#errors"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
FORM: Final = "jabber:x:data"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
STANZAQ: Final = "urn:stanzaq:0"
DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
COMMANDS: Final = "http://jabber.org/protocol/commands"

MEMBER: Final = {"stanzaq#group": "g"}
"""Options of a subscription that works on several partitions: it owns those that other members do not."""

# Several times the number that reaches each of two frontends at least once.
_SETTLING: Final = 20
_TRY_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered item, with its lock."""

    node: str
    item: str
    token: int
    attempt: int
    payload: Element = field(compare=False)
    lock: Element = field(compare=False)
    message: Element = field(compare=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """A lock that ended: `how` is the notification's tag, `{namespace}retract` or `{namespace}unlock`."""

    node: str
    item: str
    how: str


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A notice about a node: `what` is `purge` or `delete`."""

    node: str
    what: str


E = TypeVar("E", Delivery, Ended, NodeEvent)

RETRACTED: Final = f"{{{EVENT}}}retract"
UNLOCKED: Final = f"{{{QUEUEING}}}unlock"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an IQ; `error` is empty, or the error's type and conditions with spaces between."""

    element: Element
    error: str

    def find(self, path: str) -> Element:
        """Return the only such element."""
        found = self.element.find(path)
        assert found is not None, ET.tostring(self.element)
        return found


class Client:
    """One connection."""

    def __init__(self, port: int, service: str, jid: str, password: str = "", form: str = "") -> None:
        """Choose an account, by a form of its name, or a host alone for an anonymous one; all requests go to `service`."""
        self.service = service
        self.answers: Counter[str] = Counter()
        self.heard: list[Element] = []
        self._port = port
        self._asked: dict[str, asyncio.Future[Element]] = {}
        self._news: list[Delivery | Ended | NodeEvent] = []
        self._changed = asyncio.Event()
        self._up = asyncio.Event()
        self._numbers = itertools.count(1)
        self._wanted = True
        unencrypted = {"feature_mechanisms": {"unencrypted_plain": True, "unencrypted_scram": not form}}
        self._xmpp = ClientXMPP(jid, password, plugin_config=unencrypted)
        if form:
            self._xmpp.credentials["username"] = form
        self._xmpp.enable_direct_tls = self._xmpp.enable_starttls = False
        self._xmpp.enable_plaintext = True
        self._xmpp.add_filter("in", self._hear)
        self._xmpp.add_event_handler("session_start", lambda _: self._up.set())
        self._xmpp.add_event_handler("disconnected", self._lost)

    @property
    def jid(self) -> str:
        """The full JID that the server gave."""
        return str(self._xmpp.boundjid.full)

    @property
    def bare(self) -> str:
        """The JID without its resource."""
        return str(self._xmpp.boundjid.bare)

    async def open(self) -> None:
        """Connect."""
        self._dial()
        await self.connected()

    async def close(self) -> None:
        """Disconnect in order."""
        self._wanted = False
        if self._xmpp.is_connected():
            await self._xmpp.disconnect(wait=1.0)
        self._xmpp.cancel_connection_attempt()
        if self._xmpp._run_out_filters is not None:
            self._xmpp._run_out_filters.cancel()

    @property
    def up(self) -> bool:
        """Whether the stream is open, as far as the client knows."""
        return self._up.is_set()

    async def connected(self) -> None:
        """Wait until the stream is open."""
        await asyncio.wait_for(self._up.wait(), PATIENCE_SECONDS)

    def vanish(self) -> None:
        """Lose the connection without a word, and stay away."""
        self._wanted = False
        self._xmpp.abort()

    def send(self, text: str) -> None:
        """Send any text."""
        self._xmpp.send_raw(text)

    def present(self, kind: str = "") -> None:
        """Send directed presence to the service; `kind` may be `unavailable`."""
        mark = f" type='{kind}'" if kind else ""
        self.send(f"<presence to='{self.service}'{mark}/>")

    async def ask(
        self, payload: str, kind: str = "set", *, request: str = "", to: str = "", seconds: float = PATIENCE_SECONDS
    ) -> Answer:
        """Send an IQ and wait for its answer; `request` is its id, for replays."""
        name = request or f"ask{next(self._numbers)}"
        future = self._asked[name] = asyncio.get_running_loop().create_future()
        self.send(f"<iq type='{kind}' id={quoteattr(name)} to='{to or self.service}'>{payload}</iq>")
        async with asyncio.timeout(seconds):
            return _answer(await future)

    async def settle(self) -> None:
        """Wait for everything that the frontends have sent: each writes in order, and each answers one of these requests."""
        await asyncio.gather(*(self.ask(f"<query xmlns='{DISCO_INFO}'/>", "get") for _ in range(_SETTLING)))

    async def wait_for_routes(self) -> None:
        """Wait until the XMPP server has noticed that a frontend died: what it routed there is lost (RFC 6120 §8.1.2)."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TRY_SECONDS):
                        return await self.settle()

    async def next(self, kind: type[E], seconds: float = PATIENCE_SECONDS) -> E:
        """Take the first event of this kind that nobody took, waiting for it."""
        async with asyncio.timeout(seconds):
            while True:
                for news in self._news:
                    if isinstance(news, kind):
                        self._news.remove(news)
                        return news
                self._changed.clear()
                await self._changed.wait()

    def left(self, kind: type[E]) -> list[E]:
        """Return the events of this kind that nobody took."""
        return [news for news in self._news if isinstance(news, kind)]

    # Requests of publishers, workers and owners.

    async def queue(self, options: Mapping[str, str] | None = None) -> str:
        """Create a node of a new name to which everybody may publish."""
        node = f"queue-{secrets.token_hex(4)}"
        answer = await self.create(node, {"pubsub#publish_model": "open", **(options or {})})
        assert answer.error == ""
        return node

    async def create(self, node: str, options: Mapping[str, str]) -> Answer:
        """Create a node with a configuration."""
        form = submitted(f"{PUBSUB}#node_config", options)
        return await self.pubsub(f"<create node={quoteattr(node)}/><configure>{form}</configure>")

    async def configure(self, node: str, options: Mapping[str, str]) -> Answer:
        """Change a node's configuration."""
        form = submitted(f"{PUBSUB}#node_config", options)
        return await self.owner(f"<configure node={quoteattr(node)}>{form}</configure>")

    async def affiliate(self, node: str, jid: str, affiliation: str) -> Answer:
        """Set a JID's affiliation with a node."""
        entry = f"<affiliation jid={quoteattr(jid)} affiliation={quoteattr(affiliation)}/>"
        return await self.owner(f"<affiliations node={quoteattr(node)}>{entry}</affiliations>")

    async def publish(self, node: str, item: str | None = None, payload: str = "<job xmlns='urn:x'/>") -> Answer:
        """Publish one item."""
        name = "" if item is None else f" id={quoteattr(item)}"
        return await self.pubsub(f"<publish node={quoteattr(node)}><item{name}>{payload}</item></publish>")

    async def subscribe(
        self, node: str, credit: int | str = 1, jid: str = "", options: Mapping[str, str] | None = None
    ) -> Answer:
        """Subscribe with a credit and options; by default the full JID."""
        wanted = {"pubsub#queue_requests": str(credit), **(options or {})}
        form = submitted(f"{PUBSUB}#subscribe_options", wanted)
        about = f"node={quoteattr(node)} jid={quoteattr(jid or self.jid)}"
        return await self.pubsub(f"<subscribe {about}/><options>{form}</options>")

    async def unsubscribe(self, node: str, jid: str = "") -> Answer:
        """Unsubscribe."""
        return await self.pubsub(f"<unsubscribe node={quoteattr(node)} jid={quoteattr(jid or self.jid)}/>")

    async def options(self, node: str, jid: str = "") -> Answer:
        """Read the options of the subscription."""
        return await self.pubsub(f"<options node={quoteattr(node)} jid={quoteattr(jid or self.jid)}/>", "get")

    async def retract(self, node: str, item: str, token: int | None = None, *, request: str = "") -> Answer:
        """Acknowledge an item, or delete it."""
        return await self.pubsub(
            f"<retract node={quoteattr(node)}><item id={quoteattr(item)}{_mark(token)}/></retract>", request=request
        )

    async def unlock(
        self, node: str, item: str, token: int | None = None, hint: str = "", *, request: str = ""
    ) -> Answer:
        """Release an item; `hint` is the attributes of our own hint."""
        inside = f"<hint xmlns='{STANZAQ}' {hint}/>" if hint else ""
        return await self.pubsub(
            f"<unlock xmlns='{QUEUEING}' node={quoteattr(node)}><item id={quoteattr(item)}{_mark(token)}/>{inside}</unlock>",
            request=request,
        )

    async def browse(self, node: str, *items: str) -> list[Element]:
        """List items without taking them."""
        inside = "".join(f"<item id={quoteattr(item)}/>" for item in items)
        answer = await self.pubsub(f"<items node={quoteattr(node)}>{inside}</items>", "get")
        assert answer.error == ""
        return list(answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items"))

    async def pubsub(self, inside: str, kind: str = "set", *, request: str = "") -> Answer:
        """Send a request in the namespace of publishers and workers."""
        return await self.ask(f"<pubsub xmlns='{PUBSUB}'>{inside}</pubsub>", kind, request=request)

    async def owner(self, inside: str, kind: str = "set") -> Answer:
        """Send a request in the namespace of owners."""
        return await self.ask(f"<pubsub xmlns='{OWNER}'>{inside}</pubsub>", kind)

    # The stream.

    def _dial(self) -> None:
        self._xmpp.connect("127.0.0.1", self._port)

    def _lost(self, _: object) -> None:
        self._up.clear()
        if self._wanted:
            asyncio.get_running_loop().call_later(0.2, self._dial)

    def _hear(self, stanza: StanzaBase) -> StanzaBase | None:
        element = stanza.xml
        if element.tag not in {f"{{{CLIENT}}}iq", f"{{{CLIENT}}}message"}:
            return stanza
        if element.tag.endswith("iq"):
            name = element.get("id", "")
            asked = self._asked.get(name)
            if asked is None or element.get("type") not in {"result", "error"}:
                return stanza
            self.answers[name] += 1
            if not asked.done():
                asked.set_result(element)
        else:
            self._news.extend(_news(element))
        self.heard.append(element)
        self._changed.set()
        return None


def rows(batch: Answer) -> list[Answer]:
    """Return the rows in the result of a batch, each with its own error."""
    return [_answer(row) for row in batch.element[0]] if len(batch.element) else []


def submitted(form_type: str, fields: Mapping[str, str]) -> str:
    """Write a submitted form."""
    inside = "".join(
        f"<field var={quoteattr(name)}><value>{value}</value></field>"
        for name, value in {"FORM_TYPE": form_type, **fields}.items()
    )
    return f"<x xmlns='{FORM}' type='submit'>{inside}</x>"


def form_values(element: Element) -> dict[str, str]:
    """Read the first value of each field of the form inside an element."""
    form = element if element.tag == f"{{{FORM}}}x" else element.find(f".//{{{FORM}}}x")
    assert form is not None
    return {field.get("var", ""): field.findtext(f"{{{FORM}}}value", "") for field in form.iterfind(f"{{{FORM}}}field")}


def _mark(token: int | None) -> str:
    return "" if token is None else f" token='{token}'"


def _answer(element: Element) -> Answer:
    error = element.find(f"{{{CLIENT}}}error")
    if error is None:
        assert element.get("type") in {None, "result"}
        return Answer(element, "")
    conditions = [child.tag.partition("}")[2] for child in error if not child.tag.endswith("}text")]
    return Answer(element, " ".join([error.get("type", ""), *conditions]))


def _news(message: Element) -> list[Delivery | Ended | NodeEvent]:
    event = message.find(f"{{{EVENT}}}event")
    # A message may have several items, whose locks follow in the same order.
    locks = message.iterfind(f"{{{STANZAQ}}}lock")
    news: list[Delivery | Ended | NodeEvent] = []
    for about in event if event is not None else ():
        node = about.get("node", "")
        if about.tag != f"{{{EVENT}}}items":
            news.append(NodeEvent(node, about.tag.partition("}")[2]))
            continue
        for child in about:
            if child.tag == f"{{{EVENT}}}item" and (lock := next(locks, None)) is not None:
                assert lock.get("item") == child.get("id")
                token, attempt = int(lock.get("token", "0")), int(lock.get("attempt", "0"))
                news.append(Delivery(node, child.get("id", ""), token, attempt, child[0], lock, message))
            else:
                news.append(Ended(node, child.get("id", ""), child.tag))
    return news

"""Stanzas of workers and publishers, written and read. Pure: must not know connections.

Sources are XEP-0060, XEP-0254 and docs/protocol.md.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from stanzaq.errors import StanzaqError
from stanzaq.payloads import BYTES, JSON, XML
from stanzaq.retry import Release
from stanzaq.transport import traceparent
from stanzaq.transport.interface import (
    Content,
    Delivery,
    Hints,
    Lock,
    Outcome,
    Outgoing,
    Progress,
    Schedule,
    Scheduling,
    line,
)

CLIENT: Final = "jabber:client"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
PUBSUB: Final = "http://jabber.org/protocol/pubsub"
EVENT: Final = f"{PUBSUB}#event"
OWNER: Final = f"{PUBSUB}#owner"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
STANZAQ: Final = "urn:stanzaq:0"
FORM: Final = "jabber:x:data"
HEADERS: Final = "http://jabber.org/protocol/shim"
JSON_ELEMENT: Final = "urn:xmpp:json:0"
DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
RSM: Final = "http://jabber.org/protocol/rsm"

UNSAYABLE: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot contain: a server ends the stream that has one."""
_BARE_ROOT: Final = re.compile(r"""<[^\s/>]+(?!(?:[^>"']|"[^"]*"|'[^']*')*\sxmlns=)(?=[\s/>])""")
"""A root element that declares no default namespace."""

_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_REASON_BYTES: Final = 1_024

AWAY: Final = {"remote-server-not-found", "remote-server-timeout", "service-unavailable", "recipient-unavailable"}
"""The server's errors while the service is not connected to it."""

ENDED: Final = frozenset({"item-not-found", "conflict", "forbidden", "unexpected-request"})
"""The service's errors for a lock, named by its token, that the sender no longer holds."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error stanza; `seconds` is the time that the service wants to be left alone."""

    condition: str
    kind: str
    text: str
    seconds: float = 0.0

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return (self.kind == "wait" or self.condition in AWAY) and self.condition not in ENDED

    def fault(self, what: str) -> StanzaqError:
        """Return the exception for a request that could not do `what`."""
        return StanzaqError(f"cannot {what}: {self.condition}{f' ({self.text})' if self.text else ''}", self.condition)


@dataclass(frozen=True, slots=True)
class XmppOutcomes:
    """The answer to a batch: refusals by item, and the earliest of the new deadlines."""

    refusals: Mapping[str, Refusal]
    expires: str


def refusal(iq: Element, item: str = "") -> Refusal | None:
    """Read the error of an answer, or of its row about an item; None for a result."""
    if iq.get("type") == "error":
        return _refusal(iq.find(f"{{{CLIENT}}}error"))
    return outcomes(iq).refusals.get(item) if item else None


def outcomes(iq: Element) -> XmppOutcomes:
    """Read the result of a batch: of a row that has an error, the refusal."""
    rows = ((row, row.find(f"{{{CLIENT}}}error")) for batch in iq for row in batch)
    refusals = {row.get("id", ""): _refusal(error) for row, error in rows if error is not None}
    return XmppOutcomes(refusals, next((batch.get("expires", "") for batch in iq), ""))


def is_log(iq: Element) -> bool:
    """Return whether a node that was described is a log, whose entries are not handed out."""
    hands_out = any(feature.get("var") == QUEUEING for feature in iq.iter(f"{{{DISCO_INFO}}}feature"))
    return not (hands_out or is_collection(iq))


def _refusal(error: Element | None) -> Refusal:
    if error is None:
        return Refusal("undefined-condition", "cancel", "")
    conditions = [child.tag.rpartition("}")[2] for child in error if child.tag.startswith(f"{{{STANZAS}}}")]
    condition = next((name for name in conditions if name != "text"), "undefined-condition")
    told = error.find(f"{{{STANZAQ}}}too-fast")
    wait = "" if told is None else told.get("retry-after", "")
    seconds = float(wait) if _SECONDS.fullmatch(wait) else 0.0
    return Refusal(condition, error.get("type", "cancel"), error.findtext(f"{{{STANZAS}}}text", ""), seconds)


_ALL_BELOW: Final = {"pubsub#subscription_type": "items", "pubsub#subscription_depth": "all"}
"""The options of a subscription to the items of all queues below a collection (XEP-0248); other nodes have none of them."""


def requests(credit: int, batch: int = 1, *, collection: bool = False, group: str = "", client: str = "") -> str:
    """Request items, at most `credit` at once and `batch` in a message; those of all queues below a `collection`.

    A member of a `group` gets those of the partitions that are assigned to it. `client` is how this program names itself.
    """
    told = {"pubsub#queue_requests": str(credit)}
    told |= {"stanzaq#client": client} if client else {}
    told |= {"stanzaq#batch": str(batch)} if batch > 1 else {}
    told |= {"stanzaq#group": group} if group else {}
    return _form(f"{PUBSUB}#subscribe_options", told | (_ALL_BELOW if collection else {}))


def subscribe(node: str, jid: str, options: str) -> str:
    """Request items, with options."""
    return (
        f"<pubsub xmlns='{PUBSUB}'><subscribe node={quoteattr(node)} jid={quoteattr(jid)}/>"
        f"<options>{options}</options></pubsub>"
    )


def confirm(node: str, jid: str, subid: str, options: str) -> str:
    """Request items as `subscribe` does, under a subscription that exists."""
    about = f"node={quoteattr(node)} jid={quoteattr(jid)} subid={quoteattr(subid)}"
    return f"<pubsub xmlns='{PUBSUB}'><options {about}>{options}</options></pubsub>"


def read_subscribed(iq: Element) -> tuple[str, str]:
    """Read the id and the state of the subscription in a result."""
    found = next(iq.iter(f"{{{PUBSUB}}}subscription"), None)
    return ("", "") if found is None else (found.get("subid", ""), found.get("subscription", ""))


def unsubscribe(node: str, jid: str, subid: str) -> str:
    """Stop requesting items; `subid` may be empty."""
    which = f" subid={quoteattr(subid)}" if subid else ""
    return f"<pubsub xmlns='{PUBSUB}'><unsubscribe node={quoteattr(node)} jid={quoteattr(jid)}{which}/></pubsub>"


def create(node: str, options: Mapping[str, str]) -> str:
    """Request a new node."""
    form = _form(f"{PUBSUB}#node_config", options)
    return f"<pubsub xmlns='{PUBSUB}'><create node={quoteattr(node)}/><configure>{form}</configure></pubsub>"


def options(node: str) -> str:
    """Ask for the options of a node."""
    return f"<pubsub xmlns='{OWNER}'><configure node={quoteattr(node)}/></pubsub>"


def configure(node: str, options: Mapping[str, str]) -> str:
    """Change options of a node."""
    form = _form(f"{PUBSUB}#node_config", options)
    return f"<pubsub xmlns='{OWNER}'><configure node={quoteattr(node)}>{form}</configure></pubsub>"


def read_options(iq: Element) -> dict[str, str]:
    """Read the options in a result; the values of one are lines."""
    found = iq.iter(f"{{{FORM}}}field")
    return {
        each.get("var", ""): "\n".join(value.text or "" for value in each.iterfind(f"{{{FORM}}}value"))
        for each in found
    }


def ack(lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> str:
    """Acknowledge an item, with a result for its publisher, and publish others then; a row of `settle`, as are the next two."""
    told = "" if result is None else f"<result xmlns='{STANZAQ}'>{_payload(result)}</result>"
    for each in then:
        inside = item(each.item, each.content, each.headers, each.hints)
        told += f"<then xmlns='{STANZAQ}' node={quoteattr(each.node)}>{inside}</then>"
    return f"<ack{_lock_attributes(lock)}>{told}</ack>" if told else f"<ack{_lock_attributes(lock)}/>"


def release(lock: Lock, how: Release) -> str:
    """Return an item. Delays are whole seconds on the wire; where there are no dead letters, the item rests as its node says."""
    then = "dead-letter='true'" if how.dead else f"delay='{round(how.delay)}'"
    tried = " untried='1'" if how.untried else ""
    return f"<release{_lock_attributes(lock)} {then} reason={quoteattr(sayable(how.reason))}{tried}/>"


def renew(lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> str:
    """Restart the time of a lock, and tell how far its job is, or that it has begun."""
    told = " begun='1'" if begun else ""
    if progress is not None:
        share = "" if progress.share is None else f" progress='{progress.share:.3f}'"
        told += f"{share} note={quoteattr(line(progress.note))}"
    return f"<renew{_lock_attributes(lock)}{told}/>"


def renew_ownership(node: str) -> str:
    """Restart the leases of all partitions of a node that the sender owns."""
    return f"<renew xmlns='{STANZAQ}' node={quoteattr(node)}/>"


def read_owned(iq: Element) -> dict[int, int]:
    """Read from the result which partitions the sender owns, each with its fence: locks with lower tokens are void."""
    found = iq.iter(f"{{{STANZAQ}}}owned")
    return {int(each.get("partition", "0")): int(each.get("fence", "0")) for each in found}


def read_lost(message: Element) -> list[tuple[str, int, str]]:
    """Read which partitions this worker has lost, as node and number, and why."""
    found = message.iterfind(f"{{{EVENT}}}event/{{{STANZAQ}}}lost")
    return [(each.get("node", ""), int(each.get("partition", "0")), each.get("reason", "")) for each in found]


def settle(node: str, rows: str) -> str:
    """Acknowledge, return and renew items of a node."""
    return f"<settle xmlns='{STANZAQ}' node={quoteattr(node)}>{rows}</settle>"


def cancel(node: str, item: str) -> str:
    """Cancel an item."""
    return f"<cancel xmlns='{STANZAQ}' node={quoteattr(node)}><item id={quoteattr(item)}/></cancel>"


def outcome(node: str, item: str) -> str:
    """Ask how an item has ended."""
    return f"<outcome xmlns='{STANZAQ}' node={quoteattr(node)}><item id={quoteattr(item)}/></outcome>"


def read_ended_item(stanza: Element) -> tuple[str, str, Outcome] | None:
    """Read from a message, or from a result, which item has ended and how; None if that is something else."""
    told = stanza.find(f"{{{STANZAQ}}}outcome")
    if told is None:
        return None
    result = _content(told) if len(told) else None
    return (
        told.get("node", ""),
        told.get("item", ""),
        Outcome(told.get("state", ""), told.get("reason", ""), result),
    )


def locks(node: str) -> str:
    """Ask which locks this worker holds."""
    return f"<locks xmlns='{STANZAQ}' node={quoteattr(node)}/>"


def describe(node: str = "") -> str:
    """Ask about a node, or without one about the service (XEP-0030)."""
    about = f" node={quoteattr(node)}" if node else ""
    return f"<query xmlns='{DISCO_INFO}'{about}/>"


def publish(node: str, item: str) -> str:
    """Send an item."""
    return f"<pubsub xmlns='{PUBSUB}'><publish node={quoteattr(node)}>{item}</publish></pubsub>"


def publish_all(node: str, items: str) -> str:
    """Send several items."""
    return f"<publish xmlns='{STANZAQ}' node={quoteattr(node)}>{items}</publish>"


def schedule(request: Scheduling) -> str:
    """Make or replace a schedule."""
    words = "".join(f" {name}={quoteattr(text)}" for name, text in {"id": request.id, **request.when}.items())
    inside = item(None, request.content, request.headers, request.hints)
    return f"<schedule xmlns='{STANZAQ}' node={quoteattr(request.node)}{words}>{inside}</schedule>"


def schedules(node: str, after: str) -> str:
    """List a page of schedules."""
    page = f"<set xmlns='{RSM}'><after>{escape(after)}</after></set>" if after else ""
    return f"<schedules xmlns='{STANZAQ}' node={quoteattr(node)}>{page}</schedules>"


def switch_schedule(what: str, node: str, name: str) -> str:
    """Pause, resume or delete a schedule: `pause-schedule`, `resume-schedule` or `unschedule`."""
    return f"<{what} xmlns='{STANZAQ}' node={quoteattr(node)} id={quoteattr(name)}/>"


def read_schedules(iq: Element) -> list[Schedule]:
    """Read the schedules in a result."""
    return [Schedule.read(each.attrib) for each in iq.iter(f"{{{STANZAQ}}}schedule")]


def read_next_page(iq: Element) -> str:
    """Read where the next page of schedules begins; empty if there is no other page."""
    return iq.findtext(f".//{{{RSM}}}last") or ""


def affiliations(node: str, changes: Mapping[str, str] | None = None) -> str:
    """List affiliations, or change them."""
    rows = (changes or {}).items()
    inside = "".join(f"<affiliation jid={quoteattr(jid)} affiliation={quoteattr(each)}/>" for jid, each in rows)
    return f"<pubsub xmlns='{OWNER}'><affiliations node={quoteattr(node)}>{inside}</affiliations></pubsub>"


def read_affiliations(iq: Element) -> dict[str, str]:
    """Read the affiliations in a result."""
    return {each.get("jid", ""): each.get("affiliation", "") for each in iq.iter(f"{{{OWNER}}}affiliation")}


def waiting(node: str) -> str:
    """List who waits for an approval."""
    return f"<requests xmlns='{STANZAQ}' node={quoteattr(node)}/>"


def read_waiting(iq: Element) -> list[str]:
    """Read who waits."""
    return [each.get("jid", "") for each in iq.iter(f"{{{STANZAQ}}}request")]


def decide(node: str, jid: str, *, allow: bool) -> str:
    """Approve or refuse the requests of an account."""
    said = "true" if allow else "false"
    return f"<decide xmlns='{STANZAQ}' node={quoteattr(node)} jid={quoteattr(jid)} allow='{said}'/>"


def item(name: str | None, content: Content, headers: Mapping[str, str], hints: Hints) -> str:
    """Write an item, alone or of a batch, or without a name: its namespace is that of the element around it."""
    traced, headers = traceparent.split(headers)
    asked = {
        "key": hints.key,
        "delay": str(round(hints.delay)) if hints.delay else "",
        "at": "" if hints.at is None else datetime.fromtimestamp(hints.at, UTC).isoformat(),
        "priority": "" if hints.priority is None else str(hints.priority),
        "ttl": "" if hints.ttl is None else str(max(1, round(hints.ttl))),
        "reply": "1" if hints.reply else "",
        "keep": "1" if hints.keep else "",
        "after": hints.parents,
        "regardless": "1" if hints.regardless else "",
        "confirm": hints.confirm,
        **traced,
    }
    attributes = "".join(f" q:{name}={quoteattr(text)}" for name, text in asked.items() if text)
    inside = "".join(f"<header name={quoteattr(name)}>{escape(text)}</header>" for name, text in headers.items())
    beside = f"<headers xmlns='{HEADERS}'>{inside}</headers>" if inside else ""
    named = "" if name is None else f" id={quoteattr(name)}"
    return f"<item xmlns:q='{STANZAQ}'{named}{attributes}>{_payload(content)}{beside}</item>"


def message(publish: str) -> str:
    """Make a message of a request to publish, to be sent as assured."""
    return f"<message xmlns='{CLIENT}'>{publish}</message>"


def deliveries(message: Element) -> list[Delivery]:
    """Read items with their locks, which are in the same order; none if the message is something else."""
    items = message.iterfind(f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item")
    locks = message.findall(f"{{{STANZAQ}}}lock")
    if not locks:
        return []
    told = message.find(f"{{{HEADERS}}}headers")
    headers = {each.get("name", ""): each.text or "" for each in told} if told is not None else {}
    return [_delivery(item, lock, headers) for item, lock in zip(items, locks, strict=False)]


def _delivery(item: Element, lock: Element, headers: Mapping[str, str]) -> Delivery:
    deadline = moment(lock.get("expires", ""))
    of, attempt = int(lock.get("of", "1")), int(lock.get("attempt", "1"))
    published = moment(lock.get("published", ""))
    key, collection = lock.get("key", ""), headers.get("Collection", "")
    reply = lock.get("reply") == "1"
    return Delivery(_lock(lock), attempt, of, deadline, _content(item), headers, key, published, collection, reply)


def read_ended(message: Element) -> list[Lock]:
    """Read which locks ended without their holder's doing, i.e. not by an acknowledgement."""
    found = message.iterfind(f"{{{EVENT}}}event/{{{EVENT}}}items")
    return [
        Lock(items.get("node", ""), unlock.get("id", ""), int(token))
        for items in found
        for unlock in items.iterfind(f"{{{QUEUEING}}}unlock")
        if (token := unlock.get(f"{{{STANZAQ}}}token"))
    ]


def read_deleted(message: Element) -> list[tuple[str, str]]:
    """Read which items are gone, as node and id: this worker has acknowledged them, or an owner has deleted them."""
    found = message.iterfind(f"{{{EVENT}}}event/{{{EVENT}}}items")
    return [
        (items.get("node", ""), each.get("id", "")) for items in found for each in items.iterfind(f"{{{EVENT}}}retract")
    ]


def read_unsubscribed(message: Element) -> list[str]:
    """Read the nodes that were deleted, or from which somebody else removed the subscription."""
    event = message.find(f"{{{EVENT}}}event")
    if event is None:
        return []
    return [
        each.get("node", "")
        for each in event
        if each.tag == f"{{{EVENT}}}delete"
        or (each.tag == f"{{{EVENT}}}subscription" and each.get("subscription") == "none")
    ]


def read_held(iq: Element) -> set[Lock]:
    """Read the locks in a result."""
    return {_lock(lock) for lock in iq.iter(f"{{{STANZAQ}}}lock")}


def is_collection(iq: Element) -> bool:
    """Return whether a node that was described is a collection (XEP-0248)."""
    return any(each.get("type") == "collection" for each in iq.iter(f"{{{DISCO_INFO}}}identity"))


def field(iq: Element, name: str) -> str:
    """Read the first value of a field of the form in a result; empty if there is none."""
    for each in iq.iter(f"{{{FORM}}}field"):
        if each.get("var") == name:
            return each.findtext(f"{{{FORM}}}value", "")
    return ""


def _form(kind: str, fields: Mapping[str, str]) -> str:
    told = {"FORM_TYPE": kind, **fields}
    inside = "".join(f"<field var='{name}'><value>{escape(value)}</value></field>" for name, value in told.items())
    return f"<x xmlns='{FORM}' type='submit'>{inside}</x>"


def _lock_attributes(lock: Lock) -> str:
    where = "" if lock.partition is None else f" partition='{lock.partition}'"
    return f" id={quoteattr(lock.item)} token='{lock.token}'{where}"


def _lock(element: Element) -> Lock:
    partition = element.get("partition")
    number = None if partition is None else int(partition)
    return Lock(element.get("node", ""), element.get("item", ""), int(element.get("token", "0")), number)


def moment(text: str) -> datetime:
    """Read a point in time."""
    return datetime.fromisoformat(text)


def sayable(text: str) -> str:
    """Remove characters that XML cannot contain, and cut a reason to the length that the service accepts."""
    return UNSAYABLE.sub(" ", text).encode()[:_REASON_BYTES].decode(errors="ignore")


def _payload(content: Content) -> str:
    if content.type == JSON:
        # They stand in strings alone, where JSON can name them.
        text = UNSAYABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", content.body.decode())
        return f"<json xmlns='{JSON_ELEMENT}'>{escape(text)}</json>"
    if content.type == XML:
        text = content.body.decode()
        name = _BARE_ROOT.match(text)
        # What has no prefix is in no namespace in a document of its own; in a stanza it would be in the one around it.
        return text if name is None else f"{name[0]} xmlns=''{text[name.end() :]}"
    return f"<data xmlns='{STANZAQ}' type={quoteattr(content.type)}>{base64.b64encode(content.body).decode()}</data>"


def _content(item: Element) -> Content:
    if not len(item):
        return Content(b"", BYTES)
    element = item[0]
    if element.tag == f"{{{JSON_ELEMENT}}}json":
        return Content((element.text or "").encode(), JSON)
    if element.tag == f"{{{STANZAQ}}}data":
        try:
            return Content(base64.b64decode(element.text or ""), element.get("type", BYTES))
        except ValueError:
            return Content((element.text or "").encode(), BYTES)
    return Content(ET.tostring(element, "utf-8", xml_declaration=False), XML)

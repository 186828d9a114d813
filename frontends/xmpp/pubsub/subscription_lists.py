"""Lists of subscriptions and affiliations (XEP-0060 §5.6, §5.7, §8.8), and owners' changes to them. Pure.

Must not know how a subscription is made, or its options.
"""

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Affiliations, ListSubscribers, ManageSubscribers, Subscriptions
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import Change, State, Subscription
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import AffiliationList, SubscriptionList
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, paging
from frontends.xmpp.stanzas import Iq, Question, only_child
from frontends.xmpp.xml.text import escape

SHOWN_MOST: Final = 1_000
"""The most subscriptions in one page."""

CHANGES_MOST: Final = 500
"""The most subscriptions in one change: each takes several calls."""

_SUBSCRIPTION: Final = f"{{{ns.PUBSUB_OWNER}}}subscription"
_STATES: Final = frozenset({*(str(state.value) for state in State), "unconfigured"})


def subscriptions(iq: Iq, pubsub: Element) -> Subscriptions:
    """Translate `<subscriptions/>`: the sender's own, at one node or at all."""
    return Subscriptions(iq.sender, _read_node(only_child(iq, pubsub, "get")))


def affiliations(iq: Iq, pubsub: Element) -> Affiliations:
    """Translate `<affiliations/>`: the sender's own, with one node or with all."""
    return Affiliations(iq.sender, _read_node(only_child(iq, pubsub, "get")))


def translate_subscriptions(iq: Iq, pubsub: Element) -> Question:
    """Translate an owner's `<subscriptions/>`: a get lists them, a set changes those that it names (P26)."""
    if iq.kind == "get":
        return Question(iq, _listing(iq, pubsub))
    asked = only_child(iq, pubsub, iq.kind)
    node = attributes.node(asked)
    entries = asked.findall(_SUBSCRIPTION)
    if len(entries) > CHANGES_MOST:
        raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"at most {CHANGES_MOST} subscriptions are changed at once")
    changes = [_change(entry) for entry in entries]
    if not changes:
        raise MalformedRequest(Problem.BAD_REQUEST, "the request changes no subscription")
    if len({(change.jid, change.subid) for change in changes}) < len(changes):
        raise MalformedRequest(Problem.BAD_REQUEST, "each subscription is named once (XEP-0060 8.8.2.4)")
    # Without a state it stays unchanged (XEP-0060 §8.8.2.1).
    return Question(iq, ManageSubscribers(node, iq.sender, tuple(change for change in changes if change.state)))


def _listing(iq: Iq, pubsub: Element) -> ListSubscribers:
    """Translate an owner's request for a list, or for a page of it."""
    asked, *others = pubsub
    if [child for child in others if child.tag != paging.SET]:
        raise MalformedRequest(Problem.BAD_REQUEST, "one request at a time")
    page = paging.read(pubsub, SHOWN_MOST) if others else None
    return ListSubscribers(attributes.node(asked), iq.sender, page)


def write_own(node: str | None, listed: SubscriptionList) -> bytes:
    """Write the sender's subscriptions (P10)."""
    inside = "".join(
        f"<subscription node='{escape(each.node)}' {subscription(each)}/>" for each in listed.subscriptions
    )
    return f"<pubsub xmlns='{ns.PUBSUB}'><subscriptions{_write_node(node)}>{inside}</subscriptions></pubsub>".encode()


def standings(listed: AffiliationList) -> bytes:
    """Write the sender's affiliations (P10)."""
    inside = "".join(
        f"<affiliation node='{escape(node)}' affiliation='{affiliation.value}'/>"
        for node, affiliation in listed.affiliations
    )
    return f"<pubsub xmlns='{ns.PUBSUB}'><affiliations>{inside}</affiliations></pubsub>".encode()


def write_list(asked: ListSubscribers, found: SubscriptionList) -> bytes:
    """Write an owner's list; a page says what is missing, a whole list says it in our namespace."""
    listed, page = found.subscriptions, ""
    if asked.page is not None:
        page = paging.write_page((listed[0].place, listed[-1].place) if listed else None, found.count, found.index)
    return subscribers(asked.node, listed, more=found.more and not page, page=page)


def subscribers(node: str, listed: Iterable[Subscription], *, more: bool = False, page: str = "") -> bytes:
    """Write subscriptions to a node for its owner."""
    inside = "".join(f"<subscription {subscription(each)}/>" for each in listed)
    mark = f" xmlns:q='{ns.STANZAQ}' q:more='true'" if more else ""
    return (
        f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><subscriptions{_write_node(node)}{mark}>{inside}</subscriptions>{page}</pubsub>"
    ).encode()


def write_affiliations(node: str, listed: Iterable[tuple[Jid, Affiliation]]) -> bytes:
    """Write affiliations with a node for its owner."""
    inside = "".join(
        f"<affiliation jid='{escape(jid)}' affiliation='{affiliation.value}'/>" for jid, affiliation in listed
    )
    return (
        f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><affiliations node='{escape(node)}'>{inside}</affiliations></pubsub>"
    ).encode()


def subscription(each: Subscription) -> str:
    """Write JID, id and state of a subscription as attributes."""
    return f"jid='{escape(each.jid)}' subid='{escape(each.subid)}' subscription='{each.state.value}'"


def _change(entry: Element) -> Change:
    text = entry.get("jid")
    if not text:
        raise MalformedRequest(Problem.JID_REQUIRED, "each subscription names a JID")
    state = entry.get("subscription")
    if state is not None and state not in _STATES:
        raise MalformedRequest(Problem.BAD_REQUEST, f"subscription is one of {', '.join(sorted(_STATES))}")
    return Change(attributes.normalize_jid(text), attributes.subid(entry), state or "")


def _read_node(asked: Element) -> str | None:
    return None if asked.get("node") is None else attributes.node(asked)


def _write_node(node: str | None) -> str:
    return "" if node is None else f" node='{escape(node)}'"

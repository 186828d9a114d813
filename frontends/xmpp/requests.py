"""Turns IQs into commands: the entry, and the requests of publishers and workers. Must not know replies or the core."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Browse, Command, Locks, Publish, RenewOwnership, Retract, Unlock
from broker.model.positions import Place
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import disco, software, stanzas
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, offered
from frontends.xmpp.errors import Unserved
from frontends.xmpp.messages import publishing
from frontends.xmpp.pubsub import (
    attributes,
    batches,
    item_requests,
    log_options,
    owner_requests,
    paging,
    subscription_lists,
    subscriptions,
)
from frontends.xmpp.stanzas import Answer, Batch, Iq, Question, expect, only
from frontends.xmpp.xml import forms

_ITEM: Final = f"{{{ns.PUBSUB}}}item"
_CONFIGURE: Final = f"{{{ns.PUBSUB}}}configure"
_DEFAULT: Final = f"{{{ns.PUBSUB}}}default"
_PUBLISH_OPTIONS: Final = f"{{{ns.PUBSUB}}}publish-options"

BROWSE_DEFAULT: Final = 50
BROWSE_MOST: Final = 500


def read(iq: Iq, context: commands.AdhocContext = commands.NOBODY) -> Question | Answer | Batch:
    """Translate an IQ; raises MalformedRequest."""
    if iq.kind not in {"get", "set"}:
        raise MalformedRequest(Problem.BAD_REQUEST, "an IQ is a get or a set")
    if len(iq.element) != 1:
        raise MalformedRequest(Problem.BAD_REQUEST, "an IQ request has exactly one child (RFC 6120 8.2.3)")
    child = iq.element[0]
    reader = _PROTOCOLS.get(child.tag)
    if reader is not None:
        return reader(iq, child)
    guarded = _GUARDED.get(child.tag)
    if guarded is None:
        raise Unserved(
            detail="this service is a queue: it speaks XEP-0060, XEP-0254, service discovery and ad-hoc commands"
        )
    return guarded(iq, child, context)


def elsewhere(iq: Iq, service: str) -> Question:
    """Translate a request to a node's address, which only accepts messages; the service itself is one JID (QX6)."""
    node = publishing.node_at(iq.service, service)
    found = disco.read_address(iq, node) if node else None
    if found is None:
        raise Unserved(detail=f"the service is {service}")
    return found


def is_get_for_set(question: Question) -> bool:
    """Tell whether a change came in a get: XEP-0254's examples do that, against RFC 6120 (QX1)."""
    return question.iq.kind == "get" and isinstance(question.command, Retract | Unlock)


def _pubsub(iq: Iq, pubsub: Element, context: commands.AdhocContext) -> Question | Answer:
    pubsub = stanzas.without_foreign(pubsub, ns.PUBSUB, ns.QUEUEING, ns.RSM)
    if not len(pubsub):
        raise MalformedRequest(Problem.BAD_REQUEST, "the request is empty")
    tag = pubsub[0].tag
    if reader := _ACTIONS.get(tag):
        return Question(iq, reader(iq, pubsub))
    if tag == _DEFAULT:
        return subscriptions.default(iq, pubsub, context.node)
    if tag == _CONFIGURE:
        raise MalformedRequest(Problem.BAD_REQUEST, "a configure follows a create (XEP-0060 8.1.3)")
    raise MalformedRequest(Problem.UNSUPPORTED, "no such request in XEP-0060")


def _owner(iq: Iq, pubsub: Element, context: commands.AdhocContext) -> Question | Answer:
    return owner_requests.read(iq, pubsub, context.node)


def _publish(iq: Iq, pubsub: Element) -> Publish:
    options = None
    if len(pubsub) == 2 and pubsub[1].tag == _PUBLISH_OPTIONS:
        expect(iq, "set")
        publish, options = pubsub[0], _options(pubsub[1])
    else:
        publish = only(iq, pubsub, "set")
    return item_requests.publish(
        iq, attributes.node(publish), _one_item(publish), publish.find(attributes.HINT), options
    )


def _options(wanted: Element) -> Mapping[str, tuple[str, ...]] | None:
    """Read the required configuration of the node; without a form nothing is required (XEP-0060 §7.1.5)."""
    form = wanted.find(forms.FORM)
    fields = None if form is None else forms.read(form, ns.PUBSUB_PUBLISH_OPTIONS)
    return fields or None


def _retract(iq: Iq, pubsub: Element) -> Retract:
    retract = only(iq, pubsub, iq.kind)
    node, item = attributes.node(retract), _one_item(retract)
    return item_requests.retract(iq, node, item, retract.find(attributes.HINT))


def _unlock(iq: Iq, pubsub: Element) -> Unlock:
    unlock = only(iq, pubsub, iq.kind)
    node, item = attributes.node(unlock), _one_item(unlock)
    hint = unlock.find(attributes.HINT)
    return item_requests.unlock(iq, node, item, item.find(attributes.HINT) if hint is None else hint)


def _browse(iq: Iq, pubsub: Element) -> Browse:
    expect(iq, "get")
    items, *others = pubsub
    if [child for child in others if child.tag != paging.SET]:
        raise MalformedRequest(Problem.BAD_REQUEST, "one request at a time")
    node = attributes.node(items)
    names = tuple(attributes.item_id(item) for item in items.iterfind(_ITEM))
    if len(names) > BROWSE_MOST:
        raise MalformedRequest(Problem.BAD_REQUEST, f"at most {BROWSE_MOST} items are shown at once")
    most = items.get("max_items")
    # Too large a number is no error (XEP-0060 §6.5.7: a service may return fewer).
    limit = BROWSE_DEFAULT if most is None else attributes.whole(most, 10**9, Problem.BAD_REQUEST, "max_items")
    page = paging.read(pubsub, min(limit, BROWSE_MOST))
    if most is not None and not names and not others:
        # Without RSM it selects the most recent items (XEP-0060 §6.5.7).
        page = replace(page, before="")
    if names and others:
        raise MalformedRequest(Problem.BAD_REQUEST, "named items cannot be paged")
    if page.index is not None:
        raise MalformedRequest(Problem.UNSUPPORTED, "items have no numbers: page by after and before")
    after, before = _place(page.after), _place(page.before)
    back = page.before is not None
    return Browse(node, iq.sender, names, page.most, after, before, back, attributes.subid(items))


def _place(text: str | None) -> Place | None:
    """Parse where a page begins or ends; an invalid value is not found (XEP-0059 §2.4)."""
    try:
        return Place.parse(text) if text else None
    except ValueError:
        raise MalformedRequest(Problem.ITEM_NOT_FOUND, "after and before must come from `last` and `first`") from None


def _renew(iq: Iq, renew: Element) -> Question:
    expect(iq, "set")
    node = attributes.node(renew)
    if not len(renew):
        # Without an item it is an owner's heartbeat (EX16).
        return Question(iq, RenewOwnership(node, iq.sender))
    return Question(iq, item_requests.renew(iq, node, _one_item(renew), renew.find(attributes.HINT)))


def _locks(iq: Iq, locks: Element) -> Question:
    expect(iq, "get")
    return Question(iq, Locks(attributes.node(locks), iq.sender))


def _one_item(action: Element) -> Element:
    """Return the one item that a request names (P20, PX1); peers differ in the namespace of the one inside `<unlock/>`.

    Ignores unknown elements (RFC 6120 §8.4).
    """
    found = None
    for child in action:
        if child.tag.endswith("}item"):
            if found is not None:
                raise MalformedRequest(Problem.ONE_ITEM_ONLY, "one item at a time")
            found = child
    if found is None:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "the request names no item")
    return found


_ACTIONS: Final[Mapping[str, Callable[[Iq, Element], Command]]] = {
    f"{{{ns.PUBSUB}}}publish": _publish,
    f"{{{ns.PUBSUB}}}retract": _retract,
    f"{{{ns.QUEUEING}}}unlock": _unlock,
    f"{{{ns.PUBSUB}}}items": _browse,
    f"{{{ns.PUBSUB}}}create": owner_requests.create,
    f"{{{ns.PUBSUB}}}subscribe": subscriptions.subscribe,
    f"{{{ns.PUBSUB}}}unsubscribe": subscriptions.unsubscribe,
    f"{{{ns.PUBSUB}}}options": subscriptions.options,
    f"{{{ns.PUBSUB}}}subscriptions": subscription_lists.subscriptions,
    f"{{{ns.PUBSUB}}}affiliations": subscription_lists.affiliations,
}
_PROTOCOLS: Final[Mapping[str, Callable[[Iq, Element], Question | Answer | Batch]]] = {
    f"{{{ns.STANZAQ}}}publish": batches.publish,
    f"{{{ns.STANZAQ}}}settle": batches.settle,
    f"{{{ns.STANZAQ}}}renew": _renew,
    f"{{{ns.STANZAQ}}}locks": _locks,
    f"{{{ns.STANZAQ}}}commit": log_options.commit,
    f"{{{ns.STANZAQ}}}replay": log_options.replay,
    f"{{{ns.STANZAQ}}}partitions": log_options.partitions,
    f"{{{ns.DISCO_INFO}}}query": disco.read_info,
    f"{{{ns.PING}}}ping": software.ping,
    f"{{{ns.VERSION}}}query": software.version,
}
_GUARDED: Final[Mapping[str, Callable[[Iq, Element, commands.AdhocContext], Question | Answer]]] = {
    f"{{{ns.PUBSUB}}}pubsub": _pubsub,
    f"{{{ns.PUBSUB_OWNER}}}pubsub": _owner,
    f"{{{ns.COMMANDS}}}command": offered.read,
    f"{{{ns.DISCO_ITEMS}}}query": disco.read_items,
}
"""Readers that also need the AdhocContext, because the answer depends on the sender or on settings."""

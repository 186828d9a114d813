"""Turns IQs into commands: the entry, and the requests of publishers and workers. Must not know replies or the core."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar
from xml.etree.ElementTree import Element

from broker.model.commands import (
    Browse,
    Cancel,
    Command,
    Complete,
    CompleteAndPublish,
    Locks,
    Publish,
    ReadOutcome,
    Renew,
    RenewOwnership,
    Retract,
    RetractBatch,
    Unlock,
)
from broker.model.items.progress import Progress
from broker.model.positions import Position
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import disco, software, stanzas
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, offered
from frontends.xmpp.errors import Unserved
from frontends.xmpp.messages import publishing
from frontends.xmpp.pubsub import (
    approvals,
    attributes,
    batches,
    log_options,
    owner_requests,
    paging,
    payloads,
    schedules,
    subscription_lists,
    subscriptions,
)
from frontends.xmpp.stanzas import BatchRequest, DoorAnswer, Iq, Question, View, expect, only_child
from frontends.xmpp.xml import forms

_Settling = TypeVar("_Settling", Retract, Unlock, Renew)
"""A command that a row of a settle gives."""

_ITEM: Final = f"{{{ns.PUBSUB}}}item"
_RESULT: Final = f"{{{ns.STANZAQ}}}result"
_THEN: Final = f"{{{ns.STANZAQ}}}then"
_CONFIGURE: Final = f"{{{ns.PUBSUB}}}configure"
_DEFAULT: Final = f"{{{ns.PUBSUB}}}default"
_PUBLISH_OPTIONS: Final = f"{{{ns.PUBSUB}}}publish-options"

REQUEST_CHARACTERS: Final = 256
"""The longest IQ id that identifies a request for replay (Q27); libraries use shorter ones, and each is stored for a while."""

BROWSE_DEFAULT: Final = 50
BROWSE_MOST: Final = 500


def read(iq: Iq, context: commands.AdhocContext = commands.NOBODY) -> Question | DoorAnswer | BatchRequest:
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


def translate_at_node(iq: Iq, service: str) -> Question:
    """Translate a request to a node's address: service discovery alone, since the service itself is one JID (QX6)."""
    node = publishing.node_at(iq.service, service)
    found = disco.read_address(iq, node) if node else None
    if found is None:
        raise Unserved(detail=f"the service is {service}")
    return found


def is_get_for_set(question: Question) -> bool:
    """Tell whether a change came in a get: XEP-0254's examples do that, against RFC 6120 (QX1)."""
    return question.iq.kind == "get" and isinstance(question.command, Retract | RetractBatch | Unlock)


def _pubsub(iq: Iq, pubsub: Element, context: commands.AdhocContext) -> Question | DoorAnswer:
    pubsub = stanzas.drop_foreign(pubsub, ns.PUBSUB, ns.QUEUEING, ns.RSM)
    if not len(pubsub):
        raise MalformedRequest(Problem.BAD_REQUEST, "the request is empty")
    tag = pubsub[0].tag
    if reader := _ACTIONS.get(tag):
        return Question(iq, reader(iq, pubsub))
    if ending := _ENDINGS.get(tag):
        return ending(iq, pubsub)
    if tag == _DEFAULT:
        return subscriptions.default(iq, pubsub, context.node)
    if tag == _CONFIGURE:
        raise MalformedRequest(Problem.BAD_REQUEST, "a configure follows a create (XEP-0060 8.1.3)")
    raise MalformedRequest(Problem.UNSUPPORTED, "no such request in XEP-0060")


def _owner(iq: Iq, pubsub: Element, context: commands.AdhocContext) -> Question | DoorAnswer:
    return owner_requests.read(iq, pubsub, context.node)


def _publish(iq: Iq, pubsub: Element) -> Publish:
    options = None
    if len(pubsub) == 2 and pubsub[1].tag == _PUBLISH_OPTIONS:
        expect(iq, "set")
        publish, options = pubsub[0], _options(pubsub[1])
    else:
        publish = only_child(iq, pubsub, "set")
    return _publish_item(iq, attributes.node(publish), _read_one_item(publish), publish.find(attributes.HINT), options)


def _publish_item(
    iq: Iq, node: str, item: Element, hint: Element | None, options: Mapping[str, tuple[str, ...]] | None = None
) -> Publish:
    name = None if item.get("id") is None else attributes.item_id(item)
    if hint is None and len(item.attrib) == (name is not None):
        # Fast path for an item with no attribute but its id.
        return Publish(node, iq.sender, name, *payloads.read_payload(item), options=options)
    envelope, body_bytes = payloads.read_payload(item, attributes.read_trace(item, hint))
    return Publish(
        node,
        iq.sender,
        name,
        envelope,
        body_bytes,
        partition=attributes.partition(item, hint),
        key=attributes.group_key(item, hint),
        options=options,
        hints=attributes.hints(item, hint),
    )


def _options(wanted: Element) -> Mapping[str, tuple[str, ...]] | None:
    """Read the required configuration of the node; without a form nothing is required (XEP-0060 §7.1.5)."""
    form = wanted.find(forms.FORM)
    fields = None if form is None else forms.read(form, ns.PUBSUB_PUBLISH_OPTIONS)
    return fields or None


def _retract(iq: Iq, pubsub: Element) -> Question:
    retract = only_child(iq, pubsub, iq.kind)
    node, hint = attributes.node(retract), retract.find(attributes.HINT)
    view = None if hint is None else _view(hint)
    if len(retract) > 1:
        items = [child for child in retract if child.tag.endswith("}item")]
        if len(items) > 1:
            if retract.find(f".//{_RESULT}") is not None or retract.find(f".//{_THEN}") is not None:
                raise MalformedRequest(
                    Problem.BAD_REQUEST,
                    "a result, and what is published then, belong to one item: retract it alone, or use a settle",
                )
            whole = batches.translate_whole(items, lambda item: _retract_item(iq, node, item, hint))
            return Question(iq, RetractBatch(node, iq.sender, whole), view)
    item = _read_one_item(retract)
    # Within the item or beside it.
    result, then = _told(item) if len(item) else _NOTHING_TOLD
    if len(retract) > 1:
        beside, more = _told(retract)
        result, then = beside if result is None else result, [*then, *more]
    return Question(iq, _retract_item(iq, node, item, hint, result, then), view)


_Told = tuple[Element | None, Sequence[Element]]
"""A result, and the items that are published then."""

_NOTHING_TOLD: Final[_Told] = None, ()


def _told(ending: Element) -> _Told:
    return ending.find(_RESULT), ending.findall(_THEN)


def _view(hint: Element) -> View | None:
    """Read whether the sender wants no notification that its own lock has ended, which the result tells too."""
    return None if attributes.notify(hint) else View.RESULT_ONLY


def _retract_item(  # noqa: PLR0913, PLR0917  (what an acknowledgement may have)
    iq: Iq,
    node: str,
    item: Element,
    hint: Element | None,
    result: Element | None = None,
    then: Sequence[Element] = (),
) -> Retract:
    if result is not None or then:
        about = node, iq.sender, attributes.item_id(item), attributes.token(item), _request(iq)
        where, told = attributes.partition(item, hint), _NO_RESULT if result is None else payloads.read_payload(result)
        if not then:
            return Complete(*about, where, *told)
        return CompleteAndPublish(*about, where, *told, tuple(_publish_then(iq, each) for each in then))
    return Retract(
        node,
        iq.sender,
        attributes.item_id(item),
        attributes.token(item),
        _request(iq),
        attributes.partition(item, hint),
    )


_NO_RESULT: Final = b"", 0


def _publish_then(iq: Iq, then: Element) -> Publish:
    return _publish_item(iq, attributes.node(then), _read_one_item(then), None)


def _unlock(iq: Iq, pubsub: Element) -> Question:
    unlock = only_child(iq, pubsub, iq.kind)
    node, item = attributes.node(unlock), _read_one_item(unlock)
    hint = unlock.find(attributes.HINT)
    if hint is None:
        hint = item.find(attributes.HINT)
    return Question(iq, _unlock_item(iq, node, item, hint), None if hint is None else _view(hint))


def _unlock_item(iq: Iq, node: str, item: Element, hint: Element | None) -> Unlock:
    if hint is None:
        return Unlock(
            node,
            iq.sender,
            attributes.item_id(item),
            attributes.token(item),
            request=_request(iq),
            partition=attributes.partition(item),
        )
    return Unlock(
        node,
        iq.sender,
        attributes.item_id(item),
        attributes.token(item),
        attributes.delay_ms(hint),
        attributes.reason(hint),
        attributes.dead_letter(hint),
        _request(iq),
        attributes.partition(item, hint),
        attributes.untried(hint),
    )


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
    limit = BROWSE_DEFAULT if most is None else attributes.parse_whole(most, 10**9, Problem.BAD_REQUEST, "max_items")
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


def _place(text: str | None) -> Position | None:
    """Parse where a page begins or ends; an invalid value is not found (XEP-0059 §2.4)."""
    try:
        return Position.parse(text) if text else None
    except ValueError:
        raise MalformedRequest(Problem.ITEM_NOT_FOUND, "after and before must come from `last` and `first`") from None


def _renew(iq: Iq, renew: Element) -> Question:
    expect(iq, "set")
    node = attributes.node(renew)
    if not len(renew):
        # Without an item it is an owner's heartbeat (EX16).
        return Question(iq, RenewOwnership(node, iq.sender))
    return Question(iq, _renew_item(iq, node, _read_one_item(renew), renew.find(attributes.HINT), renew))


def _renew_item(iq: Iq, node: str, item: Element, hint: Element | None, told: Element) -> Renew:
    return Renew(
        node,
        iq.sender,
        attributes.item_id(item),
        attributes.token(item),
        attributes.partition(item, hint),
        progress=Progress.validate(told.get("progress"), told.get("note", "")),
        begun=attributes.begun(told),
    )


def _publish_batch(iq: Iq, publish: Element) -> BatchRequest:
    # A hint beside the items holds for all of them.
    hint = publish.find(attributes.HINT)

    def item(iq: Iq, node: str, row: Element) -> Publish:
        return _publish_item(iq, node, row, hint)

    readers = {f"{{{ns.STANZAQ}}}item": item, _ITEM: item}
    return batches.read(iq, publish, readers, beside=attributes.HINT)


def _cancel(iq: Iq, cancel: Element) -> BatchRequest:
    return batches.read(iq, cancel, {f"{{{ns.STANZAQ}}}item": _cancel_item})


def _cancel_item(iq: Iq, node: str, row: Element) -> Cancel:
    return Cancel(node, iq.sender, attributes.item_id(row), attributes.partition(row))


def _settle(iq: Iq, settle: Element) -> BatchRequest:
    return batches.read(iq, settle, _SETTLED)


def _ack(iq: Iq, node: str, row: Element) -> Retract:
    return _require_token(_retract_item(iq, node, row, None, *(_told(row) if len(row) else _NOTHING_TOLD)))


def _release(iq: Iq, node: str, row: Element) -> Unlock:
    return _require_token(_unlock_item(iq, node, row, row))


def _renew_row(iq: Iq, node: str, row: Element) -> Renew:
    return _require_token(_renew_item(iq, node, row, None, row))


def _require_token(command: _Settling) -> _Settling:
    if command.token is None:
        raise MalformedRequest(Problem.BAD_REQUEST, "each item needs the token of its lock")
    return command


def _outcome(iq: Iq, outcome: Element) -> Question:
    expect(iq, "get")
    return Question(iq, ReadOutcome(attributes.node(outcome), iq.sender, attributes.item_id(_read_one_item(outcome))))


def _locks(iq: Iq, locks: Element) -> Question:
    expect(iq, "get")
    return Question(iq, Locks(attributes.node(locks), iq.sender))


def _read_one_item(action: Element) -> Element:
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


def _request(iq: Iq) -> str:
    return iq.id if len(iq.id) <= REQUEST_CHARACTERS else ""


_SETTLED: Final[Mapping[str, batches.ReadRow]] = {
    f"{{{ns.STANZAQ}}}ack": _ack,
    f"{{{ns.STANZAQ}}}release": _release,
    f"{{{ns.STANZAQ}}}renew": _renew_row,
}
_ACTIONS: Final[Mapping[str, Callable[[Iq, Element], Command]]] = {
    f"{{{ns.PUBSUB}}}publish": _publish,
    f"{{{ns.PUBSUB}}}items": _browse,
    f"{{{ns.PUBSUB}}}create": owner_requests.create,
    f"{{{ns.PUBSUB}}}subscribe": subscriptions.subscribe,
    f"{{{ns.PUBSUB}}}unsubscribe": subscriptions.unsubscribe,
    f"{{{ns.PUBSUB}}}options": subscriptions.options,
    f"{{{ns.PUBSUB}}}subscriptions": subscription_lists.subscriptions,
    f"{{{ns.PUBSUB}}}affiliations": subscription_lists.affiliations,
}
_ENDINGS: Final[Mapping[str, Callable[[Iq, Element], Question]]] = {
    f"{{{ns.PUBSUB}}}retract": _retract,
    f"{{{ns.QUEUEING}}}unlock": _unlock,
}
_PROTOCOLS: Final[Mapping[str, Callable[[Iq, Element], Question | DoorAnswer | BatchRequest]]] = {
    f"{{{ns.STANZAQ}}}publish": _publish_batch,
    f"{{{ns.STANZAQ}}}settle": _settle,
    f"{{{ns.STANZAQ}}}cancel": _cancel,
    f"{{{ns.STANZAQ}}}renew": _renew,
    f"{{{ns.STANZAQ}}}outcome": _outcome,
    f"{{{ns.STANZAQ}}}locks": _locks,
    f"{{{ns.STANZAQ}}}schedule": schedules.put,
    f"{{{ns.STANZAQ}}}schedules": schedules.listing,
    f"{{{ns.STANZAQ}}}pause-schedule": schedules.pause,
    f"{{{ns.STANZAQ}}}resume-schedule": schedules.resume,
    f"{{{ns.STANZAQ}}}unschedule": schedules.remove,
    f"{{{ns.STANZAQ}}}requests": approvals.list_requests,
    f"{{{ns.STANZAQ}}}decide": approvals.decide,
    f"{{{ns.STANZAQ}}}commit": log_options.commit,
    f"{{{ns.STANZAQ}}}replay": log_options.replay,
    f"{{{ns.STANZAQ}}}partitions": log_options.partitions,
    f"{{{ns.PING}}}ping": software.ping,
    f"{{{ns.VERSION}}}query": software.version,
}
_GUARDED: Final[Mapping[str, Callable[[Iq, Element, commands.AdhocContext], Question | DoorAnswer]]] = {
    f"{{{ns.PUBSUB}}}pubsub": _pubsub,
    f"{{{ns.PUBSUB_OWNER}}}pubsub": _owner,
    f"{{{ns.COMMANDS}}}command": offered.read,
    f"{{{ns.DISCO_INFO}}}query": disco.read_info,
    f"{{{ns.DISCO_ITEMS}}}query": disco.read_items,
}
"""Readers that also need the AdhocContext, because the answer depends on the sender or on settings."""

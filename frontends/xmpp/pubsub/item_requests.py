"""Turns what a request asks about one item into a command. Must not know in which request the item came."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Publish, Renew, Retract, Unlock
from frontends.xmpp.pubsub import attributes, payloads
from frontends.xmpp.stanzas import Iq

REQUEST_CHARACTERS: Final = 256
"""The longest IQ id that identifies a request for replay (Q27); libraries use shorter ones, and each is stored for a while."""


def publish(
    iq: Iq, node: str, item: Element, hint: Element | None, options: Mapping[str, tuple[str, ...]] | None = None
) -> Publish:
    """Read an item to publish; `options` is the required configuration of the node."""
    name = None if item.get("id") is None else attributes.item_id(item)
    if hint is None and len(item.attrib) == (name is not None):
        # Fast path for an item with no attribute but its id.
        return Publish(node, iq.sender, name, *payloads.taken(item), options=options)
    envelope, body_bytes = payloads.taken(item, attributes.traced(item, hint))
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


def retract(iq: Iq, node: str, item: Element, hint: Element | None) -> Retract:
    """Read an item to acknowledge or to delete."""
    return Retract(
        node,
        iq.sender,
        attributes.item_id(item),
        attributes.token(item),
        _request(iq),
        attributes.partition(item, hint),
    )


def unlock(iq: Iq, node: str, item: Element, hint: Element | None) -> Unlock:
    """Read an item to release."""
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
    )


def renew(iq: Iq, node: str, item: Element, hint: Element | None) -> Renew:
    """Read an item whose lock time restarts."""
    partition = attributes.partition(item, hint)
    return Renew(node, iq.sender, attributes.item_id(item), attributes.token(item), partition)


def _request(iq: Iq) -> str:
    return iq.id if len(iq.id) <= REQUEST_CHARACTERS else ""

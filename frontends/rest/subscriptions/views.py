"""Turns results of the core into views of subscriptions and their messages. Pure."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.frozen import frozen
from broker.model.results import HeldItem, Received, Subscribed
from broker.model.times import moment
from frontends.rest import paths, replies
from frontends.rest.formats import documents
from frontends.rest.formats.views import HeldMessages, Lock, Message
from frontends.rest.http import negotiation
from frontends.rest.http.values import Response
from frontends.rest.subscriptions.requests import PullSubscription

ACTIONS: Final = ("complete", "then", "release", "renew", "dead-letter")


def view_held(subscription: PullSubscription, item: HeldItem) -> Message:
    """Return the view of a held message; raises CorruptRecord."""
    envelope = codec.unpack(item.envelope)
    path, query = subscription.message(item)
    actions = {action: f"{path}/{action}{query}" for action in ACTIONS}
    return Message(
        item.partition.node,
        item.item_id,
        "locked",
        item.publisher,
        item.published_ms,
        payloads.kind(envelope),
        envelope.body,
        payloads.shown_headers(envelope),
        payloads.element(envelope),
        Lock(
            path + query,
            actions,
            item.token,
            item.attempt,
            item.of,
            item.deadline_ms,
            item.lock_seconds,
            item.key,
            item.reply,
        ),
    )


def view_subscription(of: PullSubscription, found: Received, messages: Iterable[Message]) -> HeldMessages:
    """Return the view of a subscription with the views of its messages."""
    return HeldMessages(of.href, of.node, found.until_ms, list(messages), found.more, found.owned)


@frozen
class ShownSubscription:
    """A subscription with its destinations and options."""

    subscription: PullSubscription
    destinations: tuple[str, ...]
    options: Subscribed


def answer_subscribed(shown: ShownSubscription) -> Response:
    """Answer that a subscription was created, and where."""
    body, at = documents.write_json(_write_subscription(shown)), {"Location": shown.subscription.href}
    return Response(HTTPStatus.CREATED, body, negotiation.JSON, at)


def answer_subscriptions(shown: Sequence[ShownSubscription], first: int, limit: int, total: int) -> Response:
    """Answer with the sender's own subscriptions."""
    said: dict[str, Any] = {"subscriptions": [_write_subscription(each) for each in shown], "total": total}
    if first + limit < total:
        said["next"] = f"{paths.SUBSCRIPTIONS}?{urlencode({'first': first + limit, 'limit': limit})}"
    return replies.json(said)


def _write_subscription(one: ShownSubscription) -> dict[str, Any]:
    return {
        "id": str(one.subscription),
        "href": one.subscription.href,
        "destinations": list(one.destinations),
        "prefetch": one.options.credit,
        "expires": moment(one.options.until_ms),
        "selector": one.options.selector,
    }

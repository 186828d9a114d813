"""Turns requests into acknowledgements that also publish. Pure; must not know answers or the core."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from broker.model.commands import CompleteAndPublish, Publish
from broker.model.commands.items import MOST_PUBLISHED
from broker.model.problems import MalformedRequest, Problem
from frontends.rest import paths
from frontends.rest.errors import Fault
from frontends.rest.http import fields, negotiation
from frontends.rest.http.values import ApiRequest
from frontends.rest.queues import batches
from frontends.rest.queues import requests as queue_requests
from frontends.rest.subscriptions.requests import LockRef

_RESULT: Final = frozenset({"json", "text", "base64", "content_type"})


def complete_and_publish(request: ApiRequest, lock_ref: LockRef) -> CompleteAndPublish:
    """Acknowledge a message, with a result if there is one, and publish others; a repeat gets the first answer."""
    if not negotiation.is_json(request.headers.get("content-type", "")):
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-unknown", f"the body must be {negotiation.JSON}")
    said = fields.parse_json(request.body)
    then = said.get("then") if isinstance(said, dict) and not said.keys() - {"then", "result"} else None
    if not isinstance(then, list) or not 0 < len(then) <= MOST_PUBLISHED:
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            f"the body must have then, 1 to {MOST_PUBLISHED} messages, each with its queue, and perhaps a result",
        )
    publishes = tuple(_publish(request, f"then {number}", each) for number, each in enumerate(then))
    told = _read_result(said["result"]) if "result" in said else (b"", 0)
    return CompleteAndPublish(
        *(lock_ref.node, lock_ref.subscription.jid, lock_ref.item, lock_ref.token),
        *(f"acknowledge {lock_ref.text}", lock_ref.partition),
        *told,
        publishes,
    )


def _publish(request: ApiRequest, where: str, said: object) -> Publish:
    """Publish a message as in a batch that names its queue."""
    name = said.get("queue") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(name, str):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{where}: queue must be the name of one")
    node = paths.node([name], f"{where}: queue")
    sent = batches.parse_message(where, {field: value for field, value in said.items() if field != "queue"})
    own = replace(request, path=replace(request.path, node=node))
    return queue_requests.message(own, sent, sent.guid or None, "")


def _read_result(said: Any) -> tuple[bytes, int]:  # noqa: ANN401  (any JSON)
    """Read the result, a message's body and its type; returns its envelope and its size."""
    if not isinstance(said, dict) or said.keys() - _RESULT:
        raise MalformedRequest(
            Problem.BAD_REQUEST, "the result has one of json, text and base64, and perhaps content_type"
        )
    told = batches.parse_message("the result", said)
    return queue_requests.pack_envelope(told.body, told.content_type, {}), len(told.body)

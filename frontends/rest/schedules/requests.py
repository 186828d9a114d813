"""Turns requests into commands on schedules. Pure; must not know answers or the core."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from broker.model.commands import ListSchedules, PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.items import trace
from broker.model.nodes.schedules import FIELDS, Schedule, check_id
from broker.model.problems import MalformedRequest, Problem
from frontends.rest.errors import Fault
from frontends.rest.http import fields, negotiation
from frontends.rest.http.values import ApiRequest
from frontends.rest.queues import batches, requests

SAID: Final = tuple(name for name in FIELDS if name != "id")
"""The words of a schedule in a body; its id is in the path."""

_TRACE: Final = (trace.PARENT, trace.STATE)


def put(request: ApiRequest) -> PutSchedule:
    """Make or replace a schedule; the other fields of the body are those of a message in a batch."""
    said = _object(request)
    told: dict[str, Any] = {name: said[name] for name in SAID if name in said}
    if not all(isinstance(value, str) for value in told.values()):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{', '.join(told)}: each must be a string")
    schedule = Schedule.read({**told, "id": _id(request)})
    sent = batches.parse_message("the schedule", {name: value for name, value in said.items() if name not in told})
    if sent.guid or sent.asks.keys() & {"at", "reply", "keep", "after", "regardless", "confirm"}:
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            "messages of a schedule have no guid, at, reply, keep, after and confirm: they are many",
        )
    # Without a trace: each message begins one of its own.
    own = replace(request, headers={name: value for name, value in request.headers.items() if name not in _TRACE})
    made = requests.message(own, sent, None, "")
    return PutSchedule(
        request.path.node, request.sender, schedule, made.envelope, made.body_bytes, made.key, made.hints
    )


def switch(request: ApiRequest) -> PauseSchedule:
    """Pause or resume a schedule."""
    said = _object(request)
    if said.keys() != {"paused"} or not isinstance(said["paused"], bool):
        raise MalformedRequest(Problem.BAD_REQUEST, 'the body must be {"paused": true} or {"paused": false}')
    return PauseSchedule(request.path.node, request.sender, _id(request), said["paused"])


def remove(request: ApiRequest) -> RemoveSchedule:
    """Delete a schedule."""
    return RemoveSchedule(request.path.node, request.sender, _id(request))


def one(request: ApiRequest) -> ListSchedules:
    """Show one schedule."""
    return ListSchedules(request.path.node, request.sender, 1, id=_id(request))


def page(request: ApiRequest) -> ListSchedules:
    """List a page of schedules."""
    return ListSchedules(request.path.node, request.sender, fields.page(request), request.query.get("past", ""))


def _id(request: ApiRequest) -> str:
    return check_id(request.path.item)


def _object(request: ApiRequest) -> dict[str, Any]:
    if not negotiation.is_json(request.headers.get("content-type", "")):
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-unknown", f"the body must be {negotiation.JSON}")
    said = fields.parse_json(request.body)
    if not isinstance(said, dict):
        raise MalformedRequest(Problem.BAD_REQUEST, "the body must be an object")
    return said

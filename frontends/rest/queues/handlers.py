"""Handlers of operations on queues: commands to the core, results to an answer. Must not know a framework.

Handlers keep nothing between two requests.
"""

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import structlog

from broker.model.commands import Browse, Children, Delete, Describe, Publish, ReadOutcome, Reserve, Retract, Stats
from broker.model.core import Core
from broker.model.items.outcomes import ItemOutcome
from broker.model.nodes.nodes import NodeRecord, change_config, form_values
from broker.model.nodes.tree import TreeRequest, tree_request
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Described,
    Done,
    Ended,
    Listing,
    Published,
    Refused,
    Reserved,
    Result,
    Retracted,
)
from frontends.rest import replies
from frontends.rest.core_client import result
from frontends.rest.errors import Fault, fault
from frontends.rest.formats.views import Child, Message, Page
from frontends.rest.http import conditions, fields
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.queues import batches, requests, views

_LOOKS: Final = 2
"""How many pages of names one request reads to find children: the next page of the tree continues there."""

_CHILDREN: Final = 100
"""With this many children found it reads no further."""

_log = structlog.get_logger("stanzaq.rest")


async def list_queues(core: Core, request: ApiRequest) -> Response:
    """Show the root of the tree."""
    found, below = await _children(core, request)
    following = views.next_page_link(request.path, {"below": below}) if below else ""
    page = Page("", "", is_queue=False, children=found, messages=(), counted=None, options=None, following=following)
    return replies.page(page, request.wants)


async def create_queue(core: Core, request: ApiRequest) -> Response:
    """Create a queue with a generated name."""
    declared = await result(core, requests.declare(request), Declared)
    return replies.answer_declared(declared.node, made=True)


async def show_queue(core: Core, request: ApiRequest) -> Response:
    """Show the messages of a queue and the tree below it."""
    node, sender = request.path.node, request.sender
    fields.page(request)
    record = await core.ask(Describe(node, sender, as_owner=False))
    browse = requests.browse(request)
    found, below = await _children(core, request)
    if isinstance(record, Refused) and not (found or below):
        # A part of the tree exists while anything is below it, which may be late in the list.
        raise fault(record)
    if not isinstance(record, Described) or record.record.config.collects:
        following = views.next_page_link(request.path, {"below": below}) if below else ""
        title, options = "", None
        if isinstance(record, Described):
            found = await _add_children(core, request, found)
            title, options = record.record.config.title, _options(record.record, request)
        page = Page(
            node,
            title,
            is_queue=False,
            children=found,
            messages=(),
            counted=None,
            options=options,
            following=following,
        )
        return replies.page(page, request.wants)
    counted = await result(core, Stats(node, sender), Counted)
    looked = await result(core, browse, Browsed) if browse else Browsed((), more=False)
    after = str(looked.reached) if looked.reached else ""
    following = ""
    if after or below:
        # An empty cursor says that this list has ended.
        cursors = {"after": after, "below": below}
        limits = {"limit": request.query["limit"]} if "limit" in request.query else {}
        following = views.next_page_link(request.path, cursors | limits)
    return replies.page(
        Page(
            node,
            record.record.config.title,
            is_queue=True,
            children=found,
            messages=[views.message(node, item) for item in looked.items],
            counted=counted,
            options=_options(record.record, request),
            following=following,
        ),
        request.wants,
    )


async def put_queue(core: Core, request: ApiRequest) -> Response:
    """Create a queue unless it exists with these options (RX2)."""
    command = requests.declare(request)
    outcome = await core.ask(command)
    if isinstance(outcome, Refused) and outcome.problem is Problem.NODE_EXISTS:
        if conditions.creates(request.headers):
            # It was created between the check and this command.
            raise fault(conditions.unmet_fault())
        known = await core.ask(Describe(request.path.node, request.sender, as_owner=True))
        if isinstance(known, Described):
            config, (options, tree) = known.record.config, tree_request(command.options)
            same = change_config(config, options) == config and tree.parent in {None, known.record.parent}
            if same and await _has_children(core, request, tree):
                return replies.answer_declared(request.path.node, made=False)
            raise fault(
                MalformedRequest(Problem.NODE_EXISTS, "the queue exists with other options: PATCH changes them")
            )
    if isinstance(outcome, Refused):
        raise fault(outcome)
    return replies.answer_declared(request.path.node, made=True)


async def _has_children(core: Core, request: ApiRequest, tree: TreeRequest) -> bool:
    """Return whether a queue has the children that a request names, or the request names none."""
    if tree.children is None:
        return True
    listing = await core.ask(Children(request.path.node, request.sender))
    return isinstance(listing, Listing) and set(listing.nodes) == set(tree.children)


async def configure_queue(core: Core, request: ApiRequest) -> Response:
    """Change options of a queue."""
    await result(core, requests.configure(request), Done)
    return replies.answer_done()


async def delete_queue(core: Core, request: ApiRequest) -> Response:
    """Delete a queue with everything in it."""
    await result(core, Delete(request.path.node, request.sender), Done)
    return replies.answer_done()


async def send_message(core: Core, request: ApiRequest) -> Response:
    """Publish a message; without a body and a client's id, reserve one (RX1)."""
    node, guid = request.path.node, requests.guid(request)
    if guid:
        return replies.answer_published(node, await _publish(core, requests.publish_once(request, guid)), HTTPStatus.OK)
    if not request.body:
        return replies.answer_reserved(node, await result(core, Reserve(node, request.sender), Reserved))
    published = await result(core, requests.publish(request, None), Published)
    return replies.answer_published(node, published, HTTPStatus.CREATED)


async def send_batch(core: Core, request: ApiRequest) -> Response:
    """Publish several messages, each with its own result."""
    commands = [_command(request, part) for part in batches.read(request)]
    outcomes = await asyncio.gather(*(_outcome(core, each) for each in commands))
    return replies.batch(request.path.node, outcomes)


async def redeem_message(core: Core, request: ApiRequest) -> Response:
    """Send the body of a reserved message."""
    return replies.answer_published(
        request.path.node, await result(core, requests.redeem(request), Published), HTTPStatus.OK
    )


async def delete_message(core: Core, request: ApiRequest) -> Response:
    """Delete a message that nobody holds, as its publisher or the queue's owner (§1.7, row 10)."""
    await result(core, Retract(request.path.node, request.sender, request.path.item), Retracted)
    return replies.answer_done()


async def show_message(core: Core, request: ApiRequest) -> Response:
    """Show a message; with `wait` its end, as soon as it has ended."""
    path, seconds = request.path, requests.wait(request)
    looked = await core.ask(_browse(request))
    if seconds or not _is_there(looked):
        # It may end between a look at its end and one at the queue.
        for wait in (seconds, 0):
            ended = await core.ask(ReadOutcome(path.node, request.sender, path.item, wait))
            if isinstance(ended, Ended) and ended.outcome:
                return _end(path.node, ended.outcome)
            looked = await core.ask(_browse(request))
            if _is_there(looked):
                break
            if isinstance(looked, Refused) and isinstance(ended, Ended) and ended.awaited:
                return replies.answer_pending(path.node, path.item)
    return replies.message(_message(request, looked), request.wants)


async def show_content(core: Core, request: ApiRequest) -> Response:
    """Return a message's body, byte for byte."""
    return replies.content(_message(request, await core.ask(_browse(request))))


async def _children(core: Core, request: ApiRequest) -> tuple[list[Child], str]:
    """Find the children of a part of the tree, and the name to continue after, if any."""
    looked = requests.names(request)
    if looked is None:
        return [], ""
    names: list[str] = []
    collections: set[str] = set()
    found: list[Child] = []
    for _ in range(_LOOKS):
        listing = await result(core, looked, Listing)
        names += listing.nodes
        collections |= listing.collections
        found = views.children(names, request.path.node, collections)
        if not listing.more or not listing.nodes:
            return found, ""
        if len(found) >= _CHILDREN:
            break
        looked = requests.list_after(request, listing.nodes[-1])
    return found, names[-1]


async def _add_children(core: Core, request: ApiRequest, found: list[Child]) -> list[Child]:
    """Add a collection's children on the first page (RX4): they always fit one page."""
    if "below" in request.query:
        return found
    listing = await result(core, Children(request.path.node, request.sender), Listing)
    inside = [Child(name, name not in listing.collections) for name in listing.nodes]
    known = {child.name for child in inside}
    return [*inside, *(child for child in found if child.name not in known)]


def _options(record: NodeRecord, request: ApiRequest) -> dict[str, str] | None:
    """Return the options, for those that may see them."""
    shown = record.is_owned_by(Describe(record.name, request.sender, as_owner=True))
    return form_values(record.name, record.config) if shown else None


def _browse(request: ApiRequest) -> Browse:
    return Browse(request.path.node, request.sender, (request.path.item,), 1)


def _is_there(looked: Result) -> bool:
    return isinstance(looked, Browsed) and bool(looked.items)


def _message(request: ApiRequest, looked: Result) -> Message:
    """Return the one message that was looked at; raises Fault if it is not there."""
    if isinstance(looked, Refused):
        raise fault(looked)
    assert isinstance(looked, Browsed)
    if not looked.items:
        raise fault(MalformedRequest(Problem.ITEM_NOT_FOUND, "there is no such message, or not any more"))
    return views.message(request.path.node, looked.items[0])


def _end(node: str, ended: ItemOutcome) -> Response:
    """Answer how a message has ended, without a result that cannot be read."""
    try:
        return replies.outcome(node, ended)
    except CorruptRecord as wrong:
        _log.error("a result cannot be read", node=node, item=ended.item_id, error=str(wrong))
        return replies.outcome(node, replace(ended, envelope=b""))


def _command(request: ApiRequest, part: requests.NewMessage | Fault) -> Publish | Fault:
    if isinstance(part, Fault):
        return part
    try:
        return requests.message(request, part, part.guid or None, part.guid)
    except MalformedRequest as refusal:
        return fault(refusal)
    except Fault as refusal:
        return refusal


async def _outcome(core: Core, command: Publish | Fault) -> Published | Fault:
    if isinstance(command, Fault):
        return command
    try:
        return await _publish(core, command)
    except Fault as refusal:
        return refusal


async def _publish(core: Core, command: Publish) -> Published:
    """Publish; raises Fault if a different message was published under the same key."""
    published = await result(core, command, Published)
    if published.differs:
        detail = "Idempotency-Key: another message was sent with this key"
        raise Fault(HTTPStatus(422), "idempotency-key-used", detail)
    return published

"""Handlers of owners' and administrators' operations: commands to the core, results to an answer. Must not know a framework.

The core checks permissions. Handlers keep nothing between two requests.
"""

import asyncio
from http import HTTPStatus

from broker.model.commands import (
    Describe,
    Frontends,
    InspectItems,
    ListEnds,
    ListRequests,
    ListSubscribers,
    Purge,
    SetQuota,
    ShowHistory,
)
from broker.model.core import Core
from broker.model.results import (
    Described,
    Done,
    EndList,
    FrontendList,
    History,
    InspectedItems,
    MovedItems,
    Overviewed,
    Purged,
    QuotaList,
    Refused,
    Released,
    SubscriptionList,
)
from frontends.rest import replies
from frontends.rest.admin import requests, views
from frontends.rest.core_client import result
from frontends.rest.errors import fault
from frontends.rest.http import fields
from frontends.rest.http.values import ApiRequest, Response


async def show_overview(core: Core, request: ApiRequest) -> Response:
    """List queues with their counts."""
    command = requests.overview(request)
    return views.overview(command, await result(core, command, Overviewed))


async def show_survey(core: Core, request: ApiRequest) -> Response:
    """List items with their details, for the queue's owner."""
    command, preview = requests.survey(request), fields.preview(request)
    return views.survey(request, preview, await result(core, command, InspectedItems))


async def list_ends(core: Core, request: ApiRequest) -> Response:
    """List how items have ended, for the queue's owner."""
    node, preview = request.path.node, fields.preview(request)
    return views.ends(node, preview, await result(core, ListEnds(node, request.sender, fields.page(request)), EndList))


async def list_subscribers(core: Core, request: ApiRequest) -> Response:
    """List a queue's subscribers."""
    return views.subscribers(await result(core, ListSubscribers(request.path.node, request.sender), SubscriptionList))


async def list_affiliations(core: Core, request: ApiRequest) -> Response:
    """List a queue's affiliations."""
    described = await result(core, Describe(request.path.node, request.sender, as_owner=True), Described)
    return views.affiliations(described.record)


async def change_affiliations(core: Core, request: ApiRequest) -> Response:
    """Change affiliations of a queue, all of them or none."""
    await result(core, requests.affiliate(request), Done)
    return replies.answer_done()


async def list_requests(core: Core, request: ApiRequest) -> Response:
    """List who asks to subscribe to a queue."""
    return views.requests(await result(core, ListRequests(request.path.node, request.sender), SubscriptionList))


async def decide_request(core: Core, request: ApiRequest) -> Response:
    """Approve or refuse a request for a subscription."""
    await result(core, requests.decide(request), Done)
    return replies.answer_done()


async def show_history(core: Core, request: ApiRequest) -> Response:
    """Return the samples of a queue's last hour."""
    return views.history(await result(core, ShowHistory(request.path.node, request.sender), History))


async def list_frontends(core: Core, request: ApiRequest) -> Response:
    """List the frontends of all doors."""
    return views.frontends(await result(core, Frontends(request.sender), FrontendList))


async def list_quotas(core: Core, request: ApiRequest) -> Response:
    """List quotas and what is used of them."""
    return views.quotas(await result(core, requests.quotas(request), QuotaList))


async def put_quota(core: Core, request: ApiRequest) -> Response:
    """Set a quota."""
    await result(core, requests.quota(request), Done)
    return Response(HTTPStatus.NO_CONTENT)


async def delete_quota(core: Core, request: ApiRequest) -> Response:
    """Clear a quota."""
    await result(core, SetQuota(request.sender, request.path.item, None), Done)
    return Response(HTTPStatus.NO_CONTENT)


async def redrive(core: Core, request: ApiRequest) -> Response:
    """Redrive a step of dead letters: those that died in this queue, or those in a dead-letter queue."""
    order = requests.redrive(request)
    letters = await _letters(core, order)
    outcome = await result(core, order.step(letters), MovedItems)
    return views.redriven(outcome, "" if letters == order.node else requests.ELSEWHERE)


async def release(core: Core, request: ApiRequest) -> Response:
    """Force the end of locks."""
    return views.write_released(await result(core, requests.release(request), Released))


async def cancel(core: Core, request: ApiRequest) -> Response:
    """Cancel messages, each with its own result."""
    outcomes = await asyncio.gather(*map(core.ask, requests.cancel(request)))
    return replies.answer_settled([fault(each) if isinstance(each, Refused) else None for each in outcomes])


async def purge(core: Core, request: ApiRequest) -> Response:
    """Delete all waiting messages (P25)."""
    return views.write_purged(await result(core, Purge(request.path.node, request.sender), Purged))


async def _letters(core: Core, order: requests.Redrive) -> str:
    """Return the queue with the dead letters: the named one if it has any of another queue's, else its dead-letter queue."""
    node, sender = order.node, order.sender
    if order.scan and not order.elsewhere:
        return node
    if not order.scan:
        found = await result(core, InspectItems(node, sender, order.items[:1], 1), InspectedItems)
        if any(views.is_dead_letter_of_another(node, each) for each in found.items):
            return node
    config = (await result(core, Describe(node, sender, as_owner=True), Described)).record.config
    letters = config.dead_letters_of(node)
    if letters is None:
        return node
    there = await core.ask(Describe(letters, sender, as_owner=True))
    return letters if isinstance(there, Described) or order.elsewhere else node

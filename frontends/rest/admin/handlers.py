"""What each operation of owners and administrators does: commands to the core, results to an answer. Must not know a framework.

The core judges who may; holds nothing between two requests.
"""

from broker.model.commands import Describe, Frontends, ListSubscribers, Purge, ShowHistory, Survey
from broker.model.core import Core
from broker.model.results import (
    Described,
    FrontendList,
    History,
    Overviewed,
    Purged,
    Released,
    SubscriptionList,
    Surveyed,
    Transferred,
)
from frontends.rest.admin import requests, views
from frontends.rest.core_client import result
from frontends.rest.http_types import Request, Response


async def show_overview(core: Core, request: Request) -> Response:
    """Show queues with what they hold."""
    command = requests.overview(request)
    return views.overview(command, await result(core, command, Overviewed))


async def show_survey(core: Core, request: Request) -> Response:
    """Show items as their queue's owner sees them."""
    command = requests.survey(request)
    return views.survey(command, await result(core, command, Surveyed))


async def list_subscribers(core: Core, request: Request) -> Response:
    """Show who is subscribed to a queue."""
    return views.subscribers(await result(core, ListSubscribers(request.place.node, request.sender), SubscriptionList))


async def show_history(core: Core, request: Request) -> Response:
    """Show what a queue held in the last hour."""
    return views.history(await result(core, ShowHistory(request.place.node, request.sender), History))


async def list_frontends(core: Core, request: Request) -> Response:
    """Show the frontends of all doors."""
    return views.frontends(await result(core, Frontends(request.sender), FrontendList))


async def redrive(core: Core, request: Request) -> Response:
    """Send dead letters home, a step of them: those of a queue, or those in a queue that is for dead letters."""
    order = requests.redrive(request)
    letters = await _letters(core, order)
    outcome = await result(core, order.step(letters), Transferred)
    return views.redriven(outcome, "" if letters == order.node else requests.ELSEWHERE)


async def release(core: Core, request: Request) -> Response:
    """End locks by force."""
    return views.released(await result(core, requests.release(request), Released))


async def purge(core: Core, request: Request) -> Response:
    """Delete all messages that wait (P25)."""
    return views.purged(await result(core, Purge(request.place.node, request.sender), Purged))


async def _letters(core: Core, order: requests.Redrive) -> str:
    """Give the queue that holds the dead letters that are meant: the one that is named, if it does, or else that for its own."""
    node, sender = order.node, order.sender
    if order.scan and not order.elsewhere:
        return node
    if not order.scan:
        found = await result(core, Survey(node, sender, order.items[:1], 1), Surveyed)
        if any(views.died_elsewhere(node, each) for each in found.items):
            return node
    config = (await result(core, Describe(node, sender, as_owner=True), Described)).record.config
    letters = config.dead_letters_of(node)
    if letters is None:
        return node
    there = await core.ask(Describe(letters, sender, as_owner=True))
    return letters if isinstance(there, Described) or order.elsewhere else node

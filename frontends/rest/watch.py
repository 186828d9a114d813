"""What each operation of owners and administrators does: commands to the core, results to an answer. Must not know a framework.

The core judges who may; holds nothing between two requests.
"""

from broker.model.access import ListSubscribers
from broker.model.commands import Describe, Purge
from broker.model.core import Core
from broker.model.frontends import FrontendList, Frontends
from broker.model.oversight import ShowHistory, Survey
from broker.model.results import (
    Described,
    History,
    Overviewed,
    Purged,
    Released,
    SubscriptionList,
    Surveyed,
    Transferred,
)
from frontends.rest import orders, sights
from frontends.rest.asked import Answer, Asked
from frontends.rest.asking import result


async def show_overview(core: Core, asked: Asked) -> Answer:
    """Show queues with what they hold."""
    command = orders.overview(asked)
    return sights.overview(command, await result(core, command, Overviewed))


async def show_survey(core: Core, asked: Asked) -> Answer:
    """Show items as their queue's owner sees them."""
    command = orders.survey(asked)
    return sights.survey(command, await result(core, command, Surveyed))


async def list_subscribers(core: Core, asked: Asked) -> Answer:
    """Show who is subscribed to a queue."""
    return sights.subscribers(await result(core, ListSubscribers(asked.place.node, asked.sender), SubscriptionList))


async def show_history(core: Core, asked: Asked) -> Answer:
    """Show what a queue held in the last hour."""
    return sights.history(await result(core, ShowHistory(asked.place.node, asked.sender), History))


async def list_frontends(core: Core, asked: Asked) -> Answer:
    """Show the frontends of all doors."""
    return sights.frontends(await result(core, Frontends(asked.sender), FrontendList))


async def redrive(core: Core, asked: Asked) -> Answer:
    """Send dead letters home, a step of them: those of a queue, or those in a queue that is for dead letters."""
    order = orders.redrive(asked)
    letters = await _letters(core, order)
    outcome = await result(core, order.step(letters), Transferred)
    return sights.redriven(outcome, "" if letters == order.node else orders.ELSEWHERE)


async def release(core: Core, asked: Asked) -> Answer:
    """End locks by force."""
    return sights.released(await result(core, orders.release(asked), Released))


async def purge(core: Core, asked: Asked) -> Answer:
    """Delete all messages that wait (P25)."""
    return sights.purged(await result(core, Purge(asked.place.node, asked.sender), Purged))


async def _letters(core: Core, order: orders.Redrive) -> str:
    """Give the queue that holds the dead letters that are meant: the one that is named, if it does, or else that for its own."""
    node, sender = order.node, order.sender
    if order.scan and not order.elsewhere:
        return node
    if not order.scan:
        found = await result(core, Survey(node, sender, order.items[:1], 1), Surveyed)
        if any(sights.died_elsewhere(node, each) for each in found.items):
            return node
    config = (await result(core, Describe(node, sender, as_owner=True), Described)).record.config
    letters = config.dead_letters_of(node)
    if letters is None:
        return node
    there = await core.ask(Describe(letters, sender, as_owner=True))
    return letters if isinstance(there, Described) or order.elsewhere else node

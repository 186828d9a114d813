"""What each operation of owners and administrators does: commands to the core, results to an answer. Must not know a framework.

The core judges who may; holds nothing between two requests.
"""

from broker.model.access import ListSubscribers
from broker.model.commands import Purge
from broker.model.core import Core
from broker.model.frontends import FrontendList, Frontends
from broker.model.results import Overviewed, Purged, Released, SubscriptionList, Surveyed, Transferred
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


async def list_frontends(core: Core, asked: Asked) -> Answer:
    """Show the frontends that hand items out."""
    return sights.frontends(await result(core, Frontends(asked.sender), FrontendList))


async def redrive(core: Core, asked: Asked) -> Answer:
    """Send dead letters home, a step of them."""
    return sights.redriven(await result(core, orders.redrive(asked), Transferred))


async def release(core: Core, asked: Asked) -> Answer:
    """End locks by force."""
    return sights.released(await result(core, orders.release(asked), Released))


async def purge(core: Core, asked: Asked) -> Answer:
    """Delete all messages that wait (P25)."""
    return sights.purged(await result(core, Purge(asked.place.node, asked.sender), Purged))

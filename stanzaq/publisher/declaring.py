"""Creates, compares and changes a node as a program declares it. Must not know any transport."""

import logging
from typing import Final

from stanzaq.errors import StanzaqError
from stanzaq.queue import CREATES, Create, Queue
from stanzaq.transport.interface import Sender

log = logging.getLogger("stanzaq")

_CREATED: Final = {"stanzaq#dedupe": "ignore"}
"""An option of a created node, unless it is declared: a repeated publish is ignored, even if the item is already completed."""


def check_create(create: Create) -> Create:
    """Return what is to be done with nodes; raises ValueError with the fault and its remedy."""
    if create not in CREATES:
        msg = f"create={create!r}: it is 'never', 'if-missing' or 'update'"
        raise ValueError(msg)
    return create


async def declare(sender: Sender, queue: Queue, create: Create) -> None:
    """Make a node what is declared, or compare it; raises StanzaqError, which names each option that differs."""
    found = await _read_options(sender, queue, create)
    if found is None:
        if create == "never":
            msg = f'cannot find {queue.name}: item-not-found: create the node, or give create="if-missing"'
            raise StanzaqError(msg, "item-not-found")
        try:
            await sender.create(queue.name, _CREATED | queue.options)
        except StanzaqError as error:
            if error.condition != "conflict":
                raise
            # Somebody else has just created it.
            found = await _read_options(sender, queue, create)
    differences = queue.differences(found) if found else {}
    if differences and create == "update":
        await sender.configure(queue.name, {name: queue.options[name] for name in differences})
        log.info("%s changed: %s", queue.name, "; ".join(differences.values()))
    elif differences:
        msg = f"{queue.name}: {'; '.join(differences.values())}"
        raise StanzaqError(msg, "conflict")


async def _read_options(sender: Sender, queue: Queue, create: Create) -> dict[str, str] | None:
    """Return the options of a node, none if only its owners see them; None if there is no such node. Raises StanzaqError."""
    try:
        return await sender.options(queue.name)
    except StanzaqError as error:
        if error.condition != "forbidden" or (queue.options and create == "update"):
            raise
        if queue.options:
            log.warning("%s is not compared with its declaration: only its owners see its options", queue.name)
        return {}

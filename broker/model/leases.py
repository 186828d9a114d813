"""Leases: subscriptions that end by themselves, and whose items are not sent but come for. Values only; must not know a door.

A lease is a subscription of a full JID whose resource is made up, so that one user may have many, each with credit of its own.
"""

import re
from typing import Final

from broker.model.names import Jid, resource

_RESOURCE: Final = re.compile(r"lease-[0-9a-f]{16}")


def lease_jid(owner: Jid, name: str) -> Jid:
    """Give the JID of a lease of `owner`; its name is 16 hexadecimal digits."""
    return Jid(f"{owner}/lease-{name}")


def is_lease(jid: str) -> bool:
    """Tell whether a JID is a lease's: nobody is there to be told anything."""
    return _RESOURCE.fullmatch(resource(jid)) is not None


def own_view(node: str, jid: Jid) -> bool:
    """Tell whether a node is a collection that was made for one lease alone, and ends with it."""
    return is_lease(jid) and node == resource(jid)

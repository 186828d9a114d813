"""Pull subscriptions: their items are fetched, not sent, and they expire unless renewed. Values only; must not know a door.

A pull subscription has a full JID with a made-up resource, so one user may have many, each with its own credit. Its name ends
with the seconds that its user extends it by, so that a list of subscriptions can return that; 0 if it belongs to a connection.
"""

import re
import secrets
from typing import Final

from broker.model.frozen import frozen
from broker.model.names import Jid, resource

_RESOURCE: Final = re.compile(r"lease-[0-9a-f]{11}([0-9a-f]{5})")


def new_pull_name(seconds: int = 0) -> str:
    """Generate a name: 16 hexadecimal digits, the last five of them the seconds."""
    return f"{secrets.randbits(44):011x}{seconds:05x}"


def lease_seconds(jid: Jid) -> int:
    """Return the seconds by which its user extends a pull subscription; 0 if it belongs to a connection, or is none."""
    found = _RESOURCE.fullmatch(resource(jid))
    return int(found[1], 16) if found else 0


def record_name(name: str) -> str:
    """Return the name of the record that a pull subscription to several destinations has."""
    return f"lease-{name}"


def pull_jid(owner: Jid, name: str) -> Jid:
    """Return the JID of a pull subscription of `owner`; its name is 16 hexadecimal digits."""
    return Jid(f"{owner}/{record_name(name)}")


def is_pull_subscription(jid: str) -> bool:
    """Return whether a JID belongs to a pull subscription: it cannot receive notices."""
    return _RESOURCE.fullmatch(resource(jid)) is not None


def is_lease_record(name: str) -> bool:
    """Return whether this is the name of the record of a pull subscription to several destinations, and of no node."""
    return _RESOURCE.fullmatch(name) is not None


@frozen
class Next:
    """What a pull subscription of `node` asks for with an acknowledgement: up to `most` more items, within its credit.

    Its lease is renewed for `lease_ms`.
    """

    node: str
    most: int
    lease_ms: int

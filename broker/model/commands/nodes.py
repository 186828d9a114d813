"""Commands on nodes and their place in the tree. Values only."""

from collections.abc import Mapping

from broker.model.frozen import frozen
from broker.model.names import Jid


@frozen
class Declare:
    """Create a node; `node` None asks for a made-up name; `options` are configuration fields by their wire names."""

    node: str | None
    sender: Jid
    options: Mapping[str, tuple[str, ...]]


@frozen
class Configure:
    """Change configuration fields of a node."""

    node: str
    sender: Jid
    options: Mapping[str, tuple[str, ...]]


@frozen
class Describe:
    """Read a node's record; `as_owner` refuses all but its owners (XEP-0060 §8.2)."""

    node: str
    sender: Jid
    as_owner: bool


@frozen
class Purge:
    """Drop all waiting items; locked ones are left to their holders (P25)."""

    node: str
    sender: Jid


@frozen
class Delete:
    """Delete a node with its items; `redirect` is a URI for its subscribers (P24)."""

    node: str
    sender: Jid
    redirect: str = ""


@frozen
class Stats:
    """Count what a node holds."""

    node: str
    sender: Jid


@frozen
class Associate:
    """Make a node the child of a collection, wherever it was before (XEP-0248 §6.4)."""

    node: str
    sender: Jid
    child: str


@frozen
class Dissociate:
    """Move a child of a collection to the root (XEP-0248 §6.5)."""

    node: str
    sender: Jid
    child: str


@frozen
class Children:
    """List the children of a collection; a leaf has none."""

    node: str
    sender: Jid


@frozen
class Nodes:
    """List up to `limit` nodes that the sender may see, in order of creation.

    Returns the first ones, those after the node `after`, or those from `index` on; with `backwards` the last ones, or those
    before the node `before`.
    """

    sender: Jid
    limit: int = 1_000
    after: str = ""
    before: str = ""
    backwards: bool = False
    index: int = 0


NodeCommand = Declare | Configure | Describe | Associate | Dissociate | Children | Purge | Delete | Stats | Nodes
"""Commands on nodes."""

"""Commands of log readers. Values only."""

from broker.model.frozen import frozen
from broker.model.names import Jid


@frozen
class Commit:
    """Commit the offset that a log reader has come to, which gives back the credit for all entries up to it."""

    node: str
    sender: Jid
    partition: int
    offset: str


@frozen
class Read:
    """Read up to `limit` entries of a partition's log from a start on, whatever became of the items.

    `group` and `fence`: read as the owner of the group's reading; without a fence the read works while nobody owns it.
    """

    node: str
    sender: Jid
    partition: int
    start: str
    limit: int
    group: str = ""
    fence: int = 0


@frozen
class Bind:
    """Own the reading of a partition for a group (E26 to E28); with the `fence` of an earlier call, renew the ownership (EX16).

    `equal`: an equal epoch takes over as well.
    """

    node: str
    sender: Jid
    partition: int
    group: str
    epoch: int | None = None
    fence: int = 0
    equal: bool = False


@frozen
class Unbind:
    """Give up the ownership (E29); the epoch is `kept` for a while after a lost connection (EX11)."""

    node: str
    sender: Jid
    partition: int
    group: str
    fence: int
    kept: bool


@frozen
class Partitions:
    """List a node's partitions and how far each log reaches (EX17)."""

    node: str
    sender: Jid


Reading = Commit | Read | Bind | Unbind
"""Commands to one partition."""

LogCommand = Reading | Partitions
"""Commands on logs."""

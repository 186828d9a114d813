"""What was sent to a partition before its node grew: commands that look for it there first, and how they turn out.

Which partition an item has by its id or its key follows from how many there are. So once a node has grown, a repeat has to be
looked for where its item went by each earlier number. Must not know how it is asked for.
"""

from dataclasses import dataclass, fields
from typing import Any, Final

from broker.model.commands import Publish


@dataclass(frozen=True, slots=True)
class PublishIfKnown(Publish):
    """Publish to a former partition of an item, if that knows the item or the ticket; nothing new comes in there."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A partition does not know the item; with `over` it knows none any more that has another partition now."""

    over: bool


IF_KNOWN: Final[dict[type, type]] = {Publish: PublishIfKnown}
"""Commands whose partition follows from how many there are."""


def if_known(command: Any) -> Any:
    """Word a command for a former partition of its item."""
    return IF_KNOWN[type(command)](*(getattr(command, each.name) for each in fields(command)))

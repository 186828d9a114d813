"""Commands by which an item learns how its parents end."""

from broker.model.commands import Publish
from broker.model.frozen import frozen
from broker.model.items.dependencies import ParentState
from broker.model.items.outcomes import ItemOutcome
from broker.model.results import Published


@frozen
class PublishDependent(Publish):
    """Store an item that waits for its parents. One with a known id is a duplicate."""

    parents: tuple[ParentState, ...] = ()


@frozen
class Child:
    """An item that waits and its parents, in a partition of a node's incarnation."""

    incarnation: str
    partition: int
    position: str
    parents: tuple[ParentState, ...] = ()


@frozen
class DependentStored:
    """The item waits, or is a duplicate of one that does, or did: that has no parents any more."""

    published: Published
    child: Child


@frozen
class AwaitEnd:
    """Ask what became of an item that another one waits for, named by a `reference`; with `register` note that it waits.

    With a `token` only that item counts, and its `partition` is known.
    """

    node: str
    incarnation: str
    item_id: str
    reference: str
    token: str = ""
    partition: int | None = None
    register: bool = False


@frozen
class Awaited:
    """What became of it: `awaited`, `ended` with its outcome, `unfinished` or `unknown`."""

    state: str
    partition: int = 0
    token: str = ""
    outcome: ItemOutcome | None = None


@frozen
class NoteParent:
    """Note what became of a parent of the waiting item at a position, by its index."""

    node: str
    incarnation: str
    partition: int
    position: str
    index: int
    state: str
    parent_partition: int = 0
    token: str = ""
    reason: str = ""
    result: str = ""


@frozen
class ParentNoted:
    """It is noted; or `refused`: the waiting item was removed; or `gone`: no item waits there any more."""

    refused: bool = False
    gone: bool = False

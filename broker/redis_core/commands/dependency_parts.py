"""Commands by which an item learns how its parents end."""

from broker.model.commands import Publish
from broker.model.dependencies import ParentState
from broker.model.frozen import frozen
from broker.model.outcomes import ItemOutcome
from broker.model.results import Published


@frozen
class PublishDependent(Publish):
    """Store an item that waits for its parents. One with a known id is a duplicate."""

    parents: tuple[ParentState, ...] = ()


@frozen
class DependentStored:
    """The item waits in this partition, or is a duplicate of one that is or was there."""

    published: Published
    partition: int


@frozen
class ReadDependents:
    """Read the parents of a waiting item in a partition, by its position, or by its id."""

    node: str
    incarnation: str
    partition: int
    item_id: str = ""
    position: str = ""


@frozen
class FoundDependent:
    """A waiting item and its parents; `position` is empty if it does not wait."""

    incarnation: str
    partition: int = 0
    position: str = ""
    parents: tuple[ParentState, ...] = ()


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


@frozen
class ReadAwaited:
    """Read the end of an item by its token, and who waits for it and does not know, from one reference on."""

    node: str
    incarnation: str
    partition: int
    token: str
    after: str
    limit: int


@frozen
class WhoAwaits:
    """The end of an item, None if all know it, and references of those that do not."""

    outcome: ItemOutcome | None = None
    references: tuple[str, ...] = ()


@frozen
class ListAwaited:
    """List who waits for items of a partition, from one on, to check whether they still wait."""

    node: str
    incarnation: str
    partition: int
    after: str
    limit: int


@frozen
class AllAwaited:
    """References of those that wait, each with the token of its item, in their order; `last` is where the next page begins."""

    members: tuple[tuple[str, str], ...]
    last: str


@frozen
class EndAwaited:
    """Report that these dependents know the end of an item, or are gone."""

    node: str
    incarnation: str
    partition: int
    token: str
    references: tuple[str, ...]

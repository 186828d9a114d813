"""Batches: one request with several items, each with its own outcome, and one answer.

The frame is judged as a whole: no rows, too many, or an unknown row refuse all. Each row is
read as a request of its own, by the reader that `requests` gives. Must not know the core, or how notifications are written.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Command, Retract
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Published, Refused, Renewed, Result
from frontends.errors import ERRORS
from frontends.xmpp import errors
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes
from frontends.xmpp.stanzas import BatchRequest, Iq, expect
from frontends.xmpp.xml.text import escape, escaped_name, moment

MOST: Final = 100
"""The most rows of a batch."""

BYTES: Final = 524_288
"""The largest batch that clients should send, which XMPP servers pass; the service itself accepts what arrives."""

_OURS: Final = f"{{{ns.STANZAQ}}}"
_PUBLISH: Final = f"{_OURS}publish"
_TWICE: Final = "the batch has the item {} twice"

ReadRow = Callable[[Iq, str, Element], Command]


class BatchOutcomes:
    """The outcomes of a batch, as far as they are known."""

    def __init__(self, batch: BatchRequest) -> None:
        """Wait for the outcome of each row."""
        self.batch = batch
        self._of: dict[int, Result] = {}

    def add(self, number: int, outcome: Result) -> bool:
        """Note a row's outcome; returns whether it was the last one."""
        self._of[number] = outcome
        return len(self._of) == len(self.batch.rows)

    def write(self) -> bytes:
        """Write the content of the result, when all outcomes are known."""
        outcomes = [self._of[number] for number in range(len(self.batch.rows))]
        published = self.batch.iq.element[0].tag == _PUBLISH
        return (_write_published if published else _write_settled)(self.batch, outcomes).encode()


def order(batch: BatchRequest) -> list[int]:
    """Return the numbers of the rows with those of one kind together, which then share a call."""
    return sorted(range(len(batch.rows)), key=lambda number: type(batch.rows[number][1]).__name__)


def read(iq: Iq, element: Element, readers: Mapping[str, ReadRow], beside: str = "") -> BatchRequest:
    """Translate a batch, each row by the reader of its tag; `beside` is the tag of what may stand beside the rows."""
    expect(iq, "set")
    node = attributes.node(element)
    rows = [each for each in element if each.tag in readers]
    # Other protocols' elements are ignored (RFC 6120 §8.4).
    unknown = [each.tag for each in element if each.tag.startswith(_OURS) and each.tag not in {beside, *readers}]
    if unknown:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a batch has no <{unknown[0].removeprefix(_OURS)[:80]}/>")
    if not rows:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "the batch names no item")
    _refuse_excess(rows)
    commands = [_command(partial(readers[row.tag], iq, node, row)) for row in rows]
    # An item that is published twice has two versions. But rows that end or renew a lock have no order: the first one counts.
    if element.tag != _PUBLISH:
        for number, name in _repeats(commands):
            commands[number] = Refused(Problem.BAD_REQUEST, _TWICE.format(name))
    return BatchRequest(iq, node, tuple(zip(rows, commands, strict=True)))


def translate_whole(items: Sequence[Element], read: Callable[[Element], Retract]) -> tuple[Retract, ...]:
    """Translate items that are done or refused together; one that is malformed refuses all."""
    _refuse_excess(items)
    commands = tuple(map(read, items))
    for _, name in _repeats(commands):
        raise MalformedRequest(Problem.BAD_REQUEST, _TWICE.format(name))
    return commands


def _command(read: Callable[[], Command]) -> Command | Refused:
    try:
        return read()
    except MalformedRequest as fault:
        return Refused(fault.problem, fault.detail)


def _refuse_excess(rows: Sequence[Element]) -> None:
    if len(rows) > MOST:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a batch has at most {MOST} items, this one {len(rows)}")


def _repeats(commands: Sequence[Command | Refused]) -> Iterator[tuple[int, str]]:
    """Find the rows whose item an earlier row names too.

    An id names an item within its partition. If only one of two rows tells a partition, their tokens say whether it is the same.
    """
    names = [getattr(command, "item_id", None) for command in commands]
    # Nearly every batch names each item once.
    if len(set(names)) == len(names):
        return
    seen = defaultdict[str, list[tuple[int | None, int | None]]](list)
    for number, (command, name) in enumerate(zip(commands, names, strict=True)):
        if name:
            partition, token = getattr(command, "partition", None), getattr(command, "token", None)
            if any(partition == other or (None in {partition, other} and token == lock) for other, lock in seen[name]):
                yield number, name[:80]
            seen[name].append((partition, token))


def _write_published(batch: BatchRequest, outcomes: Sequence[Result]) -> str:
    rows: list[str] = []
    for (row, _), outcome in zip(batch.rows, outcomes, strict=True):
        if isinstance(outcome, Published):
            mark = " duplicate='true'" if outcome.duplicate else ""
            rows.append(f"<item id='{escape(outcome.item_id)}'{mark}/>")
        else:
            rows.append(f"<item{_write_attributes(row, 'id')}>{_error(outcome)}</item>")
    return f"<publish xmlns='{ns.STANZAQ}' node='{escaped_name(batch.node)}'>{''.join(rows)}</publish>"


def _write_settled(batch: BatchRequest, outcomes: Sequence[Result]) -> str:
    """Write what did not succeed, and the earliest new deadline."""
    frame = batch.iq.element[0].tag.removeprefix(_OURS)
    renewed = [outcome.deadline_ms for outcome in outcomes if isinstance(outcome, Renewed)]
    rows: list[str] = []
    for (row, _), outcome in zip(batch.rows, outcomes, strict=True):
        if isinstance(outcome, Refused):
            name = row.tag.removeprefix(_OURS)
            rows.append(f"<{name}{_write_attributes(row, 'id', 'token')}>{_error(outcome)}</{name}>")
    if not rows and not renewed:
        return ""
    expires = f" expires='{moment(min(renewed))}'" if renewed else ""
    return f"<{frame} xmlns='{ns.STANZAQ}' node='{escaped_name(batch.node)}'{expires}>{''.join(rows)}</{frame}>"


def _write_attributes(row: Element, *names: str) -> str:
    said = ((name, row.get(name)) for name in names)
    return "".join(f" {name}='{escape(value)}'" for name, value in said if value is not None)


def _error(outcome: Result) -> str:
    assert isinstance(outcome, Refused), outcome
    return errors.write_error(ERRORS[outcome.problem].xmpp, outcome.detail, outcome.wait_ms, nested=True)

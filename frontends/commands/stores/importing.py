"""`stanzaq import`: reads what `stanzaq export` wrote, checks all of it, and stores each item once. Must not know the old store.

An import that was interrupted is run again: items that it has stored are recognised by where they were in the old store.
"""

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from broker.model.commands import Describe, ImportItem, PutSchedule
from broker.model.core import Core
from broker.model.items.headers import size as header_bytes
from broker.model.items.hints import Hints, ms_until
from broker.model.names import Jid, is_group
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.schedules import Schedule
from broker.model.nodes.tree import COLLECTION
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Described, Published, Refused
from broker.settings import load_command
from frontends.commands import fields
from frontends.commands.runner import ADMINISTRATOR, Unwilling, ask, complain, misuse, run, say, show_progress
from frontends.commands.stores.declarations import Change, Declaration, Kind, carry_out, changes, find, read_rights
from frontends.commands.stores.export_file import ItemLine, NodeLine, ScheduleLine, Unreadable, read_lines
from frontends.terminal import Config, settings

_STDIN: Final = "-"
_STATE: Final = "stanzaq#state"
_STORED, _THERE, _EXPIRED = "imported", "there already", "expired"

_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 8_388_608
"""How many items are stored in one go, and of how many bytes: what may wait for Redis is bounded."""


def import_(
    file: Annotated[str, typer.Argument(help="What `stanzaq export` has written; - is standard input.")],
    config: Config = None,
    *,
    keep_options: Annotated[
        bool, typer.Option("--keep-options", help="Keep options, rights and schedules of nodes that differ.")
    ] = False,
) -> None:
    """Store what `stanzaq export` has written: make nodes that are missing, and add the items, each once.

    All is checked first. If it is interrupted, run it again within a day: it goes on.

    Example: stanzaq import jobs.export
    """
    given = settings(config, load_command)
    counts = Counter[str]()

    async def work(core: Core) -> None:
        later = await _prepare(core, nodes, given.admins, keep=keep_options)
        await _store(core, name, lines, given.node_defaults, counts)
        for node, change in later:
            await carry_out(core, node, change)

    name = "standard input" if file == _STDIN else file
    try:
        with _opened(file) as lines:
            # All of it is read once before anything is changed.
            nodes = [each for each in _read(name, lines, given.node_defaults) if isinstance(each, _Node)]
            lines.seek(0)
            run(config, work)
    except Unreadable as fault:
        complain(str(fault))
    except OSError as fault:
        misuse(f"{file} cannot be read: {fault.strerror}")
    finally:
        if counts:
            say(", ".join(f"{counts[what]} {what}" for what in (_STORED, _THERE, _EXPIRED) if counts[what]))


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open the file; standard input is copied first, since it is read twice."""
    if file != _STDIN:
        with Path(file).open("rb") as lines:
            yield lines
        return
    with tempfile.TemporaryFile() as lines:
        shutil.copyfileobj(sys.stdin.buffer, lines)
        lines.seek(0)
        yield lines


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the file: what it is to be like, and its incarnation in the old store, which is part of its items' tickets."""

    declaration: Declaration
    config: NodeConfig
    incarnation: str


def _read(name: str, lines: BinaryIO, defaults: NodeConfig) -> Iterator[_Node | ImportItem | None]:
    """Read the nodes of a file and their items, None for one whose time to live has ended; raises Unreadable."""
    node = None
    for number, line in read_lines(name, lines):
        try:
            if isinstance(line, NodeLine):
                declaration = _declaration(line)
                node = _Node(declaration, declaration.check(defaults), line.incarnation)
                yield node
            else:
                assert node is not None
                yield _command(node, line)
        except (fields.Unreadable, MalformedRequest) as wrong:
            msg = f"{name}, line {number}: {wrong.detail if isinstance(wrong, MalformedRequest) else wrong}"
            raise Unreadable(msg) from None


def _declaration(line: NodeLine) -> Declaration:
    options = {fields.find_option(name): (text,) for name, text in line.options.items()}
    rights = read_rights(line.affiliations)
    # Whoever has created it may own it no longer, and must not while an import is interrupted either.
    creator = Jid(line.owner)
    owners = [jid for jid, each in rights.items() if each == Affiliation.OWNER.value and not is_group(jid)]
    owner = creator if creator in owners else next(iter(owners), ADMINISTRATOR)
    schedules = {each.words.get("id", ""): _schedule(line, each) for each in line.schedules}
    return Declaration(line.node, owner, options | {COLLECTION: (line.collection,)}, rights, schedules)


def _schedule(node: NodeLine, line: ScheduleLine) -> PutSchedule:
    # Whoever has made it is the publisher of its items, and may be an owner no longer.
    maker = Jid(line.by) if node.affiliations.get(line.by) == Affiliation.OWNER.value else ADMINISTRATOR
    hints = Hints.validate(line.delay_ms or None, line.priority, line.ttl_ms or None)
    size = len(line.body) + header_bytes(line.headers)
    return PutSchedule(node.node, maker, Schedule.read(line.words), line.envelope(), size, line.key, hints, line.paused)


def _command(node: _Node, line: ItemLine) -> ImportItem | None:
    delay_ms, ttl_ms = (ms_until(at) if at else 0 for at in (line.delayed_until_ms, line.ends_ms))
    envelope = line.envelope()
    if line.ends_ms and ttl_ms <= delay_ms:
        return None
    # The service has named an item by its place there: here it is at another one, and another item may have that name.
    named = line.item != f"{line.partition}-{line.position}"
    return ImportItem(
        node.declaration.node,
        ADMINISTRATOR,
        line.item if named else None,
        envelope,
        Jid(line.publisher),
        f"{node.incarnation}/{line.partition}/{line.position}",
        line.partition,
        line.key,
        Hints.validate(delay_ms or None, line.priority, ttl_ms or None),
    )


async def _prepare(
    core: Core, nodes: Sequence[_Node], admins: tuple[Jid, ...], *, keep: bool
) -> list[tuple[str, Change]]:
    """Make nodes that are missing, and the rights that others have not; returns the schedules to make when all items are there.

    Raises Unwilling, before anything is changed, if a node differs from its export.
    """
    adding: list[tuple[str, Change]] = []
    differing: list[str] = []
    known = {""}
    for each in nodes:
        wanted = each.declaration
        there = await find(core, wanted.node, admins)
        known.add(wanted.node)
        (above,) = wanted.options[COLLECTION]
        if there is None and above not in known and await find(core, above, admins) is None:
            detail = f"{wanted.node} is below {above}, which is neither there nor before it in the file"
            raise Unwilling(Refused(Problem.NODE_NOT_FOUND, detail))
        if there is not None:
            # A node that was paused for its export may run again.
            wanted = replace(wanted, options={name: text for name, text in wanted.options.items() if name != _STATE})
        for change in changes(wanted, there):
            if change.kind is Kind.ADD:
                adding.append((wanted.node, change))
            elif change.kind is Kind.ALTER:
                differing.append(f"{wanted.node}: {change.text}")
    if differing and not keep:
        detail = f"what is there differs from the export, so change it, or use --keep-options: {'; '.join(differing)}"
        raise Unwilling(Refused(Problem.NOT_ACCEPTABLE, detail))
    for node, change in adding:
        if not change.publishes:
            await carry_out(core, node, change)
    return [(node, change) for node, change in adding if change.publishes]


async def _store(core: Core, name: str, lines: BinaryIO, defaults: NodeConfig, counts: Counter[str]) -> None:
    """Store the items of the file in their order, and count them."""
    waiting: list[ImportItem] = []
    there = own = defaults
    room = _BYTES_AT_ONCE
    with show_progress() as show:
        for each in _read(name, lines, defaults):
            if isinstance(each, _Node):
                command = Describe(each.declaration.node, ADMINISTRATOR, as_owner=True)
                there = (await ask(core, command, Described)).record.config
                own = each.config
            elif each is None:
                counts[_EXPIRED] += 1
            else:
                waiting.append(each if there.partitions == own.partitions else _place(each, there.partitions))
                room -= len(each.envelope)
            if len(waiting) == _AT_ONCE or room < 0:
                await _store_all(core, waiting, counts)
                show(f"importing: {counts.total()} items")
                waiting, room = [], _BYTES_AT_ONCE
        await _store_all(core, waiting, counts)


def _place(item: ImportItem, partitions: int) -> ImportItem:
    """Place an item in a node with another number of partitions: by its key or its id, and always in the same one."""
    if item.key or item.item_id or item.partition is None:
        return replace(item, partition=None)
    return replace(item, partition=item.partition % partitions)


async def _store_all(core: Core, items: Sequence[ImportItem], counts: Counter[str]) -> None:
    """Store items; raises Unwilling, which names the first that is refused."""
    results = await asyncio.gather(*map(core.ask, items))
    refused = None
    for item, result in zip(items, results, strict=True):
        if isinstance(result, Published):
            counts[_THERE if result.duplicate else _STORED] += 1
        elif refused is None:
            assert isinstance(result, Refused)
            detail = f"{item.node}, item {item.item_id}: {result.detail}; run the import again to go on"
            refused = replace(result, detail=detail)
    if refused is not None:
        raise Unwilling(refused)

"""`stanzaq export`: writes nodes with all that they hold in lines of JSON. Must not know how these are read again."""

import sys
import time
from collections import Counter
from typing import Annotated, Final

import typer

from broker.model.commands import InspectItems
from broker.model.core import Core
from broker.model.items.items import ItemDetails
from broker.model.names import Jid
from broker.model.nodes.nodes import form_values
from broker.model.nodes.options import BY_NAME
from broker.model.nodes.schedules import ScheduleState, ScheduleStatus
from broker.model.problems import Problem
from broker.model.results import InspectedItems, Refused
from broker.model.times import moment
from broker.settings import load_command
from frontends.commands import fields
from frontends.commands.runner import ADMINISTRATOR, Unwilling, ask, complain, nodes_beginning, run, say, show_progress
from frontends.commands.stores import export_file
from frontends.commands.stores.declarations import Present, find
from frontends.terminal import Config, settings

_PAGE: Final = 1_000

_LEFT_OUT: Final = {
    "dependent": "wait for other items",
    "dying": "are on their way to another node",
}
"""States of items that are not exported, and what is told of them."""


def export(
    nodes: Annotated[list[str], typer.Argument(help="Names of nodes.", autocompletion=nodes_beginning)],
    config: Config = None,
) -> None:
    """Write nodes to stdout: their options, rights and schedules, and their items. Pause or drain them first.

    Items that somebody holds are written as waiting ones, logs with all that they keep. `stanzaq import` reads it.

    Example: stanzaq export jobs jobs/dead > jobs.export
    """
    # Not for `--help`: it reads the operations.
    from frontends.version import build  # noqa: PLC0415

    admins = settings(config, load_command).admins

    async def write(core: Core) -> Counter[str]:
        found = {node: await _find(core, node, admins) for node in dict.fromkeys(nodes)}
        _put(export_file.Head(version=export_file.VERSION, service=build()[0], at=moment(int(time.time() * 1000))))
        states = Counter[str]()
        for node, there in found.items():
            _put(_node_line(there))
            if not there.record.config.collects:
                await _write_items(core, node, states)
        items = sum(count for state, count in states.items() if state not in _LEFT_OUT)
        _put(export_file.EndLine(nodes=len(found), items=items))
        return states

    states = run(config, write)
    sys.stdout.flush()
    left_out = [f"{states[state]} {why}" for state, why in _LEFT_OUT.items() if states[state]]
    if left_out:
        complain(f"not exported: {' and '.join(left_out)}; export again when they have gone on")
    held = f", {states['locked']} of them held" if states["locked"] else ""
    say(f"exported {states.total()} items{held}")


async def _find(core: Core, node: str, admins: tuple[Jid, ...]) -> Present:
    there = await find(core, node, admins)
    if there is None:
        raise Unwilling(Refused(Problem.NODE_NOT_FOUND, f"there is no node {node}"))
    return there


def _node_line(there: Present) -> export_file.NodeLine:
    record = there.record
    return export_file.NodeLine(
        node=record.name,
        incarnation=record.incarnation,
        owner=record.creator or ADMINISTRATOR,
        collection=record.parent,
        options={
            fields.short_name(name): text
            for name, text in form_values(record.name, record.config).items()
            if BY_NAME[name].on in {None, record.config.node_type}
        },
        affiliations={str(jid): affiliation for jid, affiliation in there.affiliations.items()},
        schedules=[_schedule_line(each) for each in there.schedules.values()],
    )


def _schedule_line(one: ScheduleStatus) -> export_file.ScheduleLine:
    assert one.item is not None
    hints = one.item.hints
    return export_file.ScheduleLine(
        **export_file.content_of(one.item.envelope),
        words=one.schedule.write(),
        by=one.maker,
        paused=one.state is ScheduleState.PAUSED,
        key=one.item.key,
        priority=hints.priority,
        delay_ms=hints.delay_ms,
        ttl_ms=hints.ttl_ms,
    )


async def _write_items(core: Core, node: str, states: Counter[str]) -> None:
    """Write the items of a node in the order of each partition, and count them by their states."""
    place = ""
    with show_progress() as show:
        while True:
            part = await ask(core, InspectItems(node, ADMINISTRATOR, (), _PAGE, place), InspectedItems)
            for one in part.items:
                states[one.state] += 1
                if one.state not in _LEFT_OUT:
                    _put(_item_line(one))
            show(f"exporting {node}: {states.total()} items")
            place = part.scan
            if not place:
                return


def _item_line(one: ItemDetails) -> export_file.ItemLine:
    return export_file.ItemLine(
        **export_file.content_of(one.envelope),
        item=one.item_id,
        partition=one.partition,
        position=one.position,
        publisher=one.publisher,
        key=one.key,
        priority=one.priority,
        delayed_until_ms=one.until_ms,
        ends_ms=one.ends_ms,
    )


def _put(line: export_file.Line) -> None:
    sys.stdout.buffer.write(export_file.write_line(line))

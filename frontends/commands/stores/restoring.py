"""`stanzaq restore`: brings a store up to now after a copy of it was put back. Must not know how a node does that."""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from broker.model.commands import Frontends, Overview, RestoreNode
from broker.model.core import Core
from broker.model.results import FrontendList, Overviewed, Restored, Summary
from broker.model.times import moment
from frontends.commands.runner import ADMINISTRATOR, ask, misuse, run, say, show_progress, table, tell
from frontends.terminal import Config, Json

_PAGE: Final = 500
_AT_ONCE: Final = 20

_MOST_BEHIND_MS: Final = 60_000
"""Numbers are raised to this machine's clock: if it is wrong, they would be far in the future for ever."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node, and what changes there."""

    summary: Summary
    restored: Restored

    def record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        schedules = [
            {
                "schedule": each.id,
                "from": moment(each.before_ms, "seconds"),
                "next": moment(each.next_ms, "seconds") if each.next_ms else None,
                "missed": each.missed,
            }
            for each in self.restored.schedules
        ]
        counted = self.summary.counted
        return {
            "node": self.summary.record.name,
            "waiting": counted.waiting,
            "in_flight": counted.in_flight,
            "schedules": schedules,
        }


def restore(
    config: Config = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only say what would change.")] = False,
    as_json: Json = False,
) -> None:
    """Bring a Redis whose data were put back from a copy up to now, before frontends start; say what differs.

    Tokens begin above all that were given after the copy was made. Schedules go on from now by their `catchup`.

    Example: stanzaq restore --check
    """

    async def work(core: Core) -> tuple[list[_Node], int, int]:
        beats = (await ask(core, Frontends(ADMINISTRATOR), FrontendList)).frontends
        now_ms = int(time.time() * 1000)
        # All is looked at before anything is changed.
        found = await _restore(core, now_ms, check=True)
        behind_ms = max((now_ms - each.restored.now_ms for each in found), default=0)
        if behind_ms > _MOST_BEHIND_MS:
            misuse(f"the clock of Redis is {behind_ms // 1000} s behind this machine's: set both right, then restore")
        beaten = [now_ms - behind_ms - each.ago_ms for each in beats]
        newest_ms = max(beaten + [each.restored.token // 1000 for each in found], default=0)
        # A lock may be given in this very millisecond.
        done = found if check else await _restore(core, int(time.time() * 1000) + 1, check=False)
        return done, newest_ms, behind_ms

    nodes, newest_ms, behind_ms = run(config, work)
    partitions = sum(each.summary.record.config.partitions for each in nodes)
    told = [each.record() for each in nodes]
    if as_json:
        newest = moment(newest_ms) if newest_ms else None
        tell({"newest": newest, "behind_ms": behind_ms, "partitions": partitions, "check": check, "nodes": told})
        return
    table(
        ("node", "waiting", "in_flight", "schedule", "from", "next", "missed"),
        [row for each in told for row in _rows(each)],
    )
    if newest_ms:
        say(f"the data end at {moment(newest_ms)}; Redis's clock is {max(0, behind_ms)} ms behind this machine's")
    say(f"tokens of {partitions} partitions {'would begin' if check else 'begin'} above all that were given by now")


async def _restore(core: Core, floor_ms: int, *, check: bool) -> list[_Node]:
    """Restore all nodes, or look at them."""
    done: list[_Node] = []
    at, total = 0, 1
    with show_progress() as show:
        while at < total:
            page = await ask(core, Overview(ADMINISTRATOR, at, _PAGE), Overviewed)
            at, total = at + _PAGE, page.total
            for first in range(0, len(page.nodes), _AT_ONCE):
                some = page.nodes[first : first + _AT_ONCE]
                commands = [RestoreNode(each.record.name, ADMINISTRATOR, floor_ms, check) for each in some]
                restored = await asyncio.gather(*(ask(core, command, Restored) for command in commands))
                done += [_Node(*each) for each in zip(some, restored, strict=True)]
                show(f"{'checking' if check else 'restoring'} {len(done)} of {total} nodes")
    return done


def _rows(told: dict[str, Any]) -> list[list[str]]:
    """Return a node as cells: a row for each schedule that moves, at least one."""
    head = [told["node"], str(told["waiting"]), str(told["in_flight"])]
    moved = [
        [each["schedule"], each["from"], each["next"] or "never", str(each["missed"])] for each in told["schedules"]
    ]
    return [[*head, *each] for each in moved or [[""] * 4]]

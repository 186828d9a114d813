"""What is shown while one watches: rates of nodes, and ended attempts. Pure; must not know a terminal or the core."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from broker.model.results import Summary
from frontends.commands import views
from frontends.terminal import escape, fit_columns

NODES: Final = ("node", "state", "published/s", "finished/s", "waiting", "held", "delayed", "oldest", "subscribers")
ATTEMPTS: Final = ("ended", "partition", "outcome", "item", "attempt", "held for", "subscriber", "reason")
_NUMBERS: Final = {*NODES[2:], "attempt", "held for"}
_STYLES: Final = {
    "acknowledged": "green",
    "released": "yellow",
    "expired": "yellow",
    "bounced": "yellow",
    "paused": "yellow",
    "draining": "yellow",
}
_WRONG: Final = "red"


@dataclass(frozen=True, slots=True)
class Activity:
    """What a node holds, and its rates a second between two looks."""

    node: str
    state: str
    published: float
    finished: float
    waiting: int
    held: int
    delayed: int
    oldest_ms: int
    subscribers: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """Return it as cells."""
        rates = (f"{self.published:.1f}", f"{self.finished:.1f}")
        counts = (str(self.waiting), str(self.held), str(self.delayed), views.age(self.oldest_ms))
        return (self.node, self.state, *rates, *counts, str(self.subscribers))


def activity(before: Mapping[str, Summary], now: Iterable[Summary], seconds: float) -> list[Activity]:
    """Compare two looks at all nodes: the busiest first, then the longest."""
    found = []
    for one in now:
        counted = one.counted
        old = before.get(one.record.name, one)
        # A node that was made again counts from the start.
        same = old.counted if old.record.incarnation == one.record.incarnation else counted
        found.append(
            Activity(
                one.record.name,
                one.record.config.state.value,
                (counted.published - same.published) / seconds,
                (counted.finished - same.finished) / seconds,
                counted.waiting,
                counted.in_flight,
                counted.delayed,
                counted.oldest_ms,
                counted.subscribers,
            )
        )
    return sorted(found, key=lambda each: (-(each.published + each.finished), -each.waiting, each.node))


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """A record of a journal and its partition."""

    node: str
    partition: int
    record: Mapping[str, str | int]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, with the journal's own names."""
        return {"node": self.node, "partition": self.partition, **self.record}

    def cells(self) -> tuple[str, ...]:
        """Return it as cells."""
        told = self.record
        held = views.age(int(told["closed"]) - int(told["delivered"]))
        return (
            views.format_time(int(told["closed"])),
            f"{self.node}/{self.partition}",
            str(told["type"]),
            str(told["item"]),
            str(told["attempt"]),
            held,
            str(told["subscriber"]),
            str(told["reason"]),
        )


def counts(outcomes: Counter[str]) -> str:
    """Say how many attempts ended how."""
    return ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common()) or "nothing has ended yet"


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str, width: int) -> Table:
    """Draw rows for a terminal, with the columns that fit into `width`."""
    shown = fit_columns(columns, rows, width)
    made = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
    for column in (columns[number] for number in shown):
        made.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    for cells in rows:
        made.add_row(*(_cell(columns[number], cells[number]) for number in shown))
    return made


def _cell(column: str, text: str) -> Text:
    style = ""
    if column == "outcome":
        style = _STYLES.get(text, _WRONG)
    elif column == "state":
        style = _STYLES.get(text, "")
    return Text(escape(text), style=style)

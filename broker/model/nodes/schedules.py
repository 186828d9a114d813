"""Recurring publishes on a node: what an owner asks for, and how far a schedule has come. Values only.

Every door says a schedule by the same words, which `Schedule.read` validates. A cron expression and a time zone are checked where
they are understood (`broker.redis_core.schedules.timetable`).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Self, TypeVar

from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.names import Jid, is_printable
from broker.model.problems import MalformedRequest, Problem
from broker.model.times import duration, duration_ms, moment, read_moment

ID_BYTES: Final = 256
"""Longest id of a schedule, in UTF-8: ids of its items begin with it."""

MOST_OF_NODE: Final = 1_000
"""Schedules that a node may have."""

CRON_CHARACTERS: Final = 200
ZONE_CHARACTERS: Final = 64
MOST_EVERY_MS: Final = 366 * 86_400_000
MOST_JITTER_MS: Final = 86_400_000
_YEAR_2200_MS: Final = 7_258_118_400_000

UTC: Final = "UTC"


class Overlap(Enum):
    """Whether a schedule publishes while the last item that it has published is still in the node."""

    QUEUE = "queue"
    SKIP = "skip"


class CatchUp(Enum):
    """Which times are made up for that nobody could publish at: none, the last one, or all."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


@frozen
class Schedule:
    """When a schedule publishes: by a cron expression in a zone, or every so often. Times are ms since 1970, in whole seconds."""

    id: str
    cron: str = ""
    zone: str = UTC
    every_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_ms: int = 0
    overlap: Overlap = Overlap.QUEUE
    catch_up: CatchUp = CatchUp.LAST

    @classmethod
    def read(cls, words: Mapping[str, str]) -> Self:
        """Read the words of a request, `FIELDS` by name; raises MalformedRequest."""
        id_, cron, zone, every = (words.get(name, "") for name in ("id", "cron", "zone", "every"))
        cron = " ".join(cron.split())
        _check_id(id_)
        if bool(cron) == ("every" in words):
            raise MalformedRequest(Problem.BAD_REQUEST, "a schedule has either cron or every")
        if zone and not cron:
            raise MalformedRequest(Problem.BAD_REQUEST, "a zone belongs to cron")
        if len(cron) > CRON_CHARACTERS or len(zone) > ZONE_CHARACTERS:
            raise MalformedRequest(
                Problem.BAD_REQUEST, f"cron has at most {CRON_CHARACTERS} characters, and zone {ZONE_CHARACTERS}"
            )
        start, end = (_moment(words, name) for name in ("start", "end"))
        if start is not None and end is not None and start > end:
            raise MalformedRequest(Problem.BAD_REQUEST, "a schedule ends after its start")
        return cls(
            id_,
            cron,
            zone or UTC if cron else UTC,
            _span("every", every, MOST_EVERY_MS) if "every" in words else 0,
            start,
            end,
            _span("jitter", words["jitter"], MOST_JITTER_MS, least=0) if words.get("jitter") else 0,
            _choice(Overlap, "overlap", words.get("overlap") or Overlap.QUEUE.value),
            _choice(CatchUp, "catchup", words.get("catchup") or CatchUp.LAST.value),
        )

    def write(self) -> dict[str, str]:
        """Return the words that `read` reads."""
        when = {"cron": self.cron, "zone": self.zone} if self.cron else {"every": duration(self.every_ms)}
        bounds = {"start": self.start_ms, "end": self.end_ms}
        return {
            "id": self.id,
            **when,
            **{name: moment(at, "seconds") for name, at in bounds.items() if at is not None},
            **({"jitter": duration(self.jitter_ms)} if self.jitter_ms else {}),
            "overlap": self.overlap.value,
            "catchup": self.catch_up.value,
        }


FIELDS: Final = ("id", "cron", "zone", "every", "start", "end", "jitter", "overlap", "catchup")
"""The words of a schedule at every door."""


class ScheduleState(Enum):
    """Whether a schedule will publish."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


@frozen
class ScheduledItem:
    """What a schedule publishes."""

    envelope: bytes
    key: str = ""
    hints: Hints = NO_HINTS


@frozen
class ScheduleStatus:
    """A schedule as its owners see it; the item only where one schedule was asked for.

    `next_ms` is the next time, `last_ms` the last one that it has published for. Counts are of `published` items, and of times
    that were `missed` (the last of them at `missed_ms`) or `skipped` because the last item was still there.
    """

    schedule: Schedule
    maker: Jid
    state: ScheduleState
    next_ms: int | None
    last_ms: int | None
    last_item: str
    published: int
    missed: int
    missed_ms: int | None
    skipped: int
    item: ScheduledItem | None = None

    def write_state(self) -> dict[str, str]:
        """Return words about it, beside those of the schedule."""
        times = {"next": self.next_ms, "last": self.last_ms, "missed_at": self.missed_ms}
        return {
            "state": self.state.value,
            "by": self.maker,
            **{name: moment(at, "seconds") for name, at in times.items() if at is not None},
            **({"last_item": self.last_item} if self.last_item else {}),
            **{name: str(getattr(self, name)) for name in ("published", "missed", "skipped")},
        }


def check_id(text: str) -> str:
    """Return the id of a schedule; raises MalformedRequest."""
    _check_id(text)
    return text


def _check_id(text: str) -> None:
    if not text or len(text.encode()) > ID_BYTES or not is_printable(text):
        raise MalformedRequest(Problem.BAD_REQUEST, f"the id of a schedule has 1 to {ID_BYTES} printable bytes")


def _moment(words: Mapping[str, str], name: str) -> int | None:
    if not words.get(name):
        return None
    try:
        at_ms = read_moment(words[name]) // 1000 * 1000
    except ValueError as fault:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name}: {fault}") from None
    if not 0 <= at_ms < _YEAR_2200_MS:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} is from 1970 to 2199")
    return at_ms


def _span(name: str, text: str, most_ms: int, least: int = 1) -> int:
    ms = duration_ms(text)
    if ms is None or not least * 1000 <= ms <= most_ms:
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            f"{name} is {least} second{'' if least == 1 else 's'} to {duration(most_ms)}, such as 30s, 5m, 1h or 7d",
        )
    return ms


_Choice = TypeVar("_Choice", bound=Enum)


def _choice(kind: type[_Choice], name: str, text: str) -> _Choice:
    try:
        return kind(text)
    except ValueError:
        raise MalformedRequest(
            Problem.BAD_REQUEST, f"{name} is one of {', '.join(each.value for each in kind)}"
        ) from None

"""The options of the data source, parsed once and then frozen. Pure text rules; must not know Redis or Spark."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, Self

from broker.analytics.faults import Unreadable
from broker.analytics.source.offsets import Offset
from broker.journal.schema import JournalPartition
from broker.keys import PREFIX

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
STREAMS: Final = ("journal", "log")
_READ_FROM: Final = ("master", "replica")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class Patience(NamedTuple):
    """How long to wait for a connection and an answer, in seconds, and how often to try again, at which interval."""

    connect_s: float = 5.0
    answer_s: float = 30.0
    retries: int = 3
    interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What to read and how. The names are Kafka's where Kafka has the same option; a double underscore is its dot."""

    url: str
    stream: str = "journal"
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ".*"
    starting_offsets: str | Mapping[str, Offset] = EARLIEST
    ending_offsets: str | Mapping[str, Offset] = LATEST
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_offsets_by_timestamp: Mapping[str, int] = field(default_factory=dict)
    ending_offsets_by_timestamp: Mapping[str, int] = field(default_factory=dict)
    fail_on_data_loss: bool = True
    read_from: str = "master"
    min_partitions: int = 1
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    max_rows_per_second: int | None = None
    fetch_offset__num_retries: int = Patience().retries
    fetch_offset__retry_interval_ms: int = round(Patience().interval_s * 1000)
    connect_timeout_ms: int = round(Patience().connect_s * 1000)
    answer_timeout_ms: int = round(Patience().answer_s * 1000)
    bodies: bool = True
    key_prefix: str = PREFIX

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Parse options as Spark gives them: texts, with names in any case."""
        known = {spark_name(each.name).lower(): each.name for each in fields(cls)}
        values = {}
        for name, text in given.items():
            if name.lower() not in known:
                names = ", ".join(spark_name(each.name) for each in fields(cls))
                msg = f"there is no option {name!r}: the options of `stanzaq` are {names}"
                raise Unreadable(msg)
            option = known[name.lower()]
            try:
                values[option] = _READERS[option](text)
            except ValueError as error:
                msg = f"the option {spark_name(option)}: {error}"
                raise Unreadable(msg) from None
        if "url" not in values:
            msg = "the option url is missing: write where Redis is, e.g. .option('url', 'redis://127.0.0.1:6379/0')"
            raise Unreadable(msg)
        return cls(**values)

    @property
    def patience(self) -> Patience:
        """How long to wait for Redis."""
        times = (self.connect_timeout_ms / 1000, self.answer_timeout_ms / 1000)
        return Patience(*times, self.fetch_offset__num_retries, self.fetch_offset__retry_interval_ms / 1000)

    def first_ms(self, partition: JournalPartition) -> int | None:
        """Return the time from which to read a partition; None if it begins with an offset."""
        return self.starting_timestamp or self.starting_offsets_by_timestamp.get(str(partition))

    def last_ms(self, partition: JournalPartition) -> int | None:
        """Return the time until which to read a partition; None if it ends with an offset."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp.get(str(partition))

    def includes(self, partition: JournalPartition) -> bool:
        """Tell whether a partition is subscribed to."""
        return (
            partition.node in self.subscribe
            if self.subscribe
            else bool(re.fullmatch(self.subscribe_pattern, partition.node))
        )


def spark_name(field: str) -> str:
    """Write a field's name as an option: `min_partitions` is `minPartitions`."""
    parts = (part.split("_") for part in field.split("__"))
    return ".".join(head + "".join(word.capitalize() for word in tail) for head, *tail in parts)


def _parse_one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            msg = f"{text[:60]!r} is none of {', '.join(words)}"
            raise ValueError(msg)
        return text

    return read


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**53:
        msg = f"{text[:60]!r} is not a positive number"
        raise ValueError(msg)
    return int(text)


def _count(text: str) -> int:
    return 0 if text == "0" else _number(text)


def _duration(text: str) -> float:
    found = re.fullmatch(rf"(\d+)\s*({'|'.join(_SECONDS)})", text)
    if found is None:
        msg = f"{text[:60]!r} is not a duration such as 15m: a number and one of {', '.join(_SECONDS)}"
        raise ValueError(msg)
    return int(found[1]) * _SECONDS[found[2]]


def _truth(text: str) -> bool:
    return _parse_one_of("true", "false")(text.lower()) == "true"


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        msg = f"{text[:60]!r} is not a regular expression: {error}"
        raise ValueError(msg) from None
    return text


def _offsets(text: str) -> str | Mapping[str, Offset]:
    if text in {EARLIEST, LATEST}:
        return text
    given = _by_partition(text, str)
    if given is None:
        msg = f'{text[:60]!r} is neither {EARLIEST}, {LATEST} nor JSON such as {{"jobs@8e71964d/0": "1700000000000-0"}}'
        raise ValueError(msg)
    return {partition: Offset.parse(value) for partition, value in given.items()}


def _times(text: str) -> Mapping[str, int]:
    given = _by_partition(text, int)
    if given is None:
        msg = f'{text[:60]!r} is not JSON such as {{"jobs@8e71964d/0": 1700000000000}}, ms since 1970 by partition'
        raise ValueError(msg)
    return {partition: _number(str(value)) for partition, value in given.items()}


def _by_partition(text: str, kind: type) -> dict[str, Any] | None:
    """Parse a JSON object with a value of this type for each partition; None if the text is something else."""
    try:
        given = json.loads(text)
    except ValueError:
        return None
    if not isinstance(given, dict) or not all(type(value) is kind for value in given.values()):
        return None
    return {str(JournalPartition.parse(partition)): value for partition, value in given.items()}


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "url": str,
    "key_prefix": str,
    "stream": _parse_one_of(*STREAMS),
    "subscribe": lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    "subscribe_pattern": _pattern,
    "starting_offsets": _offsets,
    "ending_offsets": _offsets,
    "starting_timestamp": _number,
    "ending_timestamp": _number,
    "starting_offsets_by_timestamp": _times,
    "ending_offsets_by_timestamp": _times,
    "fail_on_data_loss": _truth,
    "read_from": _parse_one_of(*_READ_FROM),
    "min_partitions": _number,
    "max_offsets_per_trigger": _number,
    "min_offsets_per_trigger": _number,
    "max_trigger_delay": _duration,
    "max_rows_per_second": _number,
    "fetch_offset__num_retries": _count,
    "fetch_offset__retry_interval_ms": _number,
    "connect_timeout_ms": _number,
    "answer_timeout_ms": _number,
    "bodies": _truth,
}

"""The options of the data source, parsed once and then frozen. Pure text rules; must not know Redis or Spark."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from broker.analytics.faults import Unreadable
from broker.analytics.source.offsets import Offset
from broker.journal.schema import JournalPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
STREAMS: Final = ("journal", "log")
_READ_FROM: Final = ("master", "replica")


@dataclass(frozen=True, slots=True)
class Options:
    """What to read and how. The names are Kafka's where Kafka has the same option."""

    url: str
    stream: str = "journal"
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ".*"
    starting_offsets: str | Mapping[str, Offset] = EARLIEST
    ending_offsets: str | Mapping[str, Offset] = LATEST
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    fail_on_data_loss: bool = True
    read_from: str = "master"
    min_partitions: int = 1
    max_offsets_per_trigger: int | None = None
    max_rows_per_second: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Parse options as Spark gives them: texts, with names in any case."""
        known = {spark_name(field.name).lower(): field.name for field in fields(cls)}
        values = {}
        for name, text in given.items():
            if name.lower() not in known:
                names = ", ".join(spark_name(field.name) for field in fields(cls))
                msg = f"there is no option {name!r}: the options of `stanzaq` are {names}"
                raise Unreadable(msg)
            field = known[name.lower()]
            try:
                values[field] = _READERS[field](text)
            except ValueError as error:
                msg = f"the option {spark_name(field)}: {error}"
                raise Unreadable(msg) from None
        if "url" not in values:
            msg = "the option url is missing: write where Redis is, e.g. .option('url', 'redis://127.0.0.1:6379/0')"
            raise Unreadable(msg)
        return cls(**values)

    def includes(self, partition: JournalPartition) -> bool:
        """Tell whether a partition is subscribed to."""
        return (
            partition.node in self.subscribe
            if self.subscribe
            else bool(re.fullmatch(self.subscribe_pattern, partition.node))
        )


def spark_name(field: str) -> str:
    """Write a field's name as an option: `min_partitions` is `minPartitions`."""
    head, *tail = field.split("_")
    return head + "".join(word.capitalize() for word in tail)


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
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        msg = f'{text[:60]!r} is neither {EARLIEST}, {LATEST} nor JSON such as {{"jobs@8e71964d/0": "1700000000000-0"}}'
        raise ValueError(msg)
    return {str(JournalPartition.parse(partition)): Offset.parse(value) for partition, value in given.items()}


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "url": str,
    "stream": _parse_one_of(*STREAMS),
    "subscribe": lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    "subscribe_pattern": _pattern,
    "starting_offsets": _offsets,
    "ending_offsets": _offsets,
    "starting_timestamp": _number,
    "ending_timestamp": _number,
    "fail_on_data_loss": _truth,
    "read_from": _parse_one_of(*_READ_FROM),
    "min_partitions": _number,
    "max_offsets_per_trigger": _number,
    "max_rows_per_second": _number,
}

"""The data source as Spark sees it: `spark.read.format("stanzaq")`. Knows Spark's side; each step is another module's."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from broker.analytics.source.increments import Increments
from broker.analytics.source.options import Options
from broker.analytics.source.plan import Wish, batch
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import snapshot
from broker.analytics.source.tasks import STREAMS, rows, tasks

_CLOCK_MS: Final = 60_000
"""A record's id is given by the clock that says when its attempt closed, a moment later; one that is set back stops ids until
it has caught up. So far may both be apart."""

_SETS: Final = {"node": "nodes", "partition": "partitions", "type": "kinds"}
_TIMES: Final = {"journal": ("published", "delivered", "closed"), "log": ("published",)}


class StanzaqSource(DataSource):
    """The streams `journal` and `log` of all partitions of a queue's Redis."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "stanzaq"

    def schema(self) -> StructType:
        """Give the columns, which follow from the stream."""
        return from_arrow_schema(STREAMS[Options.read(self.options).stream].schema, prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> "Reader":  # noqa: ARG002  (Spark's signature)
        """Give what reads a snapshot."""
        return Reader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> Increments:  # noqa: ARG002, N802
        """Give what reads increments."""
        return Increments(Options.read(self.options))


class Reader(DataSourceReader):
    """A read of one snapshot."""

    def __init__(self, options: Options) -> None:
        """Read as the options say."""
        self._options = options
        self._wish = Wish()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Note what filters leave of nodes, partitions, types and times; Spark applies all of them to the rows once more."""
        for each in filters:
            self._wish = narrowed(self._wish, each, self._options.stream)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and deal it out."""
        found = snapshot(Servers(self._options.url, self._options.read_from), self._options)
        return tasks(batch(found, self._options, self._wish), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task is to read."""
        return rows(self._options, partition, self._wish.kinds)


def narrowed(wish: Wish, wanted: Filter, stream: str) -> Wish:
    """Narrow a wish by one filter of Spark's, if it is one that Redis can be spared something by."""
    match wanted:
        case EqualTo(attribute=(column,), value=value) if column in _SETS:
            return wish.only(_SETS[column], [value])
        case In(attribute=(column,), value=values) if column in _SETS:
            return wish.only(_SETS[column], values)
        case EqualTo(attribute=(column,), value=datetime() as at) if column in _TIMES[stream]:
            return _within(_within(wish, column, at, stream, lower=True), column, at, stream, lower=False)
        case (
            GreaterThan(attribute=(column,), value=datetime() as at)
            | GreaterThanOrEqual(attribute=(column,), value=datetime() as at)
        ) if column in _TIMES[stream]:
            return _within(wish, column, at, stream, lower=True)
        case (
            LessThan(attribute=(column,), value=datetime() as at)
            | LessThanOrEqual(attribute=(column,), value=datetime() as at)
        ) if column in _TIMES[stream]:
            return _within(wish, column, at, stream, lower=False)
    return wish


def _within(wish: Wish, column: str, at: datetime, stream: str, *, lower: bool) -> Wish:
    apart = _CLOCK_MS if stream == "journal" else 0
    ms = int(at.timestamp() * 1000)
    if lower:
        # What was published or delivered after a time was closed after it.
        return wish.within(first_ms=max(0, ms - apart - 1))
    if column == "closed" or stream == "log":
        return wish.within(last_ms=max(0, ms + apart + 1))
    return wish

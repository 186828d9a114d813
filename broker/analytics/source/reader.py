"""The data source as Spark sees it: `spark.read.format("stanzaq")`. Knows Spark's side; other modules do each step."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from broker.analytics.faults import Unreadable
from broker.analytics.source.increments import Increments
from broker.analytics.source.options import Options
from broker.analytics.source.plan import batch
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import snapshot
from broker.analytics.source.tasks import STREAMS, rows, tasks


class StanzaqSource(DataSource):
    """The streams `journal` and `log` of all partitions of a queue's Redis."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "stanzaq"

    def schema(self) -> StructType:
        """Return the columns, which follow from the stream."""
        return from_arrow_schema(STREAMS[Options.read(self.options).stream].schema, prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> "Reader":
        """Return the reader of a snapshot."""
        self._refuse_other(schema)
        return Reader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> Increments:  # noqa: N802  (Spark's name)
        """Return the reader of increments."""
        self._refuse_other(schema)
        return Increments(Options.read(self.options))

    def _refuse_other(self, schema: StructType) -> None:
        """Refuse columns that the user has given."""
        if schema.simpleString() != self.schema().simpleString():
            msg = "the columns of `stanzaq` follow from the option stream: leave out schema(), and use select()"
            raise Unreadable(msg)


class Reader(DataSourceReader):
    """A read of one snapshot.

    It accepts no pushed filters (`pushFilters`): Spark keeps one reader for all queries of a DataFrame, so a filter
    pushed by one query would also remove the rows of the others.
    """

    def __init__(self, options: Options) -> None:
        """Take the options."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and split it into tasks."""
        found = snapshot(Servers(self._options.url, self._options.read_from, self._options.patience), self._options)
        return tasks(batch(found, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        return rows(self._options, partition)

"""The data source as Spark sees it: `spark.read.format("stanzaq")`. Knows Spark's side; each step is another module's."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

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
    """A read of one snapshot.

    It takes no filters of Spark's (`pushFilters`). Spark keeps one reader for a DataFrame, whatever its queries ask: a filter
    that one query pushes would also take the rows of the others.
    """

    def __init__(self, options: Options) -> None:
        """Read as the options say."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and deal it out."""
        found = snapshot(Servers(self._options.url, self._options.read_from), self._options)
        return tasks(batch(found, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task is to read."""
        return rows(self._options, partition)

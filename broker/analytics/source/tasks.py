"""Reads the pieces of one Spark task and turns them into rows. Knows Spark's partitions; must not know how they were planned."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from broker.analytics.source import columns
from broker.analytics.source.fetch import ReadOptions, fetch
from broker.analytics.source.options import Options
from broker.analytics.source.plan import Work
from broker.analytics.source.servers import Servers
from broker.journal.schema import JournalPartition


@dataclass(frozen=True, slots=True)
class Stream:
    """How to read a stream: entries a command, commands a batch of rows, and whether missing entries are a loss (`watched`)."""

    schema: pa.Schema
    decode: Callable[[JournalPartition, Sequence[columns.Entry]], pa.RecordBatch]
    count: int
    gather: int
    watched: bool


STREAMS: Final = {
    "journal": Stream(columns.ATTEMPTS, columns.attempts, 1_000, 10, watched=True),
    # Entries may be as large as a payload, and leave the log when their work is done, which is no loss.
    "log": Stream(columns.LOG, columns.log, 100, 1, watched=False),
}


class Task(InputPartition):
    """The work of one Spark task, and its limit of rows a second."""

    def __init__(self, work: Work, rows_per_second: float | None) -> None:
        """Carry work to an executor."""
        super().__init__(None)
        self.work = work
        self.rows_per_second = rows_per_second


def tasks(works: Sequence[Work], options: Options) -> list[InputPartition]:
    """Make tasks that together keep to the limit of rows a second, however many run at once."""
    limit = options.max_rows_per_second
    return [Task(work, limit and limit / len(works)) for work in works]


def rows(options: Options, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, many at a time."""
    # Spark makes a partition of its own when there is nothing to read.
    if not isinstance(task, Task):
        return
    stream = STREAMS[options.stream]
    how = ReadOptions(
        stream.count, stream.watched, options.fail_on_data_loss, task.rows_per_second, bodies=options.bodies
    )
    servers = Servers(options.url, options.read_from, options.patience)
    fetched = fetch(servers, task.work.process, task.work.pieces, how)
    for piece, found in groupby(fetched, itemgetter(0)):
        chunks = map(itemgetter(1), found)
        while gathered := list(chain.from_iterable(islice(chunks, stream.gather))):
            yield stream.decode(piece.partition, gathered)


def frame(spark: SparkSession, found: Sequence[InputPartition], options: Options) -> DataFrame:
    """Return the rows of tasks that somebody else than Spark has planned."""
    schema = from_arrow_schema(STREAMS[options.stream].schema, prefer_timestamp_ntz=False)
    numbers = spark.range(0, len(found), 1, max(1, len(found)))
    return numbers.mapInArrow(partial(_rows_of_numbers, options, found), schema)


def _rows_of_numbers(
    options: Options, found: Sequence[InputPartition], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from rows(options, found[number])

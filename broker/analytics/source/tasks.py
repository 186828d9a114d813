"""What one Spark task reads, and how it makes rows of it. Knows Spark's partitions; must not know what was planned why."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from broker.analytics.source import columns
from broker.analytics.source.fetch import Manner, fetch
from broker.analytics.source.options import Options
from broker.analytics.source.plan import Work
from broker.analytics.source.servers import Servers
from broker.journal.schema import Place


@dataclass(frozen=True, slots=True)
class Stream:
    """How a stream is read: so many entries a command and so many commands a batch of rows; whether it can lose any."""

    schema: pa.Schema
    decode: Callable[[Place, Sequence[columns.Entry]], pa.RecordBatch]
    count: int
    gather: int
    watched: bool


STREAMS: Final = {
    "journal": Stream(columns.ATTEMPTS, columns.attempts, 1_000, 10, watched=True),
    # Entries may be as large as a payload may, and go when their work is done: that is no loss.
    "log": Stream(columns.LOG, columns.log, 100, 1, watched=False),
}


class Task(InputPartition):
    """What one task of Spark's reads, and at most how many rows a second."""

    def __init__(self, work: Work, rows_per_second: float | None) -> None:
        """Carry work to an executor."""
        super().__init__(None)
        self.work = work
        self.rows_per_second = rows_per_second


def tasks(works: Sequence[Work], options: Options) -> list[InputPartition]:
    """Make tasks that together keep to the limit of rows a second, however many of them run at once."""
    limit = options.max_rows_per_second
    return [Task(work, limit and limit / len(works)) for work in works]


def rows(options: Options, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Give the rows of a task, many at a time."""
    # Spark makes a partition of its own when there is nothing to read.
    if not isinstance(task, Task):
        return
    stream = STREAMS[options.stream]
    manner = Manner(stream.count, stream.watched, options.fail_on_data_loss, task.rows_per_second)
    servers = Servers(options.url, options.read_from)
    fetched = fetch(servers, task.work.process, task.work.pieces, manner)
    for piece, found in groupby(fetched, itemgetter(0)):
        chunks = map(itemgetter(1), found)
        while gathered := list(chain.from_iterable(islice(chunks, stream.gather))):
            yield stream.decode(piece.place, gathered)

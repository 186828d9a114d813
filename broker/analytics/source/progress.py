"""How far a stream is behind, from Spark's progress of its query. Must not know Redis.

Spark takes no metrics from a source in Python, but the progress has the offsets where an increment ended and where the streams
ended then.
"""

import json
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryProgress

from broker.analytics.source.offsets import Offset


class Behind(NamedTuple):
    """What is not read yet: how many entries (None: not counted), and the time between the last read and the last there is."""

    records: int | None
    seconds: float


def behind(progress: StreamingQueryProgress) -> dict[str, Behind]:
    """Return for each partition how far a query of this source alone was behind when an increment was planned.

    `progress` is Spark's: `query.lastProgress`, or what a listener gets.
    """
    [source] = json.loads(progress.json)["sources"]
    latest, read = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    return {name: _behind(read.get(name), upto) for name, upto in latest.items()}


def _behind(read: Offset | None, upto: Offset) -> Behind:
    """Compare two offsets of a partition; of one that the query has not met yet, nothing was read."""
    if read is None:
        return Behind(upto.read, 0.0)
    records = None if read.read is None or upto.read is None else max(0, upto.read - read.read)
    return Behind(records, max(0, upto.after.ms - read.after.ms) / 1000)


def _offsets(offsets: Any) -> dict[str, Offset]:  # noqa: ANN401  (text or an object, as Spark has it)
    found = json.loads(offsets) if isinstance(offsets, str) else offsets or {}
    return {name: Offset.parse(text) for name, text in found.items()}

"""The history: journal records collected in a folder that outlives them. Knows its layout; must not know what is reported.

DIR/attempts/ has each record exactly once, by day, even if a collection was cut short: Spark's checkpoint in
DIR/checkpoint/ says which increment is complete. DIR/census/, DIR/gaps/ and DIR/process_usage/ grow with each collection.
DIR/waiting/ and DIR/in_flight/ have the unfinished work of the last one.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the usual name)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from broker.analytics import census, processes
from broker.analytics.faults import Unreadable, is_late_start, unreadable
from broker.analytics.folder import Folder
from broker.analytics.source import columns
from broker.analytics.source.offsets import Offset
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Servers
from broker.journal.schema import NAMED, JournalPartition
from broker.scaling.usage import Usage

MARK: Final = "stanzaq-history.json"
FORMAT: Final = "stanzaq-history"
VERSION: Final = 1

GAPS: Final = StructType(
    [
        StructField("node", StringType()),
        StructField("incarnation", StringType()),
        StructField("partition", IntegerType()),
        StructField("after", StringType()),
        StructField("before", StringType()),
        StructField("records", LongType()),
        StructField("noticed", TimestampType()),
    ]
)
"""Where records are missing: between two offsets of a journal, and how many (null: unknown)."""

USAGE: Final = StructType(
    [
        StructField("kind", StringType()),
        StructField("name", StringType()),
        StructField("at_ms", LongType()),
        StructField("cpu_ms", LongType()),
        StructField("jobs", LongType()),
    ]
)
"""What processes used; samples that several collections have found stand there several times."""

ATTEMPTS: Final = from_arrow_schema(columns.ATTEMPTS, prefer_timestamp_ntz=False)
WAITING: Final = StructType(
    [field for field in from_arrow_schema(columns.LOG, prefer_timestamp_ntz=False) if field.name != "body"]
)

_ADDED: Final = frozenset({"collected", "limits", "retry_delay", "policies", *NAMED})
"""Columns that the files of earlier versions do not have."""

_RARE: Final = frozenset({"gaps", "process_usage"})
"""The names that are missing until there is something to write."""

_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.2
"""How often files that are replaced meanwhile are read again, and how long it takes to rename new ones into their place."""

_LOOK_SECONDS: Final = 0.5

_STARTS: Final = 5
"""How often an increment is started: on a busy machine Spark may not wait long enough for its Python process."""


@dataclass(frozen=True, slots=True)
class ShortestRetention:
    """The journal that will lose records first: how long it keeps one, and the time since the last collection (None: none)."""

    partition: JournalPartition
    keeps_s: float
    since_s: float | None

    @property
    def too_short(self) -> bool:
        """Tell whether records will be lost before the next collection, if it comes after the same time as this one."""
        return self.since_s is not None and self.keeps_s < self.since_s


@dataclass(frozen=True, slots=True)
class Collected:
    """Result of one collection: the number of new records, and of records lost before they were read (None: unknown).

    `soonest` is the journal that will lose records first; None: no journal has enough records to tell.
    """

    records: int
    lost: int | None
    soonest: "ShortestRetention | None" = None


def collect(  # noqa: PLR0913  (where from, where to, and how)
    url: str,
    out: str,
    *,
    spark: SparkSession,
    lossy: bool = False,
    keep: timedelta | None = None,
    read_from: str = "master",
    tell: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Add to the history in `out` the records since the last collection, and the state of the queues now.

    Refuses if records were lost in between, unless `lossy`: then it notes the gap. Removes days older than `keep`, if
    given. `tell` is called with the progress.
    """
    folder = Folder(spark, out)
    _claim(folder)
    folder.recover()
    options = {"url": url, "readFrom": read_from, "failOnDataLoss": "false" if lossy else "true"}
    # The state comes first: an attempt that ends meanwhile then also has a record, which proves that it ended.
    tell("reading the state of the queues")
    found = census.partition_states(Servers(url, read_from), Options.read({"url": url}))
    tell("reading the journals")
    batches = _increment(spark, folder, options, tell)
    gaps = [gap for batch in batches for gap in _gaps(spark, folder, batch)]
    if gaps:
        folder.append(spark.createDataFrame(gaps, GAPS), "gaps")
    soonest = _find_shortest_kept(table(spark, folder, "census", census.SCHEMA), found)
    used = [astuple(each) for each in processes.samples(Servers(url, read_from))]
    if used:
        folder.append(spark.createDataFrame(used, USAGE).coalesce(1), "process_usage")
    folder.replace(census.in_flight(spark, found), "in_flight")
    folder.replace(census.waiting(spark, found, options), "waiting")
    # Last, because it says since when records tell more than the other two: a collection that is cut short changes little.
    folder.append(census.census(spark, found), "census")
    if keep is not None:
        tell("removing old days")
        _prune(spark, folder, datetime.now(UTC) - keep)
    missing = [gap[5] for gap in gaps]
    lost = None if None in missing else sum(missing)
    return Collected(sum(batch["numInputRows"] for batch in batches), lost, soonest)


def _find_shortest_kept(
    before: DataFrame, found: Mapping[JournalPartition, census.PartitionState]
) -> ShortestRetention | None:
    """Find the journal that keeps records for the shortest time at its fill rate so far."""
    keeping = {partition: state.keeps_s for partition, state in found.items() if state.keeps_s is not None}
    if not keeping:
        return None
    partition = min(keeping, key=lambda each: keeping[each])
    [last] = before.agg(F.max("at").alias("at")).collect()
    since = None if last.at is None else datetime.now(UTC).timestamp() - last.at.timestamp()
    return ShortestRetention(partition, keeping[partition], since)


def _prune(spark: SparkSession, folder: Folder, until: datetime) -> None:
    """Remove the days that ended before a time, and the census rows and gaps before it."""
    for name in folder.names("attempts"):
        if name.startswith("day=") and name.removeprefix("day=") < f"{until:%Y-%m-%d}":
            folder.remove(f"attempts/{name}")
    for name, schema, column in (("census", census.SCHEMA, "at"), ("gaps", GAPS, "noticed")):
        if folder.exists(name):
            folder.replace(table(spark, folder, name, schema).where(F.col(column) >= F.lit(until)).coalesce(1), name)
    if folder.exists("process_usage"):
        kept = [astuple(each) for each in usage(spark, folder) if each.at_ms >= until.timestamp() * 1000]
        folder.replace(spark.createDataFrame(kept, USAGE).coalesce(1), "process_usage")


def usage(spark: SparkSession, folder: Folder) -> tuple[Usage, ...]:
    """Return the samples of a history; none of one that was collected before there were any."""
    return tuple(Usage(*row) for row in read_now(spark, folder, "process_usage", USAGE).distinct().collect())


def open_history(spark: SparkSession, path: str) -> Folder:
    """Open a history to read; refuses a folder that is none."""
    folder = Folder(spark, path)
    if not folder.exists(MARK):
        msg = f"{path} is not a stanzaq history: name a folder that `stanzaq report collect` has made"
        raise Unreadable(msg)
    _check(folder)
    return folder


def _check(folder: Folder) -> None:
    """Refuse a history of another format or a newer version."""
    try:
        mark = json.loads(folder.text(MARK))
        version = mark["version"] if mark["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError):
        version = None
    if not isinstance(version, int):
        msg = f"{folder.of(MARK)} cannot be read: name a folder that `stanzaq report collect` has made"
        raise Unreadable(msg)
    if version > VERSION:
        msg = f"{folder.path} is a history of version {version}, newer than this program: install a newer stanzaq"
        raise Unreadable(msg)


def table(spark: SparkSession, folder: Folder, name: str, schema: StructType) -> DataFrame:
    """Return the rows under a name, none if it is missing; refuses files of other columns."""
    if not folder.exists(name):
        return spark.createDataFrame([], schema)
    # Spark's file list still has the days that were removed, and may ask one of them for the columns.
    reader = spark.read.option("ignoreMissingFiles", "true")
    try:
        found = reader.parquet(folder.of(name))
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            # It was there a moment ago.
            return spark.createDataFrame([], schema)
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            return reader.schema(schema).parquet(folder.of(name))
        msg = f"{folder.of(name)} cannot be read ({str(error).splitlines()[0][:200]}): restore it, or collect into a new folder"
        raise Unreadable(msg) from error
    missing = set(schema.fieldNames()) - set(found.columns)
    if missing - _ADDED:
        msg = f"{folder.of(name)} lacks the columns {', '.join(sorted(missing - _ADDED))}: stanzaq did not write it"
        raise Unreadable(msg)
    # Spark takes the columns from one file, which may be an earlier version's; others may have them all.
    return reader.schema(schema).parquet(folder.of(name)) if missing else found


def read_now(spark: SparkSession, folder: Folder, name: str, schema: StructType) -> DataFrame:
    """Read the rows under a name now, and never again: a collection may replace the files while a report is made.

    Raises Unreadable if they are replaced each time, or if a collection was cut short between the old files and the new ones.
    """
    for _try in range(_TRIES):
        files = folder.names(name)
        found = table(spark, folder, name, schema).localCheckpoint()
        if folder.names(name) == files and (files or name in _RARE):
            return found
        time.sleep(_PAUSE_SECONDS)
    msg = f"{folder.of(name)} is being written: try again when `stanzaq report collect` has ended"
    raise Unreadable(msg)


def _claim(folder: Folder) -> None:
    """Mark a folder as a history; refuses one with other files in it."""
    if folder.exists(MARK):
        _check(folder)
    elif folder.empty():
        folder.write(MARK, json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
    else:
        msg = f"{folder.path} contains other files: name a new folder, or one that `stanzaq report collect` has made"
        raise Unreadable(msg)


def _increment(
    spark: SparkSession, folder: Folder, options: dict[str, str], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Append the new records; returns Spark's progress of each batch."""
    starts, batches = 1, list[dict[str, Any]]()
    while True:
        try:
            _append(spark, folder, options, tell, batches)
        except PySparkException as error:
            if is_late_start(error) and starts < _STARTS:
                starts += 1
                continue
            line = unreadable(error)
            if line is None:
                raise
            raise Unreadable(line) from error
        else:
            return batches


def _append(
    spark: SparkSession,
    folder: Folder,
    options: dict[str, str],
    tell: Callable[[str], None],
    batches: list[dict[str, Any]],
) -> None:
    """Run the query that appends them; adds Spark's progress of each finished batch to `batches`, also if a later one fails."""
    query = (
        spark.readStream.format("stanzaq")
        .options(**options)
        .load()
        .withColumn("day", F.to_date("closed"))
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", folder.of("attempts"))
        .option("checkpointLocation", folder.of("checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]  # seconds, with fractions
            tell(_progress(spark, query))
    finally:
        batches += [json.loads(progress.json) for progress in query.recentProgress]


def _progress(spark: SparkSession, query: StreamingQuery) -> str:
    """Describe the progress of a running increment."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in stages if stage)
    total = sum(stage.numTasks for stage in stages if stage)
    return f"reading the journals: {done} of {total} tasks" if total else str(query.status["message"]).lower()


def _gaps(spark: SparkSession, folder: Folder, batch: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Find the records that an increment should have brought and did not, by partition."""
    source = batch["sources"][0]
    start: dict[str, str] = _offsets(source["startOffset"])
    end: dict[str, str] = _offsets(source["endOffset"])
    spans = {name: (Offset.parse(start.get(name, "0-0/0")), Offset.parse(text)) for name, text in end.items()}
    wanted = {
        name: upto.read - since.read
        for name, (since, upto) in spans.items()
        if since.read is not None and upto.read is not None and upto.read > since.read
    }
    gaps: list[tuple[Any, ...]] = []
    now = datetime.now(UTC)
    if sum(wanted.values()) != source["numInputRows"]:
        had = _had(spark, folder, {name: spans[name] for name in wanted})
        for name, many in wanted.items():
            if many > had.get(name, 0):
                since, upto = spans[name]
                gaps.append(
                    (*JournalPartition.parse(name), str(since.after), str(upto.after), many - had.get(name, 0), now)
                )
    # A deleted node takes its unread records with it.
    gaps += [
        (*JournalPartition.parse(name), str(Offset.parse(start[name]).after), None, None, now)
        for name in start.keys() - end.keys()
    ]
    return gaps


def _had(spark: SparkSession, folder: Folder, spans: dict[str, tuple[Offset, Offset]]) -> dict[str, int]:
    """Count the records that the history has between offsets."""
    rows = [(*JournalPartition.parse(name), *since.after, *upto.after) for name, (since, upto) in spans.items()]
    columns, span = (
        "node string, incarnation string, partition int",
        "since long, since_seq long, upto long, upto_seq long",
    )
    parts = F.split("offset", "-")
    found = (
        table(spark, folder, "attempts", ATTEMPTS)
        .withColumn("ms", parts[0].cast("long"))
        .withColumn("seq", parts[1].cast("long"))
        .join(F.broadcast(spark.createDataFrame(rows, f"{columns}, {span}")), ["node", "incarnation", "partition"])
        .where(
            "struct(ms, seq) > struct(since as ms, since_seq as seq)"
            " and struct(ms, seq) <= struct(upto as ms, upto_seq as seq)"
        )
        .groupBy("node", "incarnation", "partition")
        .count()
        .collect()
    )
    return {str(JournalPartition(row["node"], row["incarnation"], row["partition"])): row["count"] for row in found}


def _offsets(offsets: Any) -> dict[str, str]:  # noqa: ANN401  (as Spark gives it)
    return json.loads(offsets) if isinstance(offsets, str) else dict(offsets or {})

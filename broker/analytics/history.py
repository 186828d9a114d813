"""The history: journal records collected in a folder that outlives them. Knows its layout; must not know what is reported.

Its files are Parquet, by day, and never change. The newest file in DIR/commits/ names those that belong to the history, and
says how far the journals were read: a collection counts wholly or not at all, and a report reads what one commit names.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the usual name)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from broker.analytics import census
from broker.analytics.faults import Unreadable
from broker.analytics.folder import Folder
from broker.analytics.source import columns
from broker.scaling.usage import Usage

MARK: Final = "stanzaq-history.json"
FORMAT: Final = "stanzaq-history"
VERSION: Final = 2

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

TABLES: Final[Mapping[str, StructType]] = {
    "attempts": from_arrow_schema(columns.ATTEMPTS, prefer_timestamp_ntz=False),
    "census": census.SCHEMA,
    "gaps": GAPS,
    "process_usage": USAGE,
    "waiting": census.WAITING,
    "in_flight": census.IN_FLIGHT,
}

_DAYS: Final = {
    "attempts": "to_date(closed)",
    "census": "to_date(at)",
    "gaps": "to_date(noticed)",
    "process_usage": "to_date(timestamp_millis(at_ms))",
}
"""The day of a row; the other tables have only the last collection's rows."""

_NAMED: Final = {"attempts": ("subscriber", "publisher"), "waiting": ("publisher",)}
"""The columns with a JID."""

_COMMITS: Final = "commits"
_KEPT_COMMITS: Final = 10

_KEPT_FOR_READERS_MS: Final = 3_600_000
"""How long a file stays that no longer belongs to the history: a report may have begun before."""

_SMALL_BYTES: Final = 64 * 2**20
"""Files of fewer bytes are merged."""
_MERGED_BYTES: Final = 2 * _SMALL_BYTES
_MANY: Final = 16
"""How many small files a day may have before it has ended."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What belongs to a history.

    `collected_ms` is when the queues were read last (0: never), `offsets` how far each journal was read. `absent` says since
    when a journal has been missing, `used` from when the last sample of a process is. `files` have their sizes in bytes.
    `retired` files belonged to it until a time; a report may still read them.
    """

    number: int = 0
    collected_ms: int = 0
    offsets: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    retired: Mapping[str, int] = field(default_factory=dict)

    def exchange(self, former: Sequence[str], new: Mapping[str, int], now_ms: int) -> "Commit":
        """Put new files in the place of former ones."""
        files = {path: size for path, size in self.files.items() if path not in former}
        return replace(self, files={**files, **new}, retired={**self.retired, **dict.fromkeys(former, now_ms)})


@dataclass(frozen=True, slots=True)
class History:
    """A folder as one commit has it."""

    spark: SparkSession
    folder: Folder
    commit: Commit

    def days(self, name: str) -> list[str]:
        """Return the days of which a table has rows, in order."""
        return sorted({_day(path) for path in self.commit.files if path.startswith(f"{name}/")})

    def table(self, name: str, first: datetime | None = None) -> DataFrame:
        """Return the rows of a table; with `first` those of its day and later, and perhaps earlier ones."""
        # The day of a session in another time zone begins up to a day earlier.
        since = f"{first - timedelta(days=1):%Y-%m-%d}" if first else ""
        return self.read(name, [path for path in self.paths(name) if _day(path) >= since])

    def paths(self, name: str) -> list[str]:
        """Return the files of a table."""
        return [path for path in self.commit.files if path.startswith(f"{name}/")]

    def read(self, name: str, paths: Sequence[str]) -> DataFrame:
        """Return the rows of some files of a table."""
        if not paths:
            return self.spark.createDataFrame([], TABLES[name])
        return self.spark.read.schema(TABLES[name]).parquet(*map(self.folder.of, paths))

    def usage(self, first: datetime | None = None) -> tuple[Usage, ...]:
        """Return the samples of what processes used; with `first`, perhaps also earlier ones."""
        # By columns: there may be a million.
        found = self.table("process_usage", first).toArrow()
        return tuple(map(Usage, *(column.to_pylist() for column in found.columns)))

    def add(self, name: str, rows: DataFrame) -> dict[str, int]:
        """Write rows of a table to new files; they belong to the history with the commit that names them."""
        if name in _DAYS:
            return self.folder.add(rows.withColumn("day", F.expr(_DAYS[name])), name, "day")
        return self.folder.add(rows.coalesce(1), name)

    def put(self, commit: Commit) -> "History":
        """Make a commit the newest, unless another one has become it."""
        made = replace(commit, number=self.commit.number + 1)
        if not self.folder.write(f"{_COMMITS}/{made.number:012}.json", json.dumps(asdict(made)) + "\n"):
            msg = f"{self.folder.path} was written by another collection meanwhile: run only one at a time, and this one again"
            raise Unreadable(msg)
        for name in self.folder.names(_COMMITS)[:-_KEPT_COMMITS]:
            self.folder.remove(f"{_COMMITS}/{name}")
        return replace(self, commit=made)

    def tidy(self, keep: timedelta | None, now: datetime) -> "History":
        """Take days out that ended longer than `keep` ago, and merge small files."""
        now_ms = int(now.timestamp() * 1000)
        until = "" if keep is None else f"{now - keep:%Y-%m-%d}"
        old = [path for path in self.commit.files if path.startswith(tuple(_DAYS)) and _day(path) < until]
        made = self.commit.exchange(old, {}, now_ms)
        for folder, paths in _mergeable(made.files, f"{now:%Y-%m-%d}"):
            rows = self.read(folder.split("/", 1)[0], paths).coalesce(1)
            made = made.exchange(paths, self.folder.add(rows, folder), now_ms)
        if made == self.commit:
            return self
        tidied = self.put(made)
        self.folder.remove_strays({*made.files, *made.retired, MARK}, _COMMITS, now_ms - _KEPT_FOR_READERS_MS)
        return tidied

    def erase(self, jid: str, now: datetime) -> int:
        """Take out the rows that name an account, by writing their files again without them; returns how many there were."""
        made, now_ms, count = self.commit, int(now.timestamp() * 1000), 0
        for name, named in _NAMED.items():
            theirs = reduce(or_, (F.coalesce(F.split(each, "/")[0] == jid, F.lit(False)) for each in named))  # noqa: FBT003
            file = F.element_at(F.split(F.input_file_name(), "/"), -1)
            found = {
                row["file"]: row["count"]
                for row in self.table(name).where(theirs).groupBy(file.alias("file")).count().collect()
            }
            count += sum(found.values())
            for path in self.paths(name):
                folder, _, last = path.rpartition("/")
                if last in found:
                    kept = self.read(name, [path]).where(~theirs).coalesce(1)
                    made = made.exchange([path], self.folder.add(kept, folder), now_ms)
        if count:
            self.put(made)
        return count

    def drop_retired(self, now: datetime) -> Commit:
        """Remove the files that nobody reads any more; returns the commit without them."""
        until_ms = int(now.timestamp() * 1000) - _KEPT_FOR_READERS_MS
        due = [path for path, at_ms in self.commit.retired.items() if at_ms <= until_ms]
        self.folder.remove_files(due)
        left = {path: at_ms for path, at_ms in self.commit.retired.items() if at_ms > until_ms}
        return replace(self.commit, retired=left)


def _day(path: str) -> str:
    return path.split("/")[1].removeprefix("day=")


def _mergeable(files: Mapping[str, int], today: str) -> Iterator[tuple[str, list[str]]]:
    """Choose small files to merge, by folder: those of a day that has ended, and many of one that has not."""
    small: defaultdict[str, list[str]] = defaultdict(list)
    for path, size in sorted(files.items(), key=lambda file: file[1]):
        if path.startswith(tuple(_DAYS)) and size < _SMALL_BYTES:
            small[path.rpartition("/")[0]].append(path)
    for folder, paths in small.items():
        if len(paths) < (2 if folder.rpartition("day=")[2] < today else _MANY):
            continue
        size, batch = 0, list[str]()
        for path in paths:
            if size + files[path] > _MERGED_BYTES:
                yield folder, batch
                size, batch = 0, []
            size += files[path]
            batch.append(path)
        if len(batch) > 1:
            yield folder, batch


def open_history(spark: SparkSession, path: str) -> History:
    """Open a history to read; refuses a folder that is none."""
    folder = Folder(spark, path)
    if not folder.exists(MARK):
        msg = f"{path} is not a stanzaq history: name a folder that `stanzaq report collect` has made"
        raise Unreadable(msg)
    return _open(spark, folder)


def claim_history(spark: SparkSession, path: str) -> History:
    """Open a history to write, and mark a new folder as one; refuses one with other files in it."""
    folder = Folder(spark, path)
    if folder.exists(MARK):
        return _open(spark, folder)
    if not folder.empty():
        msg = f"{folder.path} contains other files: name a new folder, or one that `stanzaq report collect` has made"
        raise Unreadable(msg)
    folder.write(MARK, json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
    return History(spark, folder, Commit())


def _open(spark: SparkSession, folder: Folder) -> History:
    """Read the newest commit; refuses a history of another version."""
    try:
        mark = json.loads(folder.text(MARK))
        version = mark["version"] if mark["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError):
        version = None
    if not isinstance(version, int):
        msg = f"{folder.of(MARK)} cannot be read: name a folder that `stanzaq report collect` has made"
        raise Unreadable(msg)
    if version != VERSION:
        remedy = "install a newer stanzaq" if version > VERSION else "collect into a new folder"
        msg = f"{folder.path} is a history of version {version}, and this program's are of version {VERSION}: {remedy}"
        raise Unreadable(msg)
    names = folder.names(_COMMITS)
    if not names:
        return History(spark, folder, Commit())
    newest = f"{_COMMITS}/{names[-1]}"
    try:
        return History(spark, folder, Commit(**json.loads(folder.text(newest))))
    except (ValueError, TypeError):
        msg = f"{folder.of(newest)} is damaged: remove it, and the history is as the commit before says"
        raise Unreadable(msg) from None

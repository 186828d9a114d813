"""`stanzaq report collect`: the history outlives the streams, has each record once, and reports gaps."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from broker.analytics import census, history, inputs
from broker.analytics.faults import Unreadable
from broker.analytics.folder import Folder
from broker.analytics.history import MARK, ShortestRetention, collect, open_history, table, usage
from broker.journal.schema import JournalPartition
from broker.keys import of_service
from broker.model.names import Partition
from broker.scaling.usage import Usage
from tests.analytics.conftest import SETTINGS, Journals
from tests.lua.dependencies import record
from tests.lua.driver import T0, Queue
from tests.lua.test_selection import IS_RED, packed

JOBS = Partition("jobs", "ab12")
OTHERS = Partition("others", "cd34", 5)


def attempts(spark: SparkSession, path: Path) -> list[int]:
    """Return the records of a history."""
    found = inputs.of_history(str(path), spark=spark).attempts
    rows = found.select("token").collect()
    found.unpersist()
    return sorted(row["token"] for row in rows)


def test_collect_twice(spark: SparkSession, journals: Journals, queue: Queue, tmp_path: Path) -> None:
    """Collected records stay when the journals have lost them; the second collection adds the new ones."""
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    journals.write(queue.partition, 100, first=1_000)
    queue.publish("waits")
    collected = collect(journals.url, str(out), spark=spark)
    # The journal of 1,000 records has got 100 in 99 seconds.
    assert collected.records == 200 and collected.soonest == ShortestRetention(
        JournalPartition.parse(str(queue.partition)), 990.0, None
    )
    assert usage(spark, open_history(spark, str(out))) == ()
    used = [Usage("xmpp", "1edc2653", at_ms, at_ms // 10, 5) for at_ms in (60_000, 120_000)]
    for each in used:
        journals.client.hset(of_service("process_usage"), each.field, each.value)
    journals.trim(JOBS, 0)
    journals.write(JOBS, 10, first=86_400)
    said: list[str] = []
    collected = collect(journals.url, str(out), spark=spark, tell=said.append)
    assert (collected.records, collected.lost) == (10, 0)
    assert collected.soonest and collected.soonest.since_s and not collected.soonest.too_short
    assert replace(collected.soonest, since_s=1_000.0).too_short
    assert attempts(spark, out) == [*range(100), *range(1_000, 1_100), *range(86_400, 86_410)]
    assert sorted(path.name for path in (out / "attempts").glob("day=*")) == ["day=2023-11-14", "day=2023-11-15"]
    found = inputs.of_history(str(out), spark=spark)
    assert [row["item"] for row in found.waiting.collect()] == ["waits"]
    assert [row["waiting"] for row in found.census.collect()] == [1, 1]
    assert sorted(found.usage) == used
    found.attempts.unpersist()
    assert said[0] == "reading the state of the queues" and "reading the journals" in said
    assert sorted(path.name for path in out.iterdir() if path.name[0] not in "._") == [
        "attempts",
        "census",
        "checkpoint",
        "in_flight",
        "process_usage",
        MARK,
        "waiting",
    ]
    # Days that ended before a time are removed, and the rest is read as before.
    since = datetime.now(UTC) - datetime(2023, 11, 15, 12, tzinfo=UTC)
    assert collect(journals.url, str(out), spark=spark, keep=since).records == 0
    assert [path.name for path in (out / "attempts").glob("day=*")] == ["day=2023-11-15"]
    assert attempts(spark, out) == [*range(86_400, 86_410)]
    assert table(spark, open_history(spark, str(out)), "census", census.SCHEMA).count() == 3
    assert usage(spark, open_history(spark, str(out))) == ()
    # What was read before is of its collection, whose files are gone.
    assert [row["waiting"] for row in found.census.collect()] == [1, 1] and found.waiting.count() == 1


def test_collected_meanwhile(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a collection replaces while they are read are read again; without new ones it is told."""
    monkeypatch.setattr(history, "_PAUSE_SECONDS", 0.0)
    folder, looks = Folder(spark, str(tmp_path)), 0
    schema = StructType([StructField("number", LongType())])
    names = Folder.names

    def replaced(self: Folder, name: str) -> list[str]:
        nonlocal looks
        looks += 1
        if looks == 2:
            folder.replace(spark.createDataFrame([(2,), (3,)], schema), "waiting")
        return names(self, name)

    folder.replace(spark.createDataFrame([(1,)], schema), "waiting")
    monkeypatch.setattr(Folder, "names", replaced)
    found = history.read_now(spark, folder, "waiting", schema)
    folder.remove("waiting")
    assert sorted(row["number"] for row in found.collect()) == [2, 3] and looks == 4
    with pytest.raises(Unreadable, match=r"waiting is being written: try again when"):
        history.read_now(spark, folder, "waiting", schema)
    assert history.read_now(spark, folder, "gaps", schema).count() == 0


def test_gaps(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """Lost records between two collections are refused, or with the option a gap in the history, to the record."""
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    journals.write(OTHERS, 10, first=1_000)
    collect(journals.url, str(out), spark=spark)
    for partition, first in ((JOBS, 100), (OTHERS, 1_010)):
        journals.write(partition, 50, first=first)
    journals.trim(JOBS, 20)
    collected = collect(journals.url, str(out), spark=spark, lossy=True)
    assert (collected.records, collected.lost) == (70, 30)
    (gap,) = inputs.of_history(str(out), spark=spark).gaps.drop("noticed").collect()
    assert tuple(gap) == ("jobs", "ab12", 0, f"{T0 + 99_000}-0", f"{T0 + 149_000}-0", 30)


COLLECT = """
import sys
from broker.analytics.history import collect
from broker.analytics.session import session
with session("local[1]", **eval(sys.argv[3])) as spark:
    collect(sys.argv[1], sys.argv[2], spark=spark, tell=lambda text: print(text, flush=True))
"""


def test_killed_half_way(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """A collection killed while it writes leaves nothing that is read, and the next has each record once."""
    out = tmp_path / "history"
    for number in range(40):
        journals.write(Partition("jobs", "ab12", number), 500, first=number * 1_000)
    child = subprocess.Popen(
        [sys.executable, "-c", COLLECT, journals.url, str(out), repr(SETTINGS)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 100
        while not (out / "attempts").exists() and time.monotonic() < deadline:
            # Java starts meanwhile, and needs the processor.
            time.sleep(0.05)
        # A file exists from its first byte on, long before the increment is complete.
        while not list((out / "attempts").glob("day=*/*.parquet")) and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert list((out / "attempts").glob("day=*/*.parquet"))
    assert not list((out / "checkpoint" / "commits").glob("0"))
    collect(journals.url, str(out), spark=spark)
    assert attempts(spark, out) == [number * 1_000 + record for number in range(40) for record in range(500)]


@pytest.mark.parametrize("late", [2, 99])
def test_spark_does_not_wait(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """On a busy machine Spark gives up on its Python process: an increment starts again, a few times, and keeps what it has."""
    starts: list[int] = []

    def append(_spark: object, _folder: object, _options: object, _tell: object, batches: list[dict[str, Any]]) -> None:
        starts.append(late)
        batches.append({"batchId": len(starts)})
        if len(starts) <= late:
            msg = (
                "[STREAM_FAILED] Query [id = 2dd807e8] terminated with exception: Python worker failed to connect back."
            )
            raise StreamingQueryException(msg)

    monkeypatch.setattr(history, "_append", append)
    few = late < history._STARTS
    with nullcontext() if few else pytest.raises(StreamingQueryException, match="failed to connect back"):
        batches = history._increment(MagicMock(), MagicMock(), {}, print)
        assert [each["batchId"] for each in batches] == [1, 2, 3]
    assert len(starts) == (late + 1 if few else history._STARTS)


def test_what_waits(spark: SparkSession, queue: Queue, journals: Journals) -> None:
    """Waiting items are those that the queue counts: not locked, done or kept ones, but returned and delayed ones."""
    queue.open(revision=2, keep_items=100)
    queue.subscribe("w@x/a", 3, revision="2")
    queue.publish(*(f"i{number}" for number in range(8)), revision="2")
    queue.run("retract", queue.asked("w@x/a", "i0"), revision="2")
    queue.run("unlock", queue.given_back("w@x/a", "i1", delay_ms=60_000), revision="2")
    queue.publish("i7", body="again", revision="2")
    stats = queue.run("stats", revision="2").rows
    found = inputs.of_redis(journals.url, spark=spark)
    assert sorted(row["item"] for row in found.waiting.collect()) == ["i1", "i5", "i6", "i7"]
    (row,) = found.census.collect()
    assert (row["waiting"], row["in_flight"]) == (stats[0], stats[3]) == (4, 3)
    assert (row["credit"], row["subscribers"], row["journal_length"], row["journal_max"]) == (3, 1, 2, 1000)
    assert row["journal_first"] < row["journal_last"] and row["used_memory"] > 0
    assert found.attempts.count() == 2 and found.gaps.count() == 0
    found.attempts.unpersist()
    found.waiting.unpersist()


def test_what_waits_of_every_kind(spark: SparkSession, queue: Queue, journals: Journals) -> None:
    """The queue and its report count the same as waiting: groups, parents, priorities, selectors, versions, delays, dead."""
    queue.open(revision=2, ordered="1")
    red, blue = packed(color="red"), packed(color="blue")
    queue.subscribe("w@x/a", 2, revision="2", selector=IS_RED)
    queue.publish("head", "behind", key="k", body=red, revision="2")
    queue.publish("dies", body=red, revision="2")
    queue.publish("skipped", "urgent", "overwritten", body=blue, revision="2", hints="0 4 0")
    queue.publish("urgent", body=blue, revision="2", hints="0 9 0")
    queue.publish("late", body=red, revision="2", hints="60000 4 0")
    queue.publish("child", body=red, revision="2", hints=f"0 4 0 \0{record('late')}")
    queue.publish("overwritten", body=blue, revision="2")
    queue.publish("head", body=red, revision="2")
    queue.run("unlock", queue.given_back("w@x/a", "dies", dead_letter="1"), revision="2")
    queue.publish("replaced", body=red, revision="2")
    stats = queue.run("stats", revision="2").rows
    states = {row[0]: row[1] for row in queue.run("browse", revision="2").rows[2]}
    found = inputs.of_redis(journals.url, spark=spark)
    waiting = sorted(row["item"] for row in found.waiting.collect())
    assert waiting == sorted(name for name, state in states.items() if state not in {"locked", "dying"})
    (row,) = found.census.collect()
    assert (row["waiting"], row["in_flight"]) == (stats[0], stats[3]) == (len(waiting), 2)
    found.attempts.unpersist()
    found.waiting.unpersist()


def test_intervals(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """An interval has the attempts that closed in it, and later the items published in it; a trimmed journal is a gap."""
    journals.write(JOBS, 100)
    collect(journals.url, str(tmp_path / "history"), spark=spark)
    first, last = (datetime.fromtimestamp(T0 / 1000 + seconds, UTC) for seconds in (10, 20))
    journals.trim(JOBS, 85)
    for found, count in (
        (inputs.of_history(str(tmp_path / "history"), first, last, spark=spark), 11),
        (inputs.of_redis(journals.url, first, last, spark=spark), 6),
    ):
        assert found.attempts.count() == count
        found.attempts.unpersist()
        gaps = [(row["node"], row["before"], row["records"]) for row in found.gaps.collect()]
        assert gaps == ([] if count == 11 else [("jobs", f"{T0 + 15_000}-0", None)])
    with pytest.raises(Unreadable, match=r"^no attempt was closed from 2023-11-14T23:20:00Z: choose another"):
        inputs.of_redis(journals.url, datetime(2023, 11, 14, 23, 20, tzinfo=UTC), spark=spark)
    with pytest.raises(Unreadable, match=r"^--from 2023-11-14T22:13:40Z is not before --to 2023-11-14T22:13:30Z"):
        inputs.of_redis(journals.url, last, first, spark=spark)


def test_nothing_yet(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """A Redis without work is collected, and no report is made of it."""
    out = str(tmp_path / "history")
    assert collect(journals.url, out, spark=spark).records == 0
    with pytest.raises(Unreadable, match=r"^no attempt was closed yet: "):
        inputs.of_history(out, spark=spark)
    with pytest.raises(Unreadable, match=r"^no attempt was closed yet: "):
        inputs.of_redis(journals.url, spark=spark)


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        (None, "is not a stanzaq history: name a folder"),
        ("{}", "cannot be read: name a folder"),
        ("no json", "cannot be read: name a folder"),
        ('{"format": "stanzaq-history", "version": 2}', "is a history of version 2, newer than this program"),
    ],
)
def test_another_folder(spark: SparkSession, journals: Journals, tmp_path: Path, mark: str | None, line: str) -> None:
    """A folder of something else is neither read nor written."""
    (tmp_path / "theirs.parquet").write_bytes(b"something")
    if mark is not None:
        (tmp_path / MARK).write_text(mark)
    with pytest.raises(Unreadable, match=line):
        open_history(spark, str(tmp_path))
    with pytest.raises(Unreadable, match="contains other files" if mark is None else line):
        collect(journals.url, str(tmp_path), spark=spark)
    assert {path.name for path in tmp_path.iterdir()} <= {"theirs.parquet", MARK, f".{MARK}.crc"}


@pytest.mark.parametrize("path", ["theirs/history", "nowhere://host/history"])
def test_a_folder_that_cannot_be(spark: SparkSession, journals: Journals, tmp_path: Path, path: str) -> None:
    """If nothing can be written, one line says so."""
    (tmp_path / "theirs").write_text("a file")
    out = path if ":" in path else str(tmp_path / path)
    with pytest.raises(Unreadable, match=r"^the folder .* cannot be used \(.*\): name one that this user may write to"):
        collect(journals.url, out, spark=spark)


def test_other_files(spark: SparkSession, tmp_path: Path) -> None:
    """Foreign Parquet files in the place of attempts are refused by the missing columns."""
    spark.range(3).write.parquet(str(tmp_path / "attempts"))
    (tmp_path / MARK).write_text('{"format": "stanzaq-history", "version": 1}')
    with pytest.raises(Unreadable, match=r"attempts lacks the columns attempt, bytes, .*: stanzaq did not write it"):
        inputs.of_history(str(tmp_path), spark=spark)


def test_nothing_half_written(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """A failed collection leaves the history as it was."""
    out = tmp_path / "history"
    journals.write(JOBS, 10)
    collect(journals.url, str(out), spark=spark)

    def files() -> set[Any]:
        return {path for path in out.rglob("*.parquet") if "_aside" not in path.parts}

    before = files()
    journals.write(JOBS, 10, first=10)
    journals.trim(JOBS, 5)
    with pytest.raises(
        Unreadable, match=r"^journal of jobs@ab12/0: 5 records after .* were dropped before they were read: .*--lossy"
    ):
        collect(journals.url, str(out), spark=spark)
    assert files() == before and attempts(spark, out) == list(range(10))

"""`stanzaq report collect`: the history outlives the streams, has each record once, and reports gaps."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from broker.analytics import census, collection, history, inputs
from broker.analytics.collection import Collected, ShortestRetention, collect
from broker.analytics.faults import Unreadable, translate_faults, unreadable
from broker.analytics.folder import Folder
from broker.analytics.history import MARK, Commit, History, claim_history, open_history
from broker.analytics.source.offsets import Id
from broker.analytics.source.options import Options
from broker.analytics.source.reader import Reader
from broker.analytics.source.servers import Process, Servers
from broker.analytics.source.snapshot import Bounds
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
OTHERS_JOURNAL = "sq:{others@cd34/5}:journal"


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
    used = [Usage("xmpp", "1edc2653", at_ms, at_ms // 10, 5) for at_ms in (T0, T0 + 60_000)]
    journals.client.hset(of_service("process_usage"), used[0].field, used[0].value)
    collected = collect(journals.url, str(out), spark=spark)
    # The journal of 1,000 records has got 100 in 99 seconds.
    assert collected.records == 200 and collected.soonest == ShortestRetention(
        JournalPartition.parse(str(queue.partition)), 990.0, None
    )
    journals.client.hset(of_service("process_usage"), used[1].field, used[1].value)
    journals.trim(JOBS, 0)
    journals.write(JOBS, 10, first=86_400)
    said: list[str] = []
    collected = collect(journals.url, str(out), spark=spark, tell=said.append)
    assert (collected.records, collected.lost) == (10, 0)
    assert collected.soonest and collected.soonest.since_s and not collected.soonest.too_short
    assert replace(collected.soonest, since_s=1_000.0).too_short
    assert attempts(spark, out) == [*range(100), *range(1_000, 1_100), *range(86_400, 86_410)]
    found = inputs.of_history(str(out), spark=spark)
    assert found.attempts.count() == 210
    assert [row["item"] for row in found.waiting.collect()] == ["waits"]
    assert [row["waiting"] for row in found.census.collect()] == [1, 1]
    # Each sample is in the history once.
    samples = open_history(spark, str(out))
    assert sorted(found.usage) == used and samples.table("process_usage").count() == 2
    assert samples.usage(datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(days=2)) == ()
    assert said[0] == "reading the state of the queues" and "reading the journals" in said
    assert sorted(path.name for path in out.iterdir() if path.name[0] not in "._") == [
        "attempts",
        "census",
        "commits",
        "in_flight",
        "process_usage",
        MARK,
        "waiting",
    ]
    assert sorted(path.name for path in (out / "attempts").glob("day=*")) == ["day=2023-11-14", "day=2023-11-15"]
    found.attempts.unpersist()


def test_an_account_is_erased(spark: SparkSession, journals: Journals, queue: Queue, tmp_path: Path) -> None:
    """The rows that name an account go from each file, and all others stay, also for those who read meanwhile."""
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    queue.publish("waits", by="w@x")
    queue.publish("stays", by="bob@x")
    collect(journals.url, str(out), spark=spark)
    before = open_history(spark, str(out))
    assert before.erase("w@x", datetime.now(UTC)) == 101
    after = open_history(spark, str(out))
    assert (before.table("attempts").count(), after.table("attempts").count()) == (100, 0)
    assert [row["item"] for row in after.table("waiting").collect()] == ["stays"]


def test_old_days(spark: SparkSession, journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days that ended before a time are taken out at once, and their files are removed when no report reads them any more."""
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    journals.write(OTHERS, 10, first=86_400)
    used = Usage("xmpp", "1edc2653", T0, 5, 5)
    journals.client.hset(of_service("process_usage"), used.field, used.value)
    collect(journals.url, str(out), spark=spark)
    before = open_history(spark, str(out))
    since = datetime.now(UTC) - datetime(2023, 11, 15, 12, tzinfo=UTC)
    assert collect(journals.url, str(out), spark=spark, keep=since).records == 0
    found = open_history(spark, str(out))
    assert found.days("attempts") == ["2023-11-15"] and found.usage() == ()
    assert attempts(spark, out) == [*range(86_400, 86_410)]
    # A report that has begun still reads what there was.
    assert before.table("attempts").count() == 110 and before.usage() == (used,)
    monkeypatch.setattr(history, "_KEPT_FOR_READERS_MS", 0)
    collect(journals.url, str(out), spark=spark)
    assert [path.name for path in (out / "attempts").iterdir()] == ["day=2023-11-15"]
    assert list((out / "process_usage").iterdir()) == []
    assert attempts(spark, out) == [*range(86_400, 86_410)]


@pytest.fixture
def filled(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Return a history with seven files of two days, of which up to three may be small, and a file of nobody."""
    monkeypatch.setattr(history, "_MANY", 3)
    made = claim_history(spark, str(tmp_path))
    stray = made.add("gaps", _gap(spark, 0))
    assert len(stray) == 1
    for number in range(7):
        made = made.put(made.commit.exchange([], made.add("gaps", _gap(spark, number)), 0))
    return made


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def _gap(spark: SparkSession, number: int) -> Any:  # noqa: ANN401  (a frame)
    """Make a row of one of two days."""
    at = NOW - timedelta(days=1) if number < 4 else NOW
    return spark.createDataFrame([("jobs", "aa", 0, None, None, number, at)], history.GAPS)


def _numbers(found: History) -> list[int]:
    return sorted(row["records"] for row in found.table("gaps").collect())


def test_merged(filled: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files become one when their day has ended or has many; who reads meanwhile has each row once."""
    tidied = filled.tidy(None, NOW)
    assert sorted(path.split("/")[1] for path in tidied.commit.files) == ["day=2026-01-01", "day=2026-01-02"]
    assert _numbers(filled) == _numbers(tidied) == _numbers(open_history(filled.spark, str(tmp_path))) == [*range(7)]
    assert tidied.tidy(None, NOW) is tidied
    # Files that no commit names any more, or never did, go when nobody can read them.
    assert len(list(tmp_path.glob("gaps/*/*.parquet"))) == 10
    monkeypatch.setattr(history, "_KEPT_FOR_READERS_MS", 0)
    later = datetime.now(UTC) + timedelta(days=1)
    left = tidied.put(tidied.drop_retired(later))
    assert len(list(tmp_path.glob("gaps/*/*.parquet"))) == 3
    left.tidy(timedelta(0), later)
    assert len(list(tmp_path.glob("gaps/*/*.parquet"))) == 2


def test_merge_cut_short(filled: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that ends before its commit changes nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(History, "put", MagicMock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            filled.tidy(None, NOW)
    found = open_history(filled.spark, str(tmp_path))
    assert _numbers(found) == [*range(7)] and _numbers(found.tidy(None, NOW)) == [*range(7)]


@pytest.mark.parametrize(
    ("sizes", "ended", "merged"),
    [
        ([1] * 15, False, []),
        ([1] * 16, False, [16]),
        ([1, 1], True, [2]),
        ([1], True, []),
        ([40, 40, 40, 40, 40], True, [3, 2]),
        ([60, 60, 60], True, [2]),
        ([64, 70, 128, 1], True, []),
    ],
)
def test_mergeable(sizes: list[int], *, ended: bool, merged: list[int]) -> None:
    """Files of less than 64 MiB are merged into such of up to 128; the others stay."""
    files = {f"attempts/day=2026-01-01/{number}": size * 2**20 for number, size in enumerate(sizes)}
    found = [*history._mergeable(files | {"waiting/a": 1}, "2026-01-02" if ended else "2026-01-01")]
    assert [len(paths) for _, paths in found] == merged
    assert all(sum(files[path] for path in paths) <= 128 * 2**20 for _, paths in found)


def test_two_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Of two collections that begin with the same commit, one is refused."""
    first, second = (claim_history(spark, str(tmp_path)) for _ in range(2))
    first.put(Commit(collected_ms=1))
    with pytest.raises(Unreadable, match=r"was written by another collection meanwhile: run only one at a time"):
        second.put(Commit(collected_ms=2))
    assert open_history(spark, str(tmp_path)).commit == Commit(number=1, collected_ms=1)


def test_damaged_commit(spark: SparkSession, tmp_path: Path) -> None:
    """A damaged commit is named; without it the one before counts. Only some are kept."""
    made = claim_history(spark, str(tmp_path))
    for number in range(12):
        made = made.put(Commit(collected_ms=number))
    names = sorted(path.name for path in (tmp_path / "commits").glob("*.json"))
    assert names == [f"{number:012}.json" for number in range(3, 13)]
    newest = tmp_path / "commits" / names[-1]
    newest.with_name(f".{newest.name}.crc").unlink()
    newest.write_text(json.dumps({"number": 12})[:-3])
    with pytest.raises(Unreadable, match=r"commits/000000000012.json is damaged: remove it"):
        open_history(spark, str(tmp_path))
    newest.unlink()
    assert open_history(spark, str(tmp_path)).commit.collected_ms == 10


def test_absent_for_a_time(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """A journal that is missing for some collections is no gap; it is read on from where it was, and its losses are known."""
    out = str(tmp_path / "history")
    journals.write(JOBS, 10)
    journals.write(OTHERS, 10, first=1_000)
    collect(journals.url, out, spark=spark)
    journals.client.rename(OTHERS_JOURNAL, "away")
    assert collect(journals.url, out, spark=spark) == Collected(0, 0, missing=1)
    journals.write(JOBS, 1, first=10)
    assert collect(journals.url, out, spark=spark) == Collected(1, 0)
    journals.client.rename("away", OTHERS_JOURNAL)
    journals.write(OTHERS, 10, first=1_010)
    journals.trim(OTHERS, 7)
    assert collect(journals.url, out, spark=spark, lossy=True) == Collected(7, 3)
    assert attempts(spark, tmp_path / "history") == [*range(11), *range(1_000, 1_010), *range(1_013, 1_020)]


def test_offsets_of_absent_journals() -> None:
    """The offset of a missing journal is known for a month; one of a restored Redis does not go back."""
    here, gone = JournalPartition("here", "aa", 0), JournalPartition("gone", "bb", 0)
    month = 30 * 86_400_000
    before = Commit(offsets={str(here): "9-0/9", str(gone): "5-0/5"}, absent={str(gone): 1_000})
    for last, now_ms, kept in ((8, month, True), (10, month + 1_000, False)):
        bounds = {here: Bounds(Process(), here, "", None, Id(last), 0, last)}
        absent = collection._find_absent(before, bounds, now_ms)
        assert absent == ({str(gone): 1_000} if kept else {})
        offsets = collection._carry_offsets(before, bounds, absent)
        assert offsets == ({str(gone): "5-0/5", str(here): "9-0/9"} if kept else {str(here): "10-0/10"})


def test_gaps(spark: SparkSession, journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost records between two collections are refused, or with the option a gap in the history, to the record.

    The note of the gap and the records beside it belong to one commit: where that is missing there is neither.
    """
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    journals.write(OTHERS, 10, first=1_000)
    collect(journals.url, str(out), spark=spark)
    for partition, first in ((JOBS, 100), (OTHERS, 1_010)):
        journals.write(partition, 50, first=first)
    journals.trim(JOBS, 20)
    before = open_history(spark, str(out)).commit
    with pytest.raises(
        Unreadable, match=r"^journal of jobs@ab12/0: 30 records after .* were dropped before they were read: .*--lossy"
    ):
        collect(journals.url, str(out), spark=spark)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", MagicMock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            collect(journals.url, str(out), spark=spark, lossy=True)
    assert open_history(spark, str(out)).commit == before
    collected = collect(journals.url, str(out), spark=spark, lossy=True)
    assert (collected.records, collected.lost) == (70, 30)
    (gap,) = inputs.of_history(str(out), spark=spark).gaps.drop("noticed").collect()
    assert tuple(gap) == ("jobs", "ab12", 0, f"{T0 + 99_000}-0", f"{T0 + 149_000}-0", 30)


@contextmanager
def full_disk(spark: SparkSession) -> Iterator[None]:
    """Let Java write nothing, as on a disk without room."""
    java = spark.sparkContext._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    before = resource.prlimit(java, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, before)


def test_full_disk(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """A disk without room is told in one line; the history stays as it was, and the next collection has each record once."""
    out = tmp_path / "history"
    journals.write(JOBS, 100)
    collect(journals.url, str(out), spark=spark)
    before = open_history(spark, str(out)).commit
    journals.write(JOBS, 50, first=100)
    with (
        full_disk(spark),
        pytest.raises(Unreadable, match=r"^files cannot be written or read \(.*\): see .* has room"),
        translate_faults(),
    ):
        collect(journals.url, str(out), spark=spark)
    assert open_history(spark, str(out)).commit == before
    collect(journals.url, str(out), spark=spark)
    assert attempts(spark, out) == list(range(150))


COLLECT = """
import sys
from broker.analytics.collection import collect
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
        while not (out / MARK).exists() and time.monotonic() < deadline:
            # Java starts meanwhile, and needs the processor.
            time.sleep(0.05)
        # Files are in their place before the commit that names them.
        while not list((out / "attempts").glob("day=*/*.parquet")) and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert list((out / "attempts").glob("day=*/*.parquet"))
    assert not (out / "commits").exists()
    collect(journals.url, str(out), spark=spark)
    assert attempts(spark, out) == [number * 1_000 + record for number in range(40) for record in range(500)]


def test_what_waits(spark: SparkSession, queue: Queue, journals: Journals) -> None:
    """Waiting items are those that the queue counts: not locked, done or kept ones, but returned and delayed ones."""
    queue.open(revision=2, keep_items=100)
    queue.subscribe("w@x/a", 3, revision="2")
    queue.publish(*(f"i{number}" for number in range(8)), revision="2")
    queue.subscribe("lease@x/a", 4, "pulled", revision="2")
    queue.subscribe("link@x/a", 0, "pulled", revision="2")
    queue.run("receive", queue.receiving("link@x/a", 0, lease="0", credit=5), revision="2")
    queue.run("retract", queue.asked("w@x/a", "i0"), revision="2")
    queue.run("unlock", queue.given_back("w@x/a", "i1", delay_ms=60_000), revision="2")
    queue.publish("i7", body="again", revision="2")
    stats = queue.run("stats", revision="2").rows
    found = inputs.of_redis(journals.url, spark=spark)
    assert sorted(row["item"] for row in found.waiting.collect()) == ["i1", "i5", "i6", "i7"]
    (row,) = found.census.collect()
    assert (row["waiting"], row["in_flight"]) == (stats[0], stats[3]) == (4, 3)
    assert (row["credit"], row["subscribers"], row["journal_length"], row["journal_max"]) == (3 + 4 + 5, 3, 2, 1000)
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


def test_no_bodies(queue: Queue, journals: Journals) -> None:
    """What waits is found without reading payloads."""
    queue.publish(*(f"i{number}" for number in range(30)), body="x" * 50_000)

    def sent() -> int:
        return int(journals.client.info("stats")["total_net_output_bytes"])

    before, given = sent(), {"url": journals.url, "stream": "log", "bodies": "false"}
    (state,) = census.partition_states(Servers(journals.url), Options.read(given)).values()
    reader = Reader(Options.read(given))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert state.row[4] == 30 and [row["item"] for row in rows] == [f"i{number}" for number in range(30)]
    assert {row["body"] for row in rows} == {b""} and sent() - before < 50_000


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
        ('{"format": "stanzaq-history", "version": 3}', "is a history of version 3, .* install a newer stanzaq"),
        ('{"format": "stanzaq-history", "version": 1}', "is a history of version 1, .* collect into a new folder"),
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
    with pytest.raises(Unreadable) as caught:
        collect(journals.url, out, spark=spark)
    assert re.match(r"(the folder .* cannot be used|files cannot be written or read) \(.+\): ", str(caught.value))


def test_store_goes_away(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """If the store of the history goes away meanwhile, one line says so, and it is as it was when it comes back."""
    out = tmp_path / "history"
    journals.write(JOBS, 10)
    collect(journals.url, str(out), spark=spark)
    journals.write(JOBS, 10, first=10)

    def goes(said: str) -> None:
        if said == "reading the journals":
            shutil.move(out, tmp_path / "away")
            out.write_text("no folder")

    with pytest.raises(
        Unreadable, match=r"^files cannot be written or read \(.*not a directory.*\): see that their store"
    ):
        collect(journals.url, str(out), spark=spark, tell=goes)
    out.unlink()
    shutil.move(tmp_path / "away", out)
    assert attempts(spark, out) == [*range(10)]
    found = open_history(spark, str(out))
    shutil.rmtree(out / "attempts")
    with pytest.raises(Exception, match="does not exist") as caught:
        found.table("attempts").count()
    assert str(unreadable(caught.value)).startswith("files cannot be written or read (")

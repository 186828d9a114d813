"""`spark.readStream.format("stanzaq")`: increments, each row in exactly one, and of the requested size."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.analytics.faults import Unreadable, unreadable
from broker.analytics.source import increments
from broker.analytics.source.increments import Increments, SparkOffsets
from broker.analytics.source.options import Options
from broker.analytics.source.progress import Behind, behind
from broker.model.names import Partition
from tests.analytics.conftest import Journals
from tests.lua.driver import T0

JOBS = Partition("jobs", "ab12")
OTHERS = Partition("others", "cd34", 5)


class Query:
    """A streaming query as Spark runs it with `availableNow`, a run at a time; `end` is its checkpoint."""

    def __init__(self, url: str) -> None:
        """Begin without a checkpoint."""
        self._url = url
        self.end: SparkOffsets | None = None

    def run(self, column: str = "token", **options: str) -> list[list[Any]]:
        """Return the rows of each increment until there are no more; after a fault the same increment is tried again."""
        reader = Increments(Options.read({"url": self._url, **options}))
        if self.end is None:
            self.end = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        limit = reader.getDefaultReadLimit()
        found = []
        # Spark passes JSON.
        while (end := json.loads(json.dumps(reader.latestOffset(self.end, limit)))) != self.end:
            tasks = reader.partitions(self.end, end)
            found.append(sorted(t for task in tasks for rows in reader.read(task) for t in rows[column].to_pylist()))
            self.end = end
        return found


def all_of(found: list[list[Any]]) -> list[Any]:
    """Return the rows of all increments."""
    return list(chain.from_iterable(found))


@pytest.fixture
def query(journals: Journals) -> Query:
    """Return a query of all journals."""
    return Query(journals.url)


def test_each_row_once(journals: Journals, query: Query) -> None:
    """Increments together are the journals, also of new nodes in between, and none is empty without need."""
    journals.write(JOBS, 100)
    assert query.run() == [[*range(100)]]
    assert query.run() == []
    journals.write(JOBS, 50, first=100)
    journals.write(OTHERS, 30, first=1_000)
    assert query.run() == [[*range(100, 150), *range(1_000, 1_030)]]


@pytest.mark.parametrize("limit", range(1, 60, 7))
def test_exact_limit(journals: Journals, query: Query, limit: int) -> None:
    """With a limit each increment has exactly so many rows, while there are as many, however they are spread."""
    journals.write(JOBS, 95)
    journals.write(OTHERS, 5, first=1_000)
    journals.write(Partition("jobs", "ab12", 1), 1, first=2_000)
    found = query.run(maxOffsetsPerTrigger=str(limit))
    assert [len(rows) for rows in found] == [limit] * (101 // limit) + [101 % limit] * (101 % limit > 0)
    assert sorted(all_of(found)) == [*range(95), *range(1_000, 1_005), 2_000]
    # Records counted in parts are known to be read: they may go.
    journals.trim(JOBS, 0)
    journals.write(JOBS, 3, first=95)
    assert all_of(query.run(maxOffsetsPerTrigger=str(limit))) == [95, 96, 97]


def test_idle_until_all_is_too_old(journals: Journals, query: Query) -> None:
    """A journal that was read completely may lose everything: nothing went unread."""
    journals.write(JOBS, 100)
    query.run()
    journals.trim(JOBS, 0)
    assert query.run() == []
    journals.write(JOBS, 10, first=100)
    assert query.run() == [[*range(100, 110)]]


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}])
@pytest.mark.parametrize("left", [20, 0])
def test_loss_in_between(journals: Journals, query: Query, limit: dict[str, str], left: int) -> None:
    """A loss between two increments is refused, or skipped with the option; then reading continues from there."""
    journals.write(JOBS, 100)
    query.run(**limit)
    journals.write(JOBS, 50, first=100)
    journals.trim(JOBS, left)
    line = f"^journal of jobs@ab12/0: {50 - left} records after {T0 + 99_000}-0 were dropped before they were read: "
    for _ in range(2):
        with pytest.raises(Unreadable, match=line):
            query.run(**limit)
    assert all_of(query.run(failOnDataLoss="false", **limit)) == [*range(150 - left, 150)]
    journals.write(JOBS, 5, first=150)
    assert query.run(**limit) == [[*range(150, 155)]]


def test_a_new_node_that_lost_some(journals: Journals, query: Query) -> None:
    """A node created since the last increment must be read from its very first record."""
    journals.write(JOBS, 10)
    query.run()
    journals.write(OTHERS, 10)
    journals.trim(OTHERS, 4)
    with pytest.raises(Unreadable, match=r"^journal of others@cd34/5: 6 records after 0-0 were dropped"):
        query.run()


def test_deleted_node(journals: Journals, query: Query) -> None:
    """A deleted node is refused, or forgotten with the option."""
    journals.write(JOBS, 10)
    journals.write(OTHERS, 10, first=1_000)
    query.run()
    journals.client.delete("sq:{others@cd34/5}:journal")
    with pytest.raises(Unreadable, match=r"^journal of others@cd34/5: records after "):
        query.run()
    assert query.run(failOnDataLoss="false") == [[]]
    journals.write(JOBS, 10, first=10)
    assert query.run() == [[*range(10, 20)]]


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}])
def test_absent_for_a_time(journals: Journals, query: Query, limit: dict[str, str]) -> None:
    """A stream that is missing for some increments is read on from where it was, and its losses are known."""
    lossy = {"failOnDataLoss": "false", **limit}
    journals.write(JOBS, 10)
    journals.write(OTHERS, 10, first=1_000)
    query.run(**limit)
    key = "sq:{others@cd34/5}:journal"
    journals.client.rename(key, "away")
    for number in (10, 11):
        journals.write(JOBS, 1, first=number)
        assert all_of(query.run(**lossy)) == [number]
    journals.client.rename("away", key)
    journals.write(OTHERS, 10, first=1_010)
    assert all_of(query.run(**limit)) == [*range(1_010, 1_020)]
    assert query.run(**limit) == []
    assert query.end is not None and "absent" not in str(query.end)


def test_absent_for_good(journals: Journals, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is missing for a month is forgotten."""
    journals.write(OTHERS, 10)
    query.run()
    journals.client.delete("sq:{others@cd34/5}:journal")
    assert query.run(failOnDataLoss="false") == [[]] and query.run() == []
    assert query.end and [*query.end] == [str(OTHERS)]
    monkeypatch.setattr(increments, "ABSENT_MS", 0)
    assert query.run() == [[]] and query.end == {}


def test_a_log(journals: Journals, query: Query) -> None:
    """A log has increments too; finished entries are no loss, nor is a log deleted with its node."""
    key = "sq:{jobs@ab12/0}:log"
    for number in range(10):
        journals.client.xadd(key, {"by": "a@x", "body": b"x", "id": f"i{number}"})
    assert query.run("item", stream="log", maxOffsetsPerTrigger="4") == [
        ["i0", "i1", "i2", "i3"],
        ["i4", "i5", "i6", "i7"],
        ["i8", "i9"],
    ]
    journals.client.xtrim(key, maxlen=0, approximate=False)
    journals.client.xadd(key, {"by": "a@x", "body": b"x", "id": "new"})
    assert query.run("item", stream="log") == [["new"]]
    journals.client.delete(key)
    assert all_of(query.run("item", stream="log")) == []


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "latest"}, 100),
        ({"startingTimestamp": str(T0 + 90_000)}, 90),
        ({"startingOffsets": f'{{"{JOBS}": "{T0 + 69_000}-0"}}'}, 70),
        ({"startingOffsetsByTimestamp": f'{{"{JOBS}": {T0 + 80_000}}}'}, 80),
        ({"startingOffsetsByTimestamp": f'{{"{OTHERS}": {T0 + 80_000}}}'}, 0),
    ],
)
def test_starts(journals: Journals, query: Query, options: dict[str, str], first: int) -> None:
    """It may begin with new rows, or from a time or offsets on; later journals are read completely."""
    journals.write(JOBS, 100)
    assert all_of(query.run(**options)) == [*range(first, 100)]
    journals.write(JOBS, 10, first=100)
    journals.write(OTHERS, 10, first=1_000)
    assert query.run(**options) == [[*range(100, 110), *range(1_000, 1_010)]]


@pytest.mark.parametrize("option", [{"endingTimestamp": str(T0)}, {"endingOffsetsByTimestamp": f'{{"{JOBS}": {T0}}}'}])
def test_an_end_is_refused(option: dict[str, str]) -> None:
    """An end is refused: a stream has none."""
    with pytest.raises(Unreadable, match=r"^a stream has no end: "):
        Increments(Options.read({"url": "redis://h", **option}))


def test_a_minimum(journals: Journals, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """An increment waits for so many rows, but no longer than the delay; nothing waits for ever with `availableNow`."""
    now = 0.0
    monkeypatch.setattr("broker.analytics.source.increments.time.monotonic", lambda: now)
    least = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "10m"}
    increments = Increments(Options.read({"url": journals.url, **least}))

    def read(start: SparkOffsets) -> SparkOffsets:
        return increments.latestOffset(start, increments.getDefaultReadLimit())

    journals.write(JOBS, 10)
    # The first one does not wait.
    end = read(increments.initialOffset())
    assert end == {str(JOBS): f"{T0 + 9_000}-0/10"}
    journals.write(JOBS, 30, first=10)
    journals.write(OTHERS, 19)
    assert read(end) == end
    journals.write(OTHERS, 1, first=19)
    assert read(end) == (end := {str(JOBS): f"{T0 + 39_000}-0/40", str(OTHERS): f"{T0 + 19_000}-0/20"})
    journals.write(JOBS, 1, first=40)
    now = 599.0
    assert read(end) == end
    now = 600.0
    assert read(end) == {**end, str(JOBS): f"{T0 + 40_000}-0/41"}
    assert len(all_of(query.run(**least))) == 61
    journals.write(JOBS, 1, first=41)
    assert query.run(**least) == [[41]]


def test_in_spark(spark: SparkSession, journals: Journals, tmp_path: Path) -> None:
    """In Spark: exact increments, how far each is behind, a checkpoint, and one line for a refusal."""
    behinds: list[dict[str, Behind]] = []

    def run() -> list[int]:
        started = (
            spark.readStream.format("stanzaq")
            .options(url=journals.url, maxOffsetsPerTrigger="40")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            started.awaitTermination()
        except PySparkException as error:
            # On a busy machine Spark gives up on its Python process, for which it waits ten seconds.
            if "Python worker failed to connect back" in str(error):
                return run()
            raise
        behinds.extend(behind(progress) for progress in started.recentProgress)
        batches: list[Any] = [json.loads(progress.json) for progress in started.recentProgress]
        return [batch["numInputRows"] for batch in batches if batch["numInputRows"]]

    journals.write(JOBS, 60)
    journals.write(OTHERS, 5, first=1_000)
    assert run() == [40, 25]
    assert behinds[:2] == [
        {str(JOBS): Behind(25, 25.0), str(OTHERS): Behind(0, 0.0)},
        {str(JOBS): Behind(0, 0.0), str(OTHERS): Behind(0, 0.0)},
    ]
    journals.write(JOBS, 5, first=60)
    journals.trim(JOBS, 3)
    with pytest.raises(PySparkException) as caught:
        run()
    assert str(unreadable(caught.value)).startswith("journal of jobs@ab12/0: 2 records after ")
    rows = spark.read.parquet(str(tmp_path / "out")).select("token").collect()
    assert sorted(row["token"] for row in rows) == [*range(60), *range(1_000, 1_005)]

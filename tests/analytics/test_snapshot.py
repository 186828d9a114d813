"""`spark.read.format("stanzaq")` returns what is in Redis, each row once."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker import keys
from broker.analytics.faults import Unreadable, unreadable
from broker.journal.schema import FIELDS, record
from broker.model.names import Partition
from tests.analytics.conftest import Journals, numbers, taken
from tests.lua.driver import T0, Queue

Read = Callable[..., DataFrame]
JOBS = Partition("jobs", "ab12")


def refused(frame: Callable[[], object]) -> str:
    """Return the one line of a refusal."""
    with pytest.raises(PySparkException) as caught:
        frame()
    line = unreadable(caught.value)
    assert line and "\n" not in line
    return line


def worked(queue: Queue) -> None:
    """Let attempts end in every way but by a bounce, with names that are hard to read."""
    queue.subscribe("worker@x/a b é", 10)
    queue.publish("plain", "two words", "{braces}", "ünï")
    for delivery in queue.publish("").deliveries:
        queue.retract(delivery.jid, delivery.item, delivery.token)
    queue.now += 5
    queue.unlock("worker@x/a b é", "two words", reason="disk full: é")
    queue.unlock("worker@x/a b é", "plain", dead_letter="1")
    queue.retract("worker@x/a b é", "ünï")
    queue.now += 100_000
    queue.expire()


def test_rows_are_the_records_of_scripts(queue: Queue, read: Read) -> None:
    """Each record that a script wrote is a row, field by field as `record` reads it."""
    worked(queue)
    raw: Any = queue.client.xrange(queue.key("journal"))
    expected = [(offset.decode(), record(fields)) for offset, fields in raw]
    assert {found["type"] for _, found in expected} == {"acknowledged", "released", "expired", "dead-lettered"}
    rows = read().orderBy("offset").collect()
    assert len(rows) == len(expected)
    for row, (offset, found) in zip(rows, expected, strict=True):
        assert (row["node"], row["incarnation"], row["partition"], row["offset"]) == (
            "jobs",
            queue.partition.incarnation,
            0,
            offset,
        )
        for field in FIELDS:
            value = row[field.name]
            read_back = round(value.timestamp() * 1000) if field.unit.startswith("ms") else value
            assert read_back == found[field.name], field.name
        assert row["held_ms"] == int(found["closed"]) - int(found["delivered"])
        assert row["wait_ms"] == (int(found["delivered"]) - int(found["published"]) if found["attempt"] == 1 else None)
        assert row["position"].startswith(f"{found['published']}-")


def test_log(queue: Queue, read: Read) -> None:
    """The log is read as well: payloads with their ids, keys and publishers."""
    queue.publish("mine", key="k", body="one")
    queue.publish("", body="two")
    rows = read(stream="log").orderBy("offset").collect()
    assert [(row["key"], row["publisher"], bytes(row["body"]), row["at"]) for row in rows] == [
        ("k", "alice@x", b"one", None),
        (None, "alice@x", b"two", None),
    ]
    assert rows[0]["item"] == "mine" and rows[1]["item"] == f"0-{rows[1]['offset']}"
    assert all(row["published"].timestamp() * 1000 == int(row["offset"].partition("-")[0]) for row in rows)


def test_several_tasks(journals: Journals, read: Read) -> None:
    """Partitions of several nodes, distributed to several tasks, give each record once."""
    for number, partition in enumerate((JOBS, Partition("jobs", "ab12", 1), Partition("a node", "cd34", 1023))):
        journals.write(partition, 2_345, first=number * 10_000)
    frame = read(minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    assert numbers(frame) == [first + number for first in (0, 10_000, 20_000) for number in range(2_345)]
    assert {(row[0], row[1]) for row in frame.select("node", "partition").distinct().collect()} == {
        ("jobs", 0),
        ("jobs", 1),
        ("a node", 1023),
    }


def test_nothing(journals: Journals, read: Read) -> None:
    """A Redis without a queue gives no rows."""
    assert read().count() == 0


def test_what_comes_later_is_not_in_it(journals: Journals, read: Read) -> None:
    """A second pass over the same frame's plan, with fixed bounds, sees the same rows."""
    journals.write(JOBS, 100)
    bounded = read(endingOffsets=f'{{"{JOBS}": "{T0 + 99_000}-0"}}')
    journals.write(JOBS, 100, first=100)
    assert numbers(bounded) == list(range(100))
    assert numbers(read()) == list(range(200))


@pytest.mark.parametrize("push", ["false", "true"])
def test_queries_of_one_frame(spark: SparkSession, journals: Journals, read: Read, push: str) -> None:
    """Each query of a DataFrame has its own rows and no filter of another's, also as a view, also two in one plan."""
    journals.write(JOBS, 10)
    journals.write(Partition("others", "ab12", 1), 5, first=100)
    jobs, others = list(range(10)), list(range(100, 105))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", push)
    try:
        frame = read()
        of_jobs, of_others = frame.where("node = 'jobs'"), frame.where("partition = 1")
        assert numbers(of_jobs) == jobs
        assert numbers(frame) == jobs + others
        assert numbers(of_others.union(of_jobs)) == jobs + others
        frame.createOrReplaceTempView("attempts")
        for wanted, found in (
            (f"closed < timestamp_millis({T0 + 3_000})", jobs[:3]),
            ("type = 'released'", []),
            ("true", jobs + others),
        ):
            assert numbers(spark.table("attempts").where(wanted)) == found
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_one_snapshot_of_a_frame(journals: Journals, read: Read) -> None:
    """All queries of a DataFrame see the state at its first; another one sees later rows."""
    journals.write(JOBS, 10)
    frame = read()
    assert numbers(frame) == list(range(10))
    journals.write(JOBS, 5, first=10)
    assert numbers(frame.where("node = 'jobs'")) == numbers(frame) == list(range(10))
    assert numbers(read()) == list(range(15))


@pytest.mark.parametrize(
    ("options", "numbered"),
    [
        ({"subscribe": "jobs"}, range(3_000)),
        ({"startingTimestamp": str(T0 + 1_500_000)}, [*range(1_500, 3_000), *range(10_000, 13_000)]),
        ({"endingTimestamp": str(T0 + 99_000)}, [*range(100)]),
    ],
)
def test_options_spare_redis(journals: Journals, options: dict[str, str], numbered: list[int]) -> None:
    """Nodes and times that options exclude are not requested from Redis."""
    journals.write(JOBS, 3_000)
    journals.write(Partition("others", "ab12", 1), 3_000, first=10_000)
    journals.client.config_resetstat()
    assert taken(url=journals.url, **options) == list(numbered)
    asked = journals.client.info("commandstats")["cmdstat_xrange"]["calls"]
    # All of it is three thousand of each, at a thousand a command.
    assert asked < 6


@pytest.mark.parametrize(
    ("options", "numbered"),
    [
        ({"subscribe": "jobs"}, range(10)),
        ({"subscribe": "others, jobs"}, range(20)),
        ({"subscribePattern": "o.*"}, range(10, 20)),
        ({"startingTimestamp": str(T0 + 15_000)}, range(15, 20)),
        ({"endingTimestamp": str(T0 + 4_000)}, range(5)),
        ({"startingOffsetsByTimestamp": f'{{"others@ab12/0": {T0 + 15_000}}}'}, [*range(10), *range(15, 20)]),
        ({"endingOffsetsByTimestamp": f'{{"jobs@ab12/0": {T0 + 4_000}}}'}, [*range(5), *range(10, 20)]),
        (
            {"startingTimestamp": str(T0 + 15_000), "startingOffsetsByTimestamp": f'{{"jobs@ab12/0": {T0}}}'},
            range(15, 20),
        ),
        ({"startingOffsets": f'{{"jobs@ab12/0": "{T0 + 4_000}-0"}}', "subscribe": "jobs"}, range(5, 10)),
        ({"startingOffsets": f'{{"jobs@ab12/0": "{T0 + 4_000}-0/5"}}', "subscribe": "jobs"}, range(5, 10)),
    ],
)
def test_options(journals: Journals, options: dict[str, str], numbered: Sequence[int]) -> None:
    """Nodes, offsets and times may be chosen by options."""
    journals.write(JOBS, 10)
    journals.write(Partition("others", "ab12"), 10, first=10)
    assert taken(url=journals.url, **options) == list(numbered)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"startingOffset": "earliest"}, "there is no option 'startingOffset'"),
        ({"stream": "inflight"}, "the option stream: 'inflight' is none of journal, log"),
        ({"minPartitions": "0"}, "the option minPartitions: '0' is not a positive number"),
        ({"failOnDataLoss": "maybe"}, "the option failOnDataLoss"),
        ({"startingOffsets": "now"}, "the option startingOffsets: 'now' is neither earliest"),
        ({"startingOffsets": '{"jobs@ab12/0": "soon"}'}, "the option startingOffsets: 'soon' is not an offset"),
        ({"startingOffsetsByTimestamp": '{"jobs@ab12/0": "1"}'}, "the option startingOffsetsByTimestamp: "),
        ({"endingOffsetsByTimestamp": '{"gone@ab12/0": 1}'}, "there is no journal of gone@ab12/0: take it out"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "jobs@ab12/0 would begin at 2, after its end at 1: "),
        ({"maxTriggerDelay": "soon"}, "the option maxTriggerDelay: 'soon' is not a duration such as 15m"),
        ({"fetchOffset.numRetries": "-1"}, "the option fetchOffset.numRetries: '-1' is not a positive number"),
        ({"subscribePattern": "("}, "the option subscribePattern: '(' is not a regular expression"),
        ({"startingOffsets": "latest"}, "a batch has no rows from `latest` on"),
        ({"subscribe": "jobs,nobody"}, "there is no journal of nobody: correct subscribe"),
        ({"startingOffsets": '{"gone@ab12/0": "1-0"}'}, "there is no journal of gone@ab12/0"),
        ({"url": "redis://127.0.0.1:1/0"}, "Redis at 127.0.0.1:1 cannot be reached"),
        ({"url": "http://127.0.0.1"}, "the url of Redis: "),
        ({"readFrom": "replica"}, "no replica of"),
    ],
)
def test_bad_options(journals: Journals, options: dict[str, str], line: str) -> None:
    """A wrong option is refused with one line that names it and says what to do."""
    journals.write(JOBS, 1)
    with pytest.raises(Unreadable, match=f"^{re.escape(line)}.*$"):
        taken(**{"url": journals.url, **options})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"version": "2", "all": "else"}, "is of version 2, newer than this program: install"),
        ({"type": "acknowledged"}, "is damaged: "),
        ({**Journals.record(1, T0), "lock": "f1 9"}, "is damaged: "),
        (
            {**Journals.record(1, T0), "lock": Journals.record(1, T0)["lock"].replace(" 8 w@x", " 7 w@x")},
            "is damaged: ",
        ),
        ({**Journals.record(1, T0), "type": "exploded"}, "is damaged: "),
        ({**Journals.record(1, T0), "closed": "9" * 30}, "was not written by this program: "),
        ({**Journals.record(1, T0), "reason": b"\xff"}, "is damaged: "),
    ],
)
def test_bad_records(journals: Journals, fields: dict[str, str], line: str) -> None:
    """A torn record, or one newer than the program, is named; nothing is read past it."""
    journals.write(JOBS, 2)
    offset = journals.client.xadd(keys.of_partition("journal", JOBS), fields).decode()
    where = f"^journal of jobs@ab12/0: (the record {offset}|a record after {T0}-0) "
    with pytest.raises(Unreadable, match=f"{where}{re.escape(line)}.*$"):
        taken(url=journals.url)


def test_one_line_of_what_spark_says(spark: SparkSession, journals: Journals, read: Read) -> None:
    """The refusal of a task, a plan or of columns is found again in Spark's own error."""
    other = spark.read.schema("token long").format("stanzaq").option("url", journals.url)
    assert refused(lambda: other.load().count()) == (
        "the columns of `stanzaq` follow from the option stream: leave out schema(), and use select()"
    )
    assert refused(lambda: read(stream="inflight").count()).startswith("the option stream: ")
    journals.client.xadd(keys.of_partition("journal", JOBS), {"type": "acknowledged"})
    assert " is damaged: " in refused(lambda: read().count())

"""One Spark session and some journals for the tests of reports."""

# ruff: noqa: ANN401  (what redis-py answers)

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession

from broker import keys
from broker.analytics.session import session
from broker.analytics.source.options import Options
from broker.analytics.source.reader import Reader
from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import T0, Queue, Runner

# Tables are small: to compile what reads them costs more than to interpret it.
SETTINGS = {
    "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_driver_memory": "1g",
    "spark_sql_shuffle_partitions": "1",
    "spark_sql_adaptive_enabled": "false",
    "spark_sql_codegen_factoryMode": "NO_CODEGEN",
    "spark_sql_codegen_wholeStage": "false",
    "spark_sql_streaming_noDataMicroBatches_enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session on one core."""
    with session("local[1]", **SETTINGS) as made:
        yield made


class Journals:
    """Journals of partitions on one Redis, written as scripts write them."""

    def __init__(self, url: str, client: Any) -> None:
        """Write to this Redis."""
        self.url = url
        self.client = client

    def write(self, partition: Partition, count: int, *, first: int = 0, closed: int = T0) -> None:
        """Write so many records a second apart, from a number on."""
        pipe = self.client.pipeline(transaction=False)
        for number in range(first, first + count):
            at = closed + number * 1_000
            fields = self.record(number, at)
            pipe.xadd(keys.of_partition("journal", partition), fields, id=f"{at}-0")
        pipe.execute()

    @staticmethod
    def record(number: int, closed: int, kind: str = "acknowledged", attempt: int = 1) -> dict[str, str]:
        """Make a record."""
        line = f"f1 9 {number} {attempt} 77 {closed - 300}-{number} {closed - 200} 205 8 w@x/a é item {number}"
        return {"type": kind, "closed": str(closed), "lock": line, "reason": ""}

    def trim(self, partition: Partition, keep: int) -> None:
        """Take the oldest records away."""
        self.client.xtrim(keys.of_partition("journal", partition), maxlen=keep, approximate=False)


@pytest.fixture
def journals(valkey: RedisServer) -> Iterator[Journals]:
    """Give an empty Redis."""
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
        yield Journals(valkey.url, client)


@pytest.fixture
def read(spark: SparkSession, journals: Journals) -> Callable[..., DataFrame]:
    """Give a way to read a snapshot."""

    def made(**options: Any) -> DataFrame:
        return spark.read.format("stanzaq").options(**{"url": journals.url, **options}).load()

    return made


@pytest.fixture
def queue(journals: Journals) -> Queue:
    """Give a partition worked on by the scripts themselves."""
    queue = Queue(Runner(journals.client, checked=False), Partition("jobs", secrets.token_hex(4)))
    queue.open()
    return queue


def numbers(frame: DataFrame) -> Sequence[int]:
    """Give which of the records of `Journals` there are."""
    return sorted(row["token"] for row in frame.select("token").collect())


def taken(**options: str) -> list[int]:
    """Give which records a snapshot has, read task by task as executors do, and without Spark, which takes seconds for it.

    Tests that wait for nobody's answer do not wait long.
    """
    reader = Reader(Options.read({"fetchOffset.retryIntervalMs": "1", **options}))
    return sorted(
        token for task in reader.partitions() for batch in reader.read(task) for token in batch["token"].to_pylist()
    )

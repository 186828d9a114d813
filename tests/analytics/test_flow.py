"""A snapshot of a queue at work: nothing comes twice, nothing is missing."""

import time
from typing import Any

from pyspark.sql import SparkSession

from bench.spark import Load
from tests.analytics.conftest import Journals


def test_while_items_flow(spark: SparkSession, journals: Journals) -> None:
    """Each of two snapshots has all records from the first up to some instant after it was requested."""
    load = Load(journals.url)
    key = "sq:{flow@bench/0}:journal"
    with load.run():
        while load.done < 2_000:
            time.sleep(0.01)
        taken = []
        for _ in range(2):
            before: Any = journals.client.xlen(key)
            frame = spark.read.format("stanzaq").option("url", journals.url).load()
            rows = [row["offset"] for row in frame.select("offset").collect()]
            taken.append((before, rows, load.done))
    entries: Any = journals.client.xrange(key)
    written = [offset.decode() for offset, _ in entries]
    assert len(written) == load.done
    for before, rows, after in taken:
        assert rows == written[: len(rows)]
        assert before <= len(rows) <= after + 1_000
    assert taken[0][2] < taken[1][2], "nothing flowed meanwhile"

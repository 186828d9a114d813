"""Records that are trimmed before or while they are read: noticed exactly, refused, or reported and skipped."""

import logging
import time

import pytest

from broker.analytics.faults import Unreadable
from broker.analytics.source.fetch import ReadOptions, fetch
from broker.analytics.source.offsets import MOST, Id, Offset
from broker.analytics.source.options import Options, Patience
from broker.analytics.source.plan import begin
from broker.analytics.source.reader import Reader
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import snapshot
from broker.model.names import Partition
from tests.analytics.conftest import Journals, taken
from tests.lua.driver import T0

JOBS = Partition("jobs", "ab12")
STRICT = ReadOptions(100, watched=True, refuse=True)
LENIENT = ReadOptions(100, watched=True, refuse=False)


class Reading:
    """A read of one journal, chunk by chunk, from its snapshot."""

    def __init__(self, journals: Journals, how: ReadOptions) -> None:
        """Take the snapshot."""
        servers = Servers(journals.url, patience=Patience(interval_s=0.001))
        (bounds,) = snapshot(servers, Options(journals.url)).values()
        piece = begin(bounds, Offset(Id(0)))
        self._entries = fetch(servers, bounds.process, [piece], how)

    def chunk(self) -> list[int]:
        """Read one more chunk: two chunks are on their way when the first is here."""
        return [int(offset.partition(b"-")[0]) // 1000 - T0 // 1000 for offset, _ in next(self._entries, (None, []))[1]]

    def rest(self) -> list[int]:
        """Read to the end."""
        found = []
        while chunk := self.chunk():
            found += chunk
        return found


def test_trim_behind_the_reader(journals: Journals) -> None:
    """Records trimmed after they were read are no loss, to the last record, at the bounds of a chunk too."""
    journals.write(JOBS, 1_000)
    reading = Reading(journals, STRICT)
    assert reading.chunk() == list(range(100))
    # The next chunk was requested already; later ones stay.
    journals.trim(JOBS, 800)
    assert reading.chunk() == list(range(100, 200))
    journals.trim(JOBS, 700)
    assert reading.rest() == list(range(200, 1_000))


@pytest.mark.parametrize("keep", [799, 100, 0])
def test_trim_before_the_reader(journals: Journals, caplog: pytest.LogCaptureFixture, keep: int) -> None:
    """Records trimmed before they were read are a loss: refused, or reported to the record."""
    journals.write(JOBS, 1_000)
    strict, lenient = Reading(journals, STRICT), Reading(journals, LENIENT)
    for reading in (strict, lenient):
        reading.chunk()
        # The second chunk is on its way: only now it is here for sure.
        reading.chunk()
    journals.trim(JOBS, keep - 100 if keep > 100 else keep)
    missing = 1_000 - 300 - (keep - 100 if keep > 100 else keep)
    with pytest.raises(
        Unreadable, match=f"^journal of jobs@ab12/0: {missing} records after {T0 + 299_000}-0 were dropped"
    ):
        strict.rest()
    with caplog.at_level(logging.WARNING, "stanzaq"):
        rest = lenient.rest()
    assert rest == [*range(200, 300), *range(1_000 - (keep - 100 if keep > 100 else keep), 1_000)]
    assert f"{missing} records" in caplog.text


def test_a_full_journal(journals: Journals) -> None:
    """A journal that loses as many as it gains is read completely if the reader is faster."""
    journals.write(JOBS, 1_000)
    reading = Reading(journals, STRICT)
    found = reading.chunk()
    for number in range(8):
        journals.write(JOBS, 100, first=1_000 + 100 * number)
        journals.trim(JOBS, 1_000)
        found += reading.chunk()
    assert found + reading.rest() == list(range(1_000))


def test_deleted_under_the_reader(journals: Journals) -> None:
    """A deleted node takes its journal along: the reader does not take that for its end."""
    journals.write(JOBS, 1_000)
    reading = Reading(journals, STRICT)
    reading.chunk()
    journals.client.flushall()
    with pytest.raises(
        Unreadable, match=r"^journal of jobs@ab12/0: records after .* were dropped before they were read: "
    ):
        reading.rest()


def test_a_part_from_the_middle(journals: Journals) -> None:
    """Without a count, the first record that is left shows whether any is missing."""
    journals.write(JOBS, 1_000)
    servers = Servers(journals.url)
    (bounds,) = snapshot(servers, Options(journals.url)).values()
    piece = begin(bounds, Offset(Id(0)))._replace(after=Id(T0 + 499_999, MOST), before=None)
    journals.trim(JOBS, 500)
    assert sum(len(chunk) for _, chunk in fetch(servers, bounds.process, [piece], STRICT)) == 500
    journals.trim(JOBS, 499)
    with pytest.raises(Unreadable, match="records after"):
        list(fetch(servers, bounds.process, [piece], STRICT))


@pytest.mark.parametrize(("counted", "many"), [("", "records"), ("/100", "150 records")])
def test_offsets_that_are_gone(journals: Journals, counted: str, many: str) -> None:
    """A start after a trimmed record is refused, unless loss is allowed."""
    journals.write(JOBS, 1_000)
    journals.trim(JOBS, 750)
    offsets = f'{{"{JOBS}": "{T0 + 99_000}-0{counted}"}}'
    line = f"^journal of jobs@ab12/0: {many} after {T0 + 99_000}-0 were dropped before they were read: .*failOnDataLoss=false"
    with pytest.raises(Unreadable, match=line):
        taken(url=journals.url, startingOffsets=offsets)
    assert taken(url=journals.url, startingOffsets=offsets, failOnDataLoss="false") == list(range(250, 1_000))


def test_all_is_gone(journals: Journals) -> None:
    """A journal without any record left is not empty for a reader that has counted."""
    journals.write(JOBS, 10)
    journals.trim(JOBS, 0)
    assert taken(url=journals.url) == []
    with pytest.raises(Unreadable, match="5 records"):
        taken(url=journals.url, startingOffsets=f'{{"{JOBS}": "{T0 + 4_000}-0/5"}}')


def test_the_log_loses_nothing(journals: Journals) -> None:
    """An entry removed from the log was finished: that is no loss."""
    key = "sq:{jobs@ab12/0}:log"
    for number in range(5):
        journals.client.xadd(key, {"by": "a@x", "body": b"x"}, id=f"{T0 + number}-0")
    journals.client.xtrim(key, maxlen=2, approximate=False)
    reader = Reader(Options(journals.url, "log", starting_offsets={str(JOBS): Offset(Id(T0))}))
    assert sum(rows.num_rows for task in reader.partitions() for rows in reader.read(task)) == 2


def test_a_broken_connection(journals: Journals) -> None:
    """A connection that breaks is made again, and each record comes once; so is one that gets no answer in time."""
    journals.write(JOBS, 1_000)
    reading = Reading(journals, STRICT)
    found = []
    while chunk := reading.chunk():
        found += chunk
        journals.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert found == list(range(1_000))
    patient = {"answerTimeoutMs": "100", "fetchOffset.retryIntervalMs": "100"}
    journals.client.execute_command("CLIENT", "PAUSE", 300, "ALL")
    assert taken(url=journals.url, **patient, **{"fetchOffset.numRetries": "9"}) == list(range(1_000))
    journals.client.execute_command("CLIENT", "PAUSE", 300, "ALL")
    with pytest.raises(Unreadable, match=r"cannot be reached \(Timeout "):
        taken(url=journals.url, **patient, **{"fetchOffset.numRetries": "0"})


def test_rows_per_second(journals: Journals) -> None:
    """A limit holds from the first second on, for all partitions that a task reads together."""
    for number in range(4):
        journals.write(Partition("jobs", "ab12", number), 10, first=10 * number)
    began = time.monotonic()
    assert taken(url=journals.url, maxRowsPerSecond="20") == list(range(40))
    assert time.monotonic() - began >= 1.9

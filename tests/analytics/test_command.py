"""`stanzaq report` on real servers: what it makes of a demo and of a history, and the one line for what cannot be."""

import csv
import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from broker.journal.schema import record
from broker.keys import of_service
from broker.scaling.usage import MINUTE_MS, Usage
from frontends.cli import app
from frontends.commands import report
from frontends.commands.report import Asked, Spark
from frontends.tools.demo import run as demo
from tests.analytics.conftest import Journals
from tests.analytics.simulator import Attempt, Laws, Mishaps, Run, entries, exponential, simulate
from tests.analytics.truth import Truth, percentile, truth

LAWS = Laws(exponential(100), exponential(400), (3, 3), Mishaps(0.02, 0.02, 0.02, 0.02), partitions=2)


@pytest.fixture(autouse=True)
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command use the session of all tests: to start one takes longer than a test."""

    @contextmanager
    def session(_master: str | None, _settings: dict[str, str]) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(report, "session", session)


@pytest.fixture
def played(journals: Journals) -> Run:
    """Write the journals of a queue that was played through."""
    return _write(journals, LAWS)


def _write(journals: Journals, laws: Laws) -> Run:
    """Play a queue through and write its journals in the form of the scripts."""
    run = simulate(laws, 1_500, seed=2)
    pipe = journals.client.pipeline(transaction=False)
    for key, offset, fields in entries(run):
        pipe.xadd(key, fields, id=offset)
    pipe.execute()
    return run


def _agrees(made: Path, true: Truth) -> None:
    """Compare a report in JSON with what was computed from the records in plain Python."""
    [node] = json.loads((made / "capacity.json").read_text())["nodes"]
    waste = node["waste"]
    assert {kind: waste[kind.replace("-", "_")] for kind in true.kinds} == true.kinds
    assert (waste["attempts"], waste["items"], waste["redelivered"]) == (true.attempts, true.items, true.redelivered)
    assert sum(moment["arrived"] for moment in node["moments"]) == true.arrived
    for leg, values in (("wait", true.waits), ("service", true.held), ("end_to_end", true.end_to_end)):
        found = [node["latency"][leg][f"p{share}_ms"] for share in (50, 95, 99)]
        assert found == pytest.approx([percentile(values, share / 100) for share in (50, 95, 99)], rel=0.01)
    assert node["quality"]["little_in_system"] == pytest.approx(true.in_system)
    # The law holds for long times: what is under way at the ends of a short run on a busy machine counts on one side alone.
    assert node["quality"]["little_by_law"] == pytest.approx(true.in_system, rel=0.1)


def test_session_of_the_page(journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session at the head of docs/reports.md works as it is written there, with progress on the way.

    The report agrees with plain Python, and what was collected makes the same one when Redis has forgotten it.
    """
    began_ms = 1_000 * (int(time.time()) - 3_600)
    played = _write(journals, replace(LAWS, began_ms=began_ms))
    for minute in range(3):
        for kind, cpu_ms, jobs in (("xmpp", 6_000, 600), ("redis", 3_000, 0)):
            used = Usage(kind, "f1", began_ms + minute * MINUTE_MS, minute * cpu_ms, minute * jobs)
            journals.client.hset(of_service("process_usage"), used.field, used.value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STANZAQ_REDIS_URL", journals.url)
    out, history = tmp_path / "report", tmp_path / "history"
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text().split("```")[1]
    of_redis, collect, of_history = (
        shlex.split(line, comments=True)[1:] for line in page.splitlines() if line.startswith("stanzaq ")
    )

    def run(words: list[str]) -> Result:
        # Spark has a working directory of its own.
        ended = CliRunner().invoke(app, [str(history) if word == "history" else word for word in words])
        assert ended.exit_code == 0, ended.output
        return ended

    ended = run(of_redis)
    assert re.search(r"for a target of 2 s.*; the node was deleted", re.sub(r"[│\s]+", " ", ended.stdout))
    assert str(out / "capacity.html") in ended.stderr
    _agrees(out, truth(played.attempts))
    carried = json.loads((out / "capacity.json").read_text())["service"]
    assert carried["missing"] == ""
    assert [(each["kind"], each["cores"]) for each in carried["resources"][:2]] == [
        ("xmpp frontends", pytest.approx(0.1)),
        ("Redis masters", pytest.approx(0.05)),
    ]
    made = (out / "capacity.html").read_text()
    assert run(collect).stdout == f"collected: {len(played.attempts):,}\n"
    journals.client.flushall()
    run(of_history)
    assert (out / "capacity.html").read_text().replace(str(history), "Redis") == made


def test_compared(played: Run, journals: Journals, tmp_path: Path) -> None:
    """The second half of a run beside the first one: an interval of the same length, and its own figures."""
    ends = sorted(each.closed for each in played.attempts)
    begin, middle, end = ends[0], (ends[0] + ends[-1]) // 2, ends[-1] + 1
    first, last = (datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (middle, end))
    asked = Asked("redis", journals.url, tmp_path / "report", "csv", first, last, compare_with=f"{middle - begin}ms")
    assert report.capacity(asked) == 0
    with (tmp_path / "report" / "compared.csv").open(newline="") as file:
        lines = {(line["node"], line["figure"]): line for line in csv.DictReader(file)}
    first_at = [each.published for each in played.attempts if each.attempt == 1]
    before, now = (sum(since <= at < until for at in first_at) for since, until in ((begin, middle), (middle, end)))
    rates = [float(lines["jobs", "arrivals"][name]) for name in ("before", "now")]
    assert rates == pytest.approx([before * 1000 / (middle - begin), now * 1000 / (end - middle)], rel=0.02)
    assert lines["all", "arrivals"]["now"] == lines["jobs", "arrivals"]["now"]


def test_demo(tmp_path: Path) -> None:
    """The report of a real demo agrees with what plain Python makes of its journal."""
    found: list[Truth] = []

    def afterwards(url: str) -> int:
        with redis.Redis.from_url(url) as client:
            found.append(truth(_attempts(client)))
        return report.capacity(Asked("redis", url, tmp_path / "report", "json"))

    assert demo.main(600, 3, 4, 1, kill=False, as_json=True, afterwards=afterwards) == 0
    assert found[0].kinds == {"acknowledged": 600}
    _agrees(tmp_path / "report", found[0])
    [node] = json.loads((tmp_path / "report" / "capacity.json").read_text())["nodes"]
    assert (node["node"], node["capacity"]["credit"], node["backlog"]["waiting"]) == ("demo", 12, 0)
    carried = json.loads((tmp_path / "report" / "capacity.json").read_text())["service"]
    assert carried["resources"] or "is not recorded" in carried["missing"]


def _attempts(client: Any) -> list[Attempt]:  # noqa: ANN401  (what redis-py has)
    """Read a journal as its schema says."""
    [key] = client.keys("sq:*:journal")
    rows = []
    for _, stored in client.xrange(key):
        read = record(stored)
        position = stored[b"lock"].split(b" ")[5].decode()
        place = {"node": "demo", "incarnation": "", "partition": 0, "position": position, "ready": 0}
        rows.append(Attempt(**place, **read))  # type: ignore[arg-type]
    return rows


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Path]:
    """Name a directory that must not come into being, nor anything beside it."""
    (tmp_path / "out").mkdir()
    yield tmp_path / "out" / "report"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            {"begin": "2026-02-01", "end": "2026-01-01"},
            "--from 2026-02-01T00:00:00Z is not before --to 2026-01-01T00:00:00Z",
        ),
        (
            {"begin": "2026-02-01", "end": "2026-02-01"},
            "--from and --to are both 2026-02-01T00:00:00Z: name a later --to",
        ),
        ({"begin": "yesterday"}, "--from 'yesterday' is not a time: write e.g. 2026-01-31, 2026-01-31T12:00, or 7d"),
        ({"begin": "7d", "end": "1h"}, f"no attempt was closed from {datetime.now(UTC) - timedelta(days=7):%Y-%m-%d}"),
        ({"end": "2026-13-01"}, "--to '2026-13-01' is not a time"),
        ({"begin": "2031-01-01"}, "no attempt was closed from 2031-01-01T00:00:00Z: choose another interval"),
        ({"target": "soon"}, "--target-wait-p95 'soon' is not a duration: write e.g. 500ms, 2s, 5min, 1h or 90d"),
        ({"zone": "Mars/Base"}, "--zone 'Mars/Base' is not a time zone: write e.g. UTC or Europe/Berlin"),
        ({"compare_with": "7d"}, "--compare-with needs --from"),
        ({"begin": "1h", "compare_with": "soon"}, "--compare-with 'soon' is not a duration"),
        ({"formats": "html,pdf"}, "--format 'pdf' is none of html, csv, parquet, json"),
        ({"formats": ","}, "--format is empty: write one or more of html, csv, parquet, json"),
        ({"spark": Spark(conf=["driver.memory=4g"])}, "--conf 'driver.memory' is not a setting of Spark: write e.g."),
        ({"spark": Spark(conf=["spark.driver.memory"])}, "--conf 'spark.driver.memory' is not a setting of Spark"),
        ({"url": "redis://127.0.0.1:1/0"}, "Redis at 127.0.0.1:1 cannot be reached"),
        ({"url": "redis://nobody:secret@127.0.0.1:1/0"}, "Redis at 127.0.0.1:1 cannot be reached"),
        ({"url": "embedded://"}, "the url of Redis"),
        ({"source": "no/such/folder", "url": None}, "no/such/folder is not a stanzaq history"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_bad_input(  # noqa: PLR0917  (fixtures and cases)
    played: Run,
    journals: Journals,
    nowhere: Path,
    words: dict[str, Any],
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be done is one line that says why and what to do, code 1, and nothing written."""
    # Nobody will answer a moment later.
    monkeypatch.setattr("broker.analytics.source.servers.time.sleep", lambda _seconds: None)
    asked: dict[str, Any] = {"source": "redis", "url": journals.url, "out": nowhere, **words}
    assert report.capacity(Asked(**asked)) == 1
    shown = capsys.readouterr()
    [told] = [row for row in shown.err.splitlines() if row.startswith("stanzaq report: ")]
    assert line in told
    assert "secret" not in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_settings_of_spark() -> None:
    """What Spark is given on the command line, a value may have an equals sign; settings come after packages."""
    conf = ["spark.driver.memory=4g", "spark.driver.extraJavaOptions=-Dx=y", "spark.jars.packages=c:d:2"]
    assert Spark(None, conf[:2], "a:b:1").settings() == {
        "spark.jars.packages": "a:b:1",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": "-Dx=y",
    }
    assert Spark(None, conf[2:], "a:b:1").settings() == {"spark.jars.packages": "c:d:2"}


def test_folder_of_something_else(nowhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of somebody else's Parquet files is no history, and no report is made of it."""
    (tmp_path / "mine" / "attempts").mkdir(parents=True)
    (tmp_path / "mine" / "attempts" / "part-0.parquet").write_bytes(b"PAR1")
    assert report.capacity(Asked(str(tmp_path / "mine"), None, nowhere)) == 1
    assert "name a folder that `stanzaq report collect` has made" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["hdfs://127.0.0.1:1/history", "hdfs://nobody.invalid:8020/history"])
def test_a_file_system_that_is_away(
    spark: SparkSession, journals: Journals, nowhere: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody serves a folder, one line says so, to those who read it and to those who write it."""
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("ipc.client.connect.max.retries", "0")
    assert report.capacity(Asked(folder, None, nowhere)) == 1
    assert report.collect(journals.url, folder, report.Spark(), lossy=False) == 1
    told = [row for row in capsys.readouterr().err.splitlines() if row.startswith("stanzaq report: ")]
    line = r"a file system that Spark uses cannot be reached \(.+\): start it, or name a folder elsewhere"
    assert [bool(re.fullmatch(f"stanzaq report: {line}", row)) for row in told] == [True, True]


def test_empty_redis(journals: Journals, nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was ever worked on there is no report."""
    assert report.capacity(Asked("redis", journals.url, nowhere)) == 1
    assert "no attempt was closed yet" in capsys.readouterr().err


def test_torn_record(journals: Journals, played: Run, nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record that nobody can read is named, and no report is made without it."""
    journals.client.xadd("sq:{jobs@8e71964d/0}:journal", {"type": "released"})
    assert report.capacity(Asked("redis", journals.url, nowhere)) == 1
    assert re.search(r"journal of jobs@8e71964d/0: the record \d+-\d+ is damaged", capsys.readouterr().err)


def test_out_is_a_file(journals: Journals, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a file stands no directory is made; this is said before anything is read."""
    (tmp_path / "report").write_text("mine")
    assert report.capacity(Asked("redis", "redis://127.0.0.1:1/0", tmp_path / "report")) == 1
    assert "is a file: name a directory" in capsys.readouterr().err
    assert (tmp_path / "report").read_text() == "mine"

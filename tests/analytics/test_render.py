"""A report as files: each format has the same values, the page is well-formed, and a directory is a whole report or none."""

import csv
import json
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from broker.analytics.faults import Unreadable
from broker.analytics.figures import Gap, Resource, Service
from broker.analytics.render import as_json, console, files, html
from broker.analytics.render.tables import tables
from broker.journal.schema import AttemptEnd
from tests.analytics.pictured import idle, node, report

HOSTILE = "mail <script>alert('1')</script> [bold]&"
MADE = report(node(), replace(node(), node=HOSTILE), idle(), gaps=(Gap("jobs", 1, None, "1767225600000-0", 12),))
_VOID = {"meta", "br", "img", "hr"}


class _Page(HTMLParser):
    """Records the content of a page, and that every element is closed correctly."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        given = dict(attrs)
        if name := given.get("id"):
            self.ids[name] += 1
        self.links |= {value or "" for name, value in attrs if name in {"href", "xlink:href", "src"}}
        self.links |= {f"#{name}" for value in given.values() for name in re.findall(r"url\(#(.*?)\)", value or "")}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page() -> _Page:
    """Read the page."""
    read = _Page()
    read.feed(html.page(MADE))
    return read


def test_page_is_one_well_formed_file(page: _Page) -> None:
    """Every element is closed, ids are unique, links lead to them and nowhere else, and nothing runs."""
    assert page.open == []
    assert {name: count for name, count in page.ids.items() if count > 1} == {}
    assert {link for link in page.links if not link.startswith("#") or link[1:] not in page.ids} == set()
    assert page.seen["script"] == page.seen["link"] == page.seen["img"] == 0
    assert page.seen["svg"] == 10


def test_page_says_what_there_is(page: _Page) -> None:
    """Names are shown as they are, with each node's verdict, and missing data."""
    text = " ".join(page.text)
    assert HOSTILE in text
    assert text.count("p95 wait 1.2 s for a target of 2 s") == 4
    assert text.count("Arrivals by weekday and hour, up to 6.96/s") == 2
    assert "This week: idle (no credit)." in text
    assert "12 records of jobs, partition 1, before 1767225600000-0" in text
    assert "nan" not in text.lower().split()
    assert {kind.value for kind in AttemptEnd} - {"perished"} <= set(page.text)


def test_any_length_has_ticks() -> None:
    """For no length of the interval matplotlib warns that it finds no ticks, as once for three minutes."""
    last = node().moments[-1]
    short = tuple(replace(last, begin=last.begin + timedelta(seconds=8 * step)) for step in range(21))
    assert "<svg" in html.page(report(replace(node(), moments=short)))


def test_page_takes_its_colours_from_its_style() -> None:
    """Light, dark and paper differ by variables alone, so no chart has a colour of its own."""
    charts = "".join(re.findall(r"<svg.*?</svg>", html.page(MADE), re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", charts)) == set()
    assert set(re.findall(r"var\((--\w+)\)", charts)) == {"--ink", "--faint", "--first", "--second", "--alarm"}


def test_two_intervals_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each figure of all nodes together and of each is beside that of the earlier interval, in every format."""
    demand = replace(node().demand, rate_per_s=8.0)
    earlier = report(replace(node(), demand=demand), replace(node(), node="gone"))
    both = replace(report(node(), replace(node(), node="new")), before=earlier)
    page, wide = html.page(both), Console(width=200, color_system=None)
    console.show(both, wide)
    shown = capsys.readouterr().out
    for text in (page, shown):
        assert "10/s (+25%)" in text and "20/s (+11%)" in text and "(was 10/s)" in text
        assert "1.2 s (same)" in text
    files.write(both, tmp_path / "report", ["csv", "parquet", "json"])
    with (tmp_path / "report" / "compared.csv").open() as file:
        lines = {(line["node"], line["figure"]): line for line in csv.DictReader(file)}
    assert lines["jobs", "arrivals"] == {
        "node": "jobs", "figure": "arrivals", "before": "8.0", "now": "10.0", "change": "0.25"
    }  # fmt: skip
    assert (lines["new", "arrivals"]["before"], lines["gone", "arrivals"]["now"]) == ("", "")
    assert len(json.loads((tmp_path / "report" / "capacity.json").read_text())["before"]["nodes"]) == 2


def test_formats_agree(tmp_path: Path) -> None:
    """CSV, Parquet and JSON have the same values, and a table without rows has its columns."""
    files.write(MADE, tmp_path / "report", ["csv", "parquet", "json"])
    record = json.loads((tmp_path / "report" / "capacity.json").read_text())
    with (tmp_path / "report" / "nodes.csv").open() as file:
        lines = list(csv.DictReader(file))
    rows = pq.read_table(tmp_path / "report" / "nodes.parquet").to_pylist()
    assert [line["node"] for line in lines] == [row["node"] for row in rows] == ["jobs", HOSTILE, "idle"]
    for line, row, written in zip(lines, rows, record["nodes"], strict=True):
        p95 = (written["latency"]["wait"] or {}).get("p95_ms")
        assert row["latency_wait_p95_ms"] == p95
        assert line["latency_wait_p95_ms"] == ("" if p95 is None else str(p95))
        assert row["verdict"] == line["verdict"] == written["verdict"]["words"]
    assert len(pq.read_table(tmp_path / "report" / "timeline.parquet")) == 60
    files.write(report(idle()), tmp_path / "bare", ["csv", "parquet"])
    assert (tmp_path / "bare" / "what_if.csv").read_text().strip() == "node,workers,use,wait_p95_s"
    assert pq.read_table(tmp_path / "bare" / "what_if.parquet").column_names == ["node", "workers", "use", "wait_p95_s"]


def test_console(capsys: pytest.CaptureFixture[str]) -> None:
    """The console shows every theme of every node, a hostile name as it is."""
    console.show(MADE, Console(width=200, color_system=None))
    shown = capsys.readouterr().out
    assert HOSTILE in shown
    for title in ("Demand", "Latency", "Capacity", "Backlog", "Waste", "Fairness", "Forecast", "Data quality"):
        assert shown.count(title) >= 3


def test_a_later_report_takes_the_place(tmp_path: Path) -> None:
    """The directory of a report is replaced completely: nothing of the former is left, and nothing beside it."""
    out = tmp_path / "report"
    files.write(MADE, out, ["csv", "html"])
    written = files.write(MADE, out, ["json"])
    assert [path.name for path in written] == ["capacity.json"]
    assert {path.name for path in out.iterdir()} == {"capacity.json", files.MARK}
    assert list(tmp_path.iterdir()) == [out]


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails, the former report stays as it was, and no temporary file is left."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "report"
    files.write(MADE, out, ["json"])
    monkeypatch.setitem(files.FORMATS, "csv", fail)
    with pytest.raises(Unreadable, match=r"--out .* cannot be written: No space left on device"):
        files.write(report(idle()), out, ["json", "csv"])
    assert len(json.loads((out / "capacity.json").read_text())["nodes"]) == 3
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_not_overwritten(tmp_path: Path) -> None:
    """A file, and a directory of something else, are refused and stay."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(Unreadable, match="is a file"):
        files.write(MADE, tmp_path / "file", ["json"])
    with pytest.raises(Unreadable, match="not a report"):
        files.write(MADE, tmp_path / "full", ["json"])
    with pytest.raises(Unreadable, match="cannot be made"):
        files.write(MADE, tmp_path / "file" / "deeper", ["json"])
    with pytest.raises(Unreadable, match="'pdf' is none of html, csv, parquet, json"):
        files.check(tmp_path / "report", ["html", "pdf"])
    assert (tmp_path / "full" / "file").read_text() == (tmp_path / "file").read_text() == "mine"


def test_service() -> None:
    """What processes carried, and what is missing, is at the head in each form; a report without either says nothing of it."""
    xmpp = Resource("xmpp frontends", 4, 3_600.0, 210.0, 0.5, 0.2, 420.0, 500.0, 900.0, 5, 12)
    servers = Resource("XMPP servers' cores, by the model", None, 3_600.0, 210.0, 0.1, None, 3_000.0, None, None, 1, 2)
    full, screen = replace(MADE, service=Service((xmpp, servers), "no <Redis>")), Console(file=StringIO(), width=200)
    console.show(full, screen)
    assert isinstance(screen.file, StringIO)
    for shown in (html.page(full), screen.file.getvalue()):
        assert all(words in shown for words in ("xmpp frontends", "500/s to 900/s", "5 to 12", "1 to 2"))
    assert "no <Redis>" in screen.file.getvalue() and "No &lt;Redis&gt;." in html.page(full)
    assert [row["needed_most"] for row in tables(full)["resources"].rows] == [12, 2]
    assert as_json.record(full)["service"]["resources"][0]["busiest"] == 0.2
    assert "frontends" not in html.page(MADE) and tables(MADE)["resources"].rows == []


def test_memory_of_redis() -> None:
    """The forecast for Redis as a whole is at the head, on paper and on a console; unknown values are not shown."""
    full, screen = replace(MADE, memory_full_days=12.0), Console(file=StringIO(), width=200)
    console.show(full, screen)
    assert isinstance(screen.file, StringIO)
    words = "emory of Redis full in 12 d, with all nodes together"
    assert words in html.page(full) and words in screen.file.getvalue()
    assert "emory of Redis full in 12 d, with" not in html.page(MADE)

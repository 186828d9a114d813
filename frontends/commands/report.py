"""`stanzaq report`: makes a report as the command line says, with progress. Must not know what is measured, or how.

Imported only for this command, because nothing else needs Spark.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from broker.analytics import collection, facts, inputs
from broker.analytics.faults import Unreadable, unreadable
from broker.analytics.figures import Report
from broker.analytics.history import open_history
from broker.analytics.processes import service
from broker.analytics.quantities import duration
from broker.analytics.render import console as on_console
from broker.analytics.render import files
from broker.analytics.report import Prices, report
from broker.analytics.session import session
from broker.model.names import read_bare_jid
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.scaling.costs import read_costs

_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_MORE_STEPS: Final = 4
"""Starting, the state of the queues, reading and writing."""

_DURATION: Final = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})")


@dataclass(frozen=True, slots=True)
class Spark:
    """Spark as typed: its master, settings as KEY=VALUE, and packages with commas between."""

    master: str | None = None
    conf: Sequence[str] = ()
    packages: str = ""

    def settings(self) -> dict[str, str]:
        """Return the settings; refuses what is none."""
        pairs = [text.partition("=")[::2] for text in self.conf]
        for name, value in pairs:
            if not name.startswith("spark.") or not value:
                msg = f"--conf {name[:60]!r} is not a setting of Spark: write e.g. spark.driver.memory=4g"
                raise Unreadable(msg)
        return ({"spark.jars.packages": self.packages} if self.packages else {}) | dict(pairs)


_HERE: Final = Spark()


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments as typed; a URL only if the source is a Redis."""

    source: str
    url: str | None
    out: Path
    formats: str = "html"
    begin: str = ""
    end: str = ""
    target: str = "2s"
    spark: Spark = _HERE
    compare_with: str = ""
    zone: str = "UTC"


def capacity(asked: Asked) -> int:
    """Make a report of a Redis or a history, print and write it; 1 with one line when it cannot be made."""
    return _run(partial(_capacity, asked))


def collect(url: str, out: str, given: Spark = _HERE, *, lossy: bool = False, keep: str = "") -> int:
    """Add to a history; 1 with one line when that fails."""

    def work(talk: Console) -> None:
        kept = timedelta(seconds=_seconds("--keep", keep)) if keep else None
        settings = given.settings()
        with talk.status("starting Spark") as status, session(given.master, settings) as spark:
            found = collection.collect(url, out, spark=spark, lossy=lossy, keep=kept, tell=status.update)
        _show_collected(found, talk)

    return _run(work)


def erase(jid: str, out: str, given: Spark = _HERE) -> int:
    """Take an account out of a history; 1 with one line when that fails."""

    def work(talk: Console) -> None:
        settings = given.settings()
        try:
            account = read_bare_jid(jid)
        except ValueError as fault:
            raise Unreadable(str(fault)) from None
        with talk.status("starting Spark"), session(given.master, settings) as spark:
            count = open_history(spark, out).erase(account, datetime.now(UTC))
        Console(highlight=False).print(f"erased: {count:,}")

    return _run(work)


def _run(work: Callable[[Console], None]) -> int:
    """Run `work`; print a fault of the input as one line, and raise one of ours."""
    # Progress is for people, and goes to stderr, where it disturbs no pipe.
    talk = Console(stderr=True, highlight=False)
    try:
        work(talk)
    except Exception as fault:
        line = unreadable(fault)
        if line is None:
            raise
        # Unformatted: it may contain square brackets, and a pipe needs it in one line.
        talk.print(f"stanzaq report: {line}", style="red", markup=False, soft_wrap=True)
        return 1
    return 0


def _show_collected(collected: collection.Collected, talk: Console) -> None:
    lost = f"; lost: {collected.lost:,}" if collected.lost else ""
    missing = f"; journals now missing, read to their end before: {collected.missing:,}" if collected.missing else ""
    Console(highlight=False).print(f"collected: {collected.records:,}{lost}{missing}")
    soonest = collected.soonest
    if soonest is not None and soonest.since_s is not None and soonest.too_short:
        line = (
            f"the journal of {soonest.partition} keeps a record for {duration(soonest.keeps_s)}, and the last collection was"
            f" {duration(soonest.since_s)} ago: at this rate the next will miss"
            " records. Collect more often or raise JOURNAL_RECORDS"
        )
        talk.print(line, style="yellow", markup=False, soft_wrap=True)


def _capacity(asked: Asked, talk: Console) -> None:
    formats = [name.strip() for name in asked.formats.split(",") if name.strip()]
    files.check(asked.out, formats)
    target_s = _seconds("--target-wait-p95", asked.target)
    settings, now = asked.spark.settings(), datetime.now(UTC)
    first, last, zone = _time("--from", asked.begin, now), _time("--to", asked.end, now), _zone(asked.zone)
    earlier = _earlier(asked.compare_with, first, last or now)
    with _progress(talk, (1 + bool(earlier)) * (_MORE_STEPS + len(facts.STEPS))) as step:
        step("starting Spark")
        with session(asked.spark.master, settings) as spark:

            def make(first: datetime | None, last: datetime | None) -> Report:
                if asked.url is None:
                    given = inputs.of_history(asked.source, first, last, spark=spark, tell=step)
                else:
                    given = inputs.of_redis(asked.url, first, last, spark=spark, tell=step)
                prices = Prices(read_costs(), HEARTBEAT_SECONDS)
                source = "Redis" if asked.url else asked.source
                made = report(facts.measure(given, step, target_s), source, target_s, prices, zone)
                span = made.begin.timestamp() * 1000, made.end.timestamp() * 1000
                return replace(made, service=service(given.usage, made.nodes, span, prices.costs, prices.beat_s))

            made = make(first, last)
            if earlier:
                made = replace(made, before=make(*earlier))
        step("writing")
        written = files.write(made, asked.out, formats)
    on_console.show(made, Console())
    for path in written:
        talk.print(str(path), style="dim", markup=False, soft_wrap=True)


@contextmanager
def _progress(talk: Console, steps: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar; each call begins a step."""
    bar = Progress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=talk,
        transient=True,
    )
    with bar:
        # The first step begins with none done.
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda name: bar.update(task, advance=1, description=name)


def _time(option: str, text: str, now: datetime) -> datetime | None:
    """Parse a time, or a time span before now; without a zone it is UTC, as in the report."""
    if not text:
        return None
    try:
        if ago := _DURATION.fullmatch(text):
            return now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        read = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        msg = f"{option} {text[:60]!r} is not a time: write e.g. 2026-01-31, 2026-01-31T12:00, or 7d for a week ago"
        raise Unreadable(msg) from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _earlier(text: str, first: datetime | None, last: datetime) -> tuple[datetime, datetime] | None:
    """Return the interval to compare with: as long as the report's, so much earlier; None if there is to be none."""
    if not text:
        return None
    if first is None:
        msg = "--compare-with needs --from: the two intervals are of one length, e.g. --from 7d --compare-with 7d"
        raise Unreadable(msg)
    ago = timedelta(seconds=_seconds("--compare-with", text))
    return first - ago, last - ago


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        msg = f"--zone {name[:60]!r} is not a time zone: write e.g. UTC or Europe/Berlin"
        raise Unreadable(msg) from None


def _seconds(option: str, text: str) -> float:
    found = _DURATION.fullmatch(text.replace(" ", ""))
    if found is None:
        msg = f"{option} {text[:60]!r} is not a duration: write e.g. 500ms, 2s, 5min, 1h or 90d"
        raise Unreadable(msg)
    return float(found[1]) * _UNITS[found[2]]

"""The `stanzaq` command: parses options and returns an exit code; each command calls one function. Must not know how it works.

Each command imports its implementation when it runs, so that `--help` is fast and servers need no extras of other commands.
"""

# ruff: noqa: E402  (what is imported after the call is imported faster)

from frontends.garbage import collect_rarely

collect_rarely()

from collections.abc import Callable
from functools import partial
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console

from broker.model.problems import OtherFormat
from broker.settings import Settings, load, load_amqp, load_command, load_redis, load_rest
from frontends.commands import audit, erase, frontend, item, lock, node, quota, schedule, subscriber
from frontends.commands.stores.applying import apply
from frontends.commands.stores.exporting import export
from frontends.commands.stores.importing import import_
from frontends.commands.stores.restoring import restore
from frontends.commands.watching import screen as watching
from frontends.terminal import Config, Json, refuse, run_with_servers, settings
from frontends.tools.servers.process import ServerError
from frontends.version import version as version_text

_HELP = "A distributed work queue kept in Redis, served over XMPP, HTTP and AMQP."

app = typer.Typer(no_args_is_help=True)
serve = typer.Typer(help="Run a frontend.", no_args_is_help=True)
report = typer.Typer(help="Make capacity reports from the queues' journals.", no_args_is_help=True)
app.add_typer(serve, name="serve")
app.add_typer(report, name="report")
app.add_typer(node.app, name="node")
app.add_typer(item.app, name="item")
app.add_typer(subscriber.app, name="subscriber")
app.add_typer(lock.app, name="lock")
app.add_typer(schedule.app, name="schedule")
app.add_typer(watching.journal, name="journal")
app.add_typer(frontend.app, name="frontend")
app.add_typer(quota.app, name="quota")
app.command()(watching.top)
app.command()(apply)
app.command("export")(export)
app.command("import")(import_)
app.command()(restore)
app.command("audit")(audit.audit_list)
app.command()(erase.erase)

_AGAIN = 75
"""The exit code of a frontend that an administrator has disconnected: EX_TEMPFAIL, so that a supervisor restarts it."""

Check = Annotated[bool, typer.Option("--check", help="Check the settings and exit.")]
Master = Annotated[str | None, typer.Option(help="Spark's master, e.g. spark://host:7077. Default: this machine.")]
Conf = Annotated[
    list[str] | None,
    typer.Option(help="A setting of Spark as KEY=VALUE, e.g. spark.driver.memory=4g; may be given several times."),
]
Packages = Annotated[
    str,
    typer.Option(help="Packages for Spark, e.g. org.apache.hadoop:hadoop-aws:3.5.0 for s3a://, with commas between."),
]


_TAKES_ALL = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For commands of the library, which reads their arguments because they also run where typer is not installed."""

if (Path(__file__).parents[1] / "bench" / "commands.py").is_file():
    from bench.commands import app as benchmarks

    app.add_typer(benchmarks, name="bench")
else:

    @app.command(context_settings=_TAKES_ALL)
    def bench() -> None:
        """Run a benchmark; a clone of the source has them, and no package."""
        refuse(
            "There are no benchmarks here", "They are in a clone of the source, where `make dev` installs this command."
        )


def _show_version(asked: bool) -> None:  # noqa: FBT001  (typer's)
    if asked:
        Console().print(version_text(), highlight=False)
        raise typer.Exit


@app.callback(help=_HELP)
def main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Begin each command."""


@app.command(context_settings=_TAKES_ALL, add_help_option=False)
def worker(context: typer.Context) -> None:
    """Run a worker of a Python module.

    Example: stanzaq worker tasks:worker --concurrency 20
    """
    _run_library("worker", context)


@app.command(context_settings=_TAKES_ALL, add_help_option=False)
def publish(context: typer.Context) -> None:
    """Publish an item and print its id.

    Example: stanzaq publish orders --json '{"total": 12}' --delay 10m
    """
    _run_library("publish", context)


@serve.command("xmpp")
def serve_xmpp(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve queues as an XMPP component (XEP-0114); run any number of them on one domain.

    Example: STANZAQ_XMPP_DOMAIN=queue.example.org STANZAQ_XMPP_SECRET_FILE=secret stanzaq serve xmpp
    """
    given = settings(config, load)
    _serve(given, lambda compose: compose.serve_xmpp(given, load, config), "XMPP", check=check)


@serve.command("rest")
def serve_rest(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve queues over HTTP (the RESTful Queue); run any number of them behind one address.

    Example: STANZAQ_HTTP_BIND=127.0.0.1:8080 STANZAQ_HTTP_PASSWORDS_FILE=passwords stanzaq serve rest
    """
    given = settings(config, load_rest)
    if find_spec("starlette") is None:
        refuse("The RESTful door cannot be served", "starlette is missing: pip install 'stanzaq[rest]'")
    _serve(given, lambda compose: compose.serve_rest(given, load_rest, config), "HTTP", check=check)


@serve.command("amqp")
def serve_amqp(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve queues and logs over AMQP 1.0 (Event Stream Extensions); run any number of them behind one address.

    Example: STANZAQ_AMQP_BIND=127.0.0.1:5672 STANZAQ_AMQP_PASSWORDS_FILE=passwords stanzaq serve amqp
    """
    given = settings(config, load_amqp)
    if find_spec("proton") is None:
        refuse("The AMQP door cannot be served", "proton is missing: pip install 'stanzaq[amqp]'")
    _serve(given, lambda compose: compose.serve_amqp(given, load_amqp, config), "AMQP", check=check)


@app.command()
def health(
    config: Config = None,
) -> None:
    """Ask the frontend with these settings whether it is ready; if not, say why and exit with 1.

    Example: STANZAQ_METRICS_BIND=127.0.0.1:9464 stanzaq health
    """
    from frontends.health import ask  # noqa: PLC0415

    bind = settings(config, load_command).metrics_bind
    if bind is None:
        refuse(
            "The frontend cannot be asked",
            "STANZAQ_METRICS_BIND is not set: set it to the frontend's address.",
        )
    ready, said = ask(*bind)
    Console().print(said, markup=False, highlight=False)
    raise typer.Exit(0 if ready else 1)


@app.command()
def demo(  # noqa: PLR0913  (an argument is an option of the command line)
    items: Annotated[int, typer.Option(min=1, help="Items to publish.")] = 2000,
    workers: Annotated[int, typer.Option(min=1, help="Workers that process them.")] = 6,
    credit: Annotated[int, typer.Option(min=1, help="Items that a worker may hold at once.")] = 5,
    frontends: Annotated[int, typer.Option(min=1, help="Frontends on one component domain.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--report", help="A directory for a capacity report of the run. Default: no report.")
    ] = None,
    *,
    kill: Annotated[bool, typer.Option("--kill", help="Kill one frontend with SIGKILL half-way.")] = False,
    as_json: Json = False,
) -> None:
    """Run a complete queue: a private Redis and ejabberd, frontends, publishers and workers.

    Example: stanzaq demo --items 5000 --kill
    """
    from frontends.tools.demo import run  # noqa: PLC0415

    work = partial(run.main, items, workers, credit, frontends, kill=kill, as_json=as_json)
    if out is not None:
        made = _reports()
        work = partial(work, afterwards=lambda url: made.capacity(made.Asked("redis", url, out=out)))
    raise typer.Exit(run_with_servers("The demo", work))


@app.command()
def dev(
    data: Annotated[
        Path | None, typer.Option(help="A directory that keeps the data. Default: nothing is kept.")
    ] = None,
) -> None:
    """Run a complete service on loopback to develop against: Redis, ejabberd, a frontend of each door, accounts and a queue.

    Example: stanzaq dev --data ~/stanzaq
    """
    from frontends.tools import dev as development  # noqa: PLC0415

    raise typer.Exit(run_with_servers("The service", partial(development.main, data)))


@report.command("capacity")
def report_capacity(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    source: Annotated[
        str, typer.Option(help="`redis`, the Redis of the settings, or a folder that `stanzaq report collect` fills.")
    ] = "redis",
    begin: Annotated[
        str,
        typer.Option("--from", help="Begin, e.g. 2026-01-31T12:00 (UTC), or 7d for a week ago. Default: everything."),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", help="End, e.g. 2026-02-01 (UTC), or 12h for twelve hours ago. Default: now.")
    ] = "",
    out: Annotated[Path, typer.Option(help="The directory for the files; an earlier report there is replaced.")] = Path(
        "report"
    ),
    formats: Annotated[
        str, typer.Option("--format", help="Any of html,parquet,csv,json, with commas between.")
    ] = "html",
    target: Annotated[
        str,
        typer.Option("--target-wait-p95", help="The longest wait allowed for 95 % of the items, e.g. 500ms, 2s, 5min."),
    ] = "2s",
    compare_with: Annotated[
        str, typer.Option(help="Compare with an interval of the same length so much earlier, e.g. 7d. Needs --from.")
    ] = "",
    zone: Annotated[str, typer.Option(help="The time zone of weekdays, hours and days, e.g. Europe/Berlin.")] = "UTC",
    master: Master = None,
    conf: Conf = None,
    packages: Packages = "",
    config: Config = None,
) -> None:
    """Report demand, latency, capacity, backlog, waste, fairness, and the effect of more workers.

    Example: stanzaq report capacity --from 2026-01-31 --out report --format html,csv --target-wait-p95 2s
    """
    made = _reports()
    url = settings(config, load_redis).redis_url if source == "redis" else None
    spark = made.Spark(master, conf or (), packages)
    asked = made.Asked(source, url, out, formats, begin, end, target, spark, compare_with, zone)
    raise typer.Exit(made.capacity(asked))


@report.command("collect")
def report_collect(  # noqa: PLR0913  (an argument is an option of the command line)
    out: Annotated[
        str,
        typer.Option(help="The folder of the history, e.g. s3a://bucket/history; a new or empty one the first time."),
    ],
    *,
    lossy: Annotated[
        bool,
        typer.Option("--lossy", help="Continue if records were lost before they were collected, and note the gap."),
    ] = False,
    keep: Annotated[str, typer.Option(help="Remove older days, e.g. 90d. Default: keep everything.")] = "",
    master: Master = None,
    conf: Conf = None,
    packages: Packages = "",
    config: Config = None,
) -> None:
    """Add the journals' new records to a history that outlives them.

    Example: stanzaq report collect --out history --keep 90d
    """
    made = _reports()
    spark = made.Spark(master, conf or (), packages)
    url = settings(config, load_redis).redis_url
    raise typer.Exit(made.collect(url, out, spark, lossy=lossy, keep=keep))


@report.command("erase")
def report_erase(
    jid: Annotated[str, typer.Argument(help="The account, a bare JID.")],
    out: Annotated[str, typer.Option(help="The folder of the history.")],
    master: Master = None,
    conf: Conf = None,
    packages: Packages = "",
) -> None:
    """Take an account out of a history: attempts that it made, and what names it as the publisher.

    Example: stanzaq report erase romeo@example.org --out history
    """
    made = _reports()
    raise typer.Exit(made.erase(jid, out, made.Spark(master, conf or (), packages)))


@app.command()
def doctor(
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Check Redis for anything that may break a promise of the queue; print findings with remedies, exit with 1 for a problem.

    Example: STANZAQ_REDIS_URL=redis://redis.example.org:6379/0 stanzaq doctor
    """
    from frontends.commands import doctor as diagnostics  # noqa: PLC0415

    raise typer.Exit(diagnostics.main(settings(config, load_redis), as_json=as_json))


@app.command()
def version() -> None:
    """Print the version.

    Example: stanzaq version
    """
    Console().print(installed_version("stanzaq"), highlight=False)


def _run_library(command: str, context: typer.Context) -> None:
    from stanzaq.command import shell  # noqa: PLC0415

    shell.main([command, *context.args])


def _serve(given: Settings, serve: Callable[[ModuleType], None], what: str, *, check: bool) -> None:
    """Serve by `compose`; with `check` only verify the settings."""
    _traceable(given)
    if check:
        Console().print("the settings are valid")
        return
    from frontends import compose  # noqa: PLC0415

    try:
        serve(compose)
    except ServerError as fault:
        refuse("The embedded Redis cannot start", str(fault))
    except compose.FrontendDisconnected:
        raise typer.Exit(_AGAIN) from None
    except compose.Occupied as fault:
        refuse(f"{what} cannot be served", str(fault))
    except OtherFormat as fault:
        refuse(f"{what} cannot be served", str(fault))
    except compose.Unfit as fault:
        remedy = "To serve anyway, set STANZAQ_ALLOW_EVICTION=true: items may then be lost unnoticed."
        refuse("This Redis may lose items", *map(str, fault.args), remedy)


def _traceable(given: Settings) -> None:
    """Refuse traces without the optional extra `otel`."""
    if given.traces:
        try:
            import frontends.tracing  # noqa: F401, PLC0415
        except ModuleNotFoundError as fault:
            refuse("Traces cannot be made", f"{fault.name} is missing: pip install 'stanzaq[otel]'")


def _reports() -> ModuleType:
    """Import what needs the optional extra `spark`."""
    try:
        from frontends.commands import report  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        refuse("A report cannot be made", f"{fault.name} is missing: pip install 'stanzaq[spark]'")
    return report


if __name__ == "__main__":
    app()

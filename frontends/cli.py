"""The `stanzaq` command: options in, exit code out. Must not know how anything is done: each calls one function.

What a command needs is imported when it runs, so that `--help` is quick and the benchmark's needs burden no server.
"""

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
from frontends.commands import frontend, item, node
from frontends.terminal import Config, Json, refuse, served, settings
from frontends.tools.bench import commands as bench
from frontends.tools.servers.process import ServerError

app = typer.Typer(help="A distributed work queue kept in Redis, spoken to over XMPP.", no_args_is_help=True)
serve = typer.Typer(help="Run a frontend.", no_args_is_help=True)
report = typer.Typer(help="Say what the queues' journals tell.", no_args_is_help=True)
app.add_typer(serve, name="serve")
app.add_typer(bench.app, name="bench")
app.add_typer(report, name="report")
app.add_typer(node.app, name="node")
app.add_typer(item.app, name="item")
app.add_typer(frontend.app, name="frontend")

_AGAIN = 75
"""The exit code of a frontend that an administrator has disconnected: EX_TEMPFAIL, so a supervisor starts it again."""

Check = Annotated[bool, typer.Option("--check", help="Check the settings and exit.")]
Master = Annotated[str | None, typer.Option(help="Spark's master, e.g. spark://host:7077; else this machine.")]


@serve.command("xmpp")
def serve_xmpp(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve queues as an XMPP component (XEP-0114); run as many of them on one domain as you like.

    Example: STANZAQ_XMPP_DOMAIN=queue.example.org STANZAQ_XMPP_SECRET_FILE=secret stanzaq serve xmpp
    """
    given = settings(config, load)
    _serve(given, lambda compose: compose.serve_xmpp(given), "XMPP", check=check)


@serve.command("rest")
def serve_rest(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve queues over HTTP (the RESTful Queue); run as many of them as you like behind one address.

    Example: STANZAQ_HTTP_BIND=127.0.0.1:8080 STANZAQ_HTTP_PASSWORDS_FILE=passwords stanzaq serve rest
    """
    given = settings(config, load_rest)
    if find_spec("starlette") is None:
        refuse("The RESTful door cannot be served", "starlette is missing: pip install 'stanzaq[rest]'")
    _serve(given, lambda compose: compose.serve_rest(given), "HTTP", check=check)


@serve.command("amqp")
def serve_amqp(
    config: Config = None,
    *,
    check: Check = False,
) -> None:
    """Serve logs over AMQP 1.0 (Event Stream Extensions); run as many of them as you like behind one address.

    Example: STANZAQ_AMQP_BIND=127.0.0.1:5672 STANZAQ_AMQP_PASSWORDS_FILE=passwords stanzaq serve amqp
    """
    given = settings(config, load_amqp)
    if find_spec("proton") is None:
        refuse("The AMQP door cannot be served", "proton is missing: pip install 'stanzaq[amqp]'")
    _serve(given, lambda compose: compose.serve_amqp(given), "AMQP", check=check)


@app.command()
def health(
    config: Config = None,
) -> None:
    """Ask the frontend of these settings whether it is ready; exits 1 when it is not, and says why.

    Example: STANZAQ_METRICS_BIND=127.0.0.1:9464 stanzaq health
    """
    from frontends.health import ask  # noqa: PLC0415

    bind = settings(config, load_command).metrics_bind
    if bind is None:
        refuse(
            "The frontend cannot be asked",
            "STANZAQ_METRICS_BIND is not set: give it the address that the frontend has.",
        )
    ready, said = ask(*bind)
    Console().print(said, markup=False, highlight=False)
    raise typer.Exit(0 if ready else 1)


@app.command()
def demo(  # noqa: PLR0913  (an argument is an option of the command line)
    items: Annotated[int, typer.Option(min=1, help="Items to publish.")] = 2000,
    workers: Annotated[int, typer.Option(min=1, help="Workers that take them.")] = 6,
    credit: Annotated[int, typer.Option(min=1, help="Items that a worker may hold at once.")] = 5,
    frontends: Annotated[int, typer.Option(min=1, help="Frontends of the one component domain.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--report", help="A directory for a capacity report of the run; else none is made.")
    ] = None,
    *,
    kill: Annotated[bool, typer.Option("--kill", help="Kill one frontend with SIGKILL half-way.")] = False,
    as_json: Json = False,
) -> None:
    """Show a whole queue at work: its own Redis and ejabberd, frontends, publishers and workers.

    Example: stanzaq demo --items 5000 --kill
    """
    from frontends.tools.demo import run  # noqa: PLC0415

    work = partial(run.main, items, workers, credit, frontends, kill=kill, as_json=as_json)
    if out is not None:
        made = _reports()
        work = partial(work, afterwards=lambda url: made.capacity(made.Asked("redis", url, out=out)))
    raise typer.Exit(served("The demo", work))


@report.command("capacity")
def report_capacity(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    source: Annotated[
        str, typer.Option(help="redis: the one of the settings; or the folder that `stanzaq report collect` fills.")
    ] = "redis",
    begin: Annotated[
        str, typer.Option("--from", help="Since when, e.g. 2026-01-31T12:00 (UTC), or 7d ago; else all there is.")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", help="Until when, e.g. 2026-02-01 (UTC), or 12h ago; else up to now.")
    ] = "",
    out: Annotated[Path, typer.Option(help="The directory for the files; an earlier report there is replaced.")] = Path(
        "report"
    ),
    formats: Annotated[
        str, typer.Option("--format", help="Any of html,parquet,csv,json, with commas between.")
    ] = "html",
    target: Annotated[
        str, typer.Option("--target-wait-p95", help="What 95 % of the items may wait at most, e.g. 500ms, 2s, 5min.")
    ] = "2s",
    master: Master = None,
    config: Config = None,
) -> None:
    """Report demand, latency, capacity, backlog, waste, fairness, and what more workers would bring.

    Example: stanzaq report capacity --from 2026-01-31 --out report --format html,csv --target-wait-p95 2s
    """
    made = _reports()
    url = settings(config, load_redis).redis_url if source == "redis" else None
    raise typer.Exit(made.capacity(made.Asked(source, url, out, formats, begin, end, target, master)))


@report.command("collect")
def report_collect(
    out: Annotated[
        Path, typer.Option(help="The folder of the history; the first time one that is not there or empty.")
    ],
    *,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Go on when records went before they were collected, and note the gap.")
    ] = False,
    keep: Annotated[str, typer.Option(help="Take out what is older, by whole days, e.g. 90d; else nothing.")] = "",
    master: Master = None,
    config: Config = None,
) -> None:
    """Add what the journals have had since the last time to a history, so that it outlives them.

    Example: stanzaq report collect --out history --keep 90d
    """
    made = _reports()
    raise typer.Exit(made.collect(settings(config, load_redis).redis_url, str(out), master, lossy=lossy, keep=keep))


@app.command()
def doctor(
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Look at Redis for what may break a promise of the queue: each finding with its remedy; exit code 1 if something does.

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


def _serve(given: Settings, serve: Callable[[ModuleType], None], what: str, *, check: bool) -> None:
    """Run a door by the composer, or `check` alone whether it could be."""
    _traceable(given)
    if check:
        Console().print("the settings are in order")
        return
    from frontends import compose  # noqa: PLC0415

    try:
        serve(compose)
    except ServerError as fault:
        refuse("The embedded Redis cannot be had", str(fault))
    except compose.Disconnected:
        raise typer.Exit(_AGAIN) from None
    except compose.Occupied as fault:
        refuse(f"{what} cannot be served", str(fault))
    except OtherFormat as fault:
        refuse(f"{what} cannot be served", str(fault))
    except compose.Unfit as fault:
        remedy = "To serve all the same, set STANZAQ_ALLOW_EVICTION=true: items may then disappear unseen."
        refuse("This Redis may lose items", *map(str, fault.args), remedy)


def _traceable(given: Settings) -> None:
    """Refuse to make traces without the extra `otel`, which not everybody has."""
    if given.traces:
        try:
            import frontends.tracing  # noqa: F401, PLC0415
        except ModuleNotFoundError as fault:
            refuse("Traces cannot be made", f"{fault.name} is missing: pip install 'stanzaq[otel]'")


def _reports() -> ModuleType:
    """Import what needs the extra `spark`, which not everybody has."""
    try:
        from frontends.commands import report  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        refuse("A report cannot be made", f"{fault.name} is missing: pip install 'stanzaq[spark]'")
    return report


if __name__ == "__main__":
    app()

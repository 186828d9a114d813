"""`stanzaq bench`: options in, exit code out. Must not know how anything is measured: each command calls one function.

What a benchmark needs is imported when it runs.
"""

from functools import partial
from typing import Annotated

import typer

from broker.model.options import MAX_PARTITIONS
from frontends.logs import set_up
from frontends.terminal import Json, refuse, served

app = typer.Typer(help="Measure, next to the native ceiling of the same server.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="A short run: shows that it works, says little about speed.")]


@app.callback()
def bench() -> None:
    """Have what is logged go to stderr: stdout is the report's."""
    set_up(as_json=False)


@app.command("core")
def bench_core(
    *,
    partitions: Annotated[
        int | None,
        typer.Option(help="Measure instead what 1, 2, 4 … and so many partitions bring.", min=1, max=MAX_PARTITIONS),
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure the core alone: publish, and acknowledge with the next delivery, against XADD and consumer groups.

    Example: stanzaq bench core --partitions 8
    """
    from frontends.tools.bench import core  # noqa: PLC0415
    from frontends.tools.bench import partitions as spread  # noqa: PLC0415

    measure = core.main if partitions is None else partial(spread.main, partitions)
    raise typer.Exit(served("The benchmark", partial(measure, as_json=as_json, quick=quick)))


@app.command("scale")
def bench_scale(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure what an operation costs beside 100 subscriptions and nodes, and beside 100,000 and 10,000.

    Example: stanzaq bench scale --json
    """
    from frontends.tools.bench import scale  # noqa: PLC0415

    raise typer.Exit(served("The benchmark", partial(scale.main, as_json=as_json, quick=quick)))


@app.command("bounds")
def bench_bounds(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure how long one script holds Redis at its worst, in times of a native command.

    Example: stanzaq bench bounds --json
    """
    from frontends.tools.bench import bounds  # noqa: PLC0415

    raise typer.Exit(served("The benchmark", partial(bounds.main, as_json=as_json, quick=quick)))


@app.command("promptness")
def bench_promptness(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure how late 20,000 queues are visited that need it in the same second, and how soon a dead frontend is replaced.

    Example: stanzaq bench promptness --json
    """
    from frontends.tools.bench import promptness  # noqa: PLC0415

    raise typer.Exit(served("The benchmark", partial(promptness.main, as_json=as_json, quick=quick)))


@app.command("xmpp")
def bench_xmpp(
    *,
    qos: Annotated[bool, typer.Option("--qos", help="Measure instead what each level of QoS costs a sender.")] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure through XMPP, against the pubsub that ejabberd brings along.

    Example: stanzaq bench xmpp --json
    """
    from frontends.tools.bench import levels, xmpp  # noqa: PLC0415

    measure = levels.main if qos else xmpp.main
    raise typer.Exit(served("The benchmark", partial(measure, as_json=as_json, quick=quick)))


@app.command("rest")
def bench_rest(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure through HTTP, against an endpoint that does nothing.

    Example: stanzaq bench rest --json
    """
    from frontends.tools.bench import rest  # noqa: PLC0415

    raise typer.Exit(served("The benchmark", partial(rest.main, as_json=as_json, quick=quick)))


@app.command("amqp")
def bench_amqp(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure through AMQP: messages into the log and out of it, against XADD and XRANGE alone.

    Example: stanzaq bench amqp --json
    """
    try:
        from frontends.tools.bench import amqp  # noqa: PLC0415
    except ModuleNotFoundError:
        refuse("The benchmark cannot run", "proton is missing: pip install 'stanzaq[amqp]'")

    raise typer.Exit(served("The benchmark", partial(amqp.main, as_json=as_json, quick=quick)))


@app.command("spark")
def bench_spark(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure how fast Spark reads the journals, against a bare XRANGE loop, and what the queue feels of it.

    Example: stanzaq bench spark --json
    """
    try:
        from frontends.tools.bench import spark  # noqa: PLC0415
    except ModuleNotFoundError:
        refuse("The benchmark cannot run", "Spark is not installed: pip install 'stanzaq[spark]'")

    raise typer.Exit(served("The benchmark", partial(spark.main, as_json=as_json, quick=quick)))

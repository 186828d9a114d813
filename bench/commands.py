"""`stanzaq bench`: parses options and returns an exit code; each command calls one function. Must not know how to measure.

Each command imports its benchmark when it runs.
"""

from functools import partial
from typing import Annotated

import typer

from broker.model.nodes.options import MAX_PARTITIONS
from frontends.logs import set_up
from frontends.terminal import Json, refuse, run_with_servers

app = typer.Typer(help="Run a benchmark, next to the native ceiling of the same server.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="A short run that only shows that the benchmark works.")]


@app.callback()
def bench() -> None:
    """Log to stderr: stdout is the report's."""
    set_up(as_json=False)


@app.command("core")
def bench_core(
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            help="Measure nodes of 1, 2, 4 … and this many partitions instead, owned by a group.",
            min=1,
            max=MAX_PARTITIONS,
        ),
    ] = None,
    fairness: Annotated[
        bool, typer.Option("--fair", help="Measure turns of group keys instead: waits beside a noisy key, and costs.")
    ] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure the core alone: publish, and acknowledge with the next delivery, against XADD and consumer groups.

    Example: stanzaq bench core --partitions 8
    """
    from bench.queue import core, fair  # noqa: PLC0415
    from bench.queue import partitions as spread  # noqa: PLC0415

    if fairness and partitions is not None:
        refuse("The benchmark cannot run", "give --fair without --partitions")
    alone = fair.main if fairness else core.main
    measure = alone if partitions is None else partial(spread.main, partitions)
    raise typer.Exit(run_with_servers("The benchmark", partial(measure, as_json=as_json, quick=quick)))


@app.command("scale")
def bench_scale(
    *,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Measure jobs with 1, 2, 4 … and this many of each process instead, next to the model.", min=1, max=16
        ),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="With --processes: first measure the model's costs, and write their file.")
    ] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Compare the cost of an operation with 100 subscriptions and nodes to that with 100,000 and 10,000.

    Example: stanzaq bench scale --processes 4
    """
    from bench.scaling import predicted, scale  # noqa: PLC0415

    if save and processes is None:
        refuse("The benchmark cannot run", "give --processes with --save")
    if save and quick:
        refuse("The benchmark cannot run", "a short run measures no costs: give --save or --quick")
    measure = scale.main if processes is None else partial(predicted.main, processes, save=save)
    raise typer.Exit(run_with_servers("The benchmark", partial(measure, as_json=as_json, quick=quick)))


@app.command("bounds")
def bench_bounds(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure how long one call blocks Redis in the worst case, in multiples of a native command.

    Example: stanzaq bench bounds --json
    """
    from bench.queue import bounds  # noqa: PLC0415

    raise typer.Exit(run_with_servers("The benchmark", partial(bounds.main, as_json=as_json, quick=quick)))


@app.command("promptness")
def bench_promptness(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure the delay of 20,000 queues due in the same second, and the time to take over from a dead frontend.

    Example: stanzaq bench promptness --json
    """
    from bench.queue import promptness  # noqa: PLC0415

    raise typer.Exit(run_with_servers("The benchmark", partial(promptness.main, as_json=as_json, quick=quick)))


@app.command("xmpp")
def bench_xmpp(
    *,
    qos: Annotated[
        bool, typer.Option("--qos", help="Measure the cost of each QoS level for a sender instead.")
    ] = False,
    batch: Annotated[
        int | None, typer.Option(help="Also measure with up to this many items in a stanza.", min=2, max=100)
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure through XMPP, against ejabberd's own pubsub.

    Example: stanzaq bench xmpp --batch 20
    """
    from bench.doors import levels, xmpp  # noqa: PLC0415

    if qos and batch is not None:
        refuse("The benchmark cannot run", "give --qos or --batch")
    measure = levels.main if qos else partial(xmpp.main, batch)
    raise typer.Exit(run_with_servers("The benchmark", partial(measure, as_json=as_json, quick=quick)))


@app.command("worker")
def bench_worker(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure the library's worker over XMPP, against workers that write raw stanzas.

    Example: stanzaq bench worker --json
    """
    from bench.doors import worker  # noqa: PLC0415

    raise typer.Exit(run_with_servers("The benchmark", partial(worker.main, as_json=as_json, quick=quick)))


@app.command("rest")
def bench_rest(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure through HTTP, against an endpoint that does nothing.

    Example: stanzaq bench rest --json
    """
    from bench.doors import rest  # noqa: PLC0415

    raise typer.Exit(run_with_servers("The benchmark", partial(rest.main, as_json=as_json, quick=quick)))


@app.command("amqp")
def bench_amqp(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure through AMQP: messages into a log and out of it, against plain XADD and XRANGE.

    Example: stanzaq bench amqp --json
    """
    try:
        from bench.doors import amqp  # noqa: PLC0415
    except ModuleNotFoundError:
        refuse("The benchmark cannot run", "proton is missing: pip install 'stanzaq[amqp]'")

    raise typer.Exit(run_with_servers("The benchmark", partial(amqp.main, as_json=as_json, quick=quick)))


@app.command("spark")
def bench_spark(*, as_json: Json = False, quick: Quick = False) -> None:
    """Measure how fast Spark reads the journals, against a plain XRANGE loop, and how that slows the queue.

    Example: stanzaq bench spark --json
    """
    try:
        from bench import spark  # noqa: PLC0415
    except ModuleNotFoundError:
        refuse("The benchmark cannot run", "Spark is not installed: pip install 'stanzaq[spark]'")

    raise typer.Exit(run_with_servers("The benchmark", partial(spark.main, as_json=as_json, quick=quick)))

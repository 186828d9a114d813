"""`stanzaq schedule`: turns the command line into commands of the model. Must not know how they are executed."""

from typing import Annotated

import typer

from broker import codec, payloads
from broker.model.commands import PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.core import Core
from broker.model.items.headers import size as header_bytes
from broker.model.items.headers import validate_headers
from broker.model.items.hints import Hints
from broker.model.nodes.schedules import FIELDS, Schedule, ScheduleStatus
from broker.model.problems import MalformedRequest
from broker.model.results import Done, Scheduled
from frontends.commands import sources
from frontends.commands.item import Node, Yes, read_headers
from frontends.commands.runner import ADMINISTRATOR, ask, confirm, list_schedules, misuse, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="Publish items at certain times: make, list, pause and delete schedules.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The schedule's id.")]

_COLUMNS = ("id", "when", "state", "next", "last", "published", "missed", "skipped")


@app.command("add")
def schedule_add(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    node: Node,
    name: Name,
    cron: Annotated[
        str, typer.Option(help="Minute, hour, day of month, month and day of week, e.g. '0 9 * * 1-5'.")
    ] = "",
    zone: Annotated[str, typer.Option(help="The time zone of --cron, e.g. Europe/Berlin. Default: UTC.")] = "",
    every: Annotated[str, typer.Option(help="Instead of --cron: an interval, e.g. 30s, 5m, 1h or 7d.")] = "",
    start: Annotated[str, typer.Option(help="The first possible time, e.g. 2026-12-01T09:00:00Z.")] = "",
    end: Annotated[str, typer.Option(help="The last possible time.")] = "",
    jitter: Annotated[str, typer.Option(help="Publish by chance up to so much later, e.g. 5s.")] = "",
    overlap: Annotated[str, typer.Option(help="While the last item is still in the node: queue or skip.")] = "queue",
    catchup: Annotated[
        str, typer.Option(help="Make up for none, the last or all of the times that were missed.")
    ] = "last",
    text: Annotated[str | None, typer.Option("--payload", help="The payload, as JSON.")] = None,
    file: Annotated[str | None, typer.Option(help="A file with the payload; - is standard input.")] = None,
    kind: Annotated[str, typer.Option("--type", help="The payload's type. Default: by the file's name.")] = "",
    key: Annotated[str, typer.Option(help="The group key of its items.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="A header, as NAME=VALUE; repeatable.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 9. Default: 4.")] = None,
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Make a schedule, or replace the one with this id.

    Example: stanzaq schedule add jobs report --cron '0 9 * * 1-5' --zone Europe/Berlin --payload '{"report": "daily"}'
    """
    values = (name, cron, zone, every, start, end, jitter, overlap, catchup)
    try:
        body, content_type = sources.read(text, file, kind)
        schedule = Schedule.read({field: value for field, value in zip(FIELDS, values, strict=True) if value})
        hints, headers = Hints.validate(None, priority, None), validate_headers(read_headers(header or []))
        envelope = codec.pack(payloads.make_envelope(body, content_type, headers))
    except sources.Unusable as fault:
        misuse(str(fault))
    except MalformedRequest as fault:
        misuse(fault.detail)
    command = PutSchedule(node, ADMINISTRATOR, schedule, envelope, len(body) + header_bytes(headers), key, hints)
    _tell(run(config, lambda core: ask(core, command, Scheduled)), as_json=as_json)


@app.command("list")
def schedule_list(node: Node, config: Config = None, *, as_json: Json = False) -> None:
    """List the schedules of a node.

    Example: stanzaq schedule list jobs
    """

    async def look(core: Core) -> list[ScheduleStatus]:
        return [each async for each in list_schedules(core, node)]

    told = [_schedule_row(each) for each in run(config, look)]
    if as_json:
        tell({"node": node, "schedules": told})
        return
    table(_COLUMNS, [tuple(_row(each).get(name, "") for name in _COLUMNS) for each in told])


@app.command("pause")
def schedule_pause(node: Node, name: Name, config: Config = None, *, as_json: Json = False) -> None:
    """Pause a schedule; times that pass meanwhile are not missed.

    Example: stanzaq schedule pause jobs report
    """
    command = PauseSchedule(node, ADMINISTRATOR, name, paused=True)
    _tell(run(config, lambda core: ask(core, command, Scheduled)), as_json=as_json)


@app.command("resume")
def schedule_resume(node: Node, name: Name, config: Config = None, *, as_json: Json = False) -> None:
    """Resume a schedule from its next time on.

    Example: stanzaq schedule resume jobs report
    """
    command = PauseSchedule(node, ADMINISTRATOR, name, paused=False)
    _tell(run(config, lambda core: ask(core, command, Scheduled)), as_json=as_json)


@app.command("delete")
def schedule_delete(node: Node, name: Name, config: Config = None, *, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a schedule; items that it has published stay.

    Example: stanzaq schedule delete jobs report
    """
    confirm(f"Delete the schedule {name} of {node}?", yes=yes)
    run(config, lambda core: ask(core, RemoveSchedule(node, ADMINISTRATOR, name), Done))
    if as_json:
        tell({"node": node, "deleted": name})
    else:
        say(f"deleted {name}")


def _tell(outcome: Scheduled, *, as_json: bool) -> None:
    told = _schedule_row(outcome.status)
    if as_json:
        tell(told)
    else:
        then = f", next at {told['next']}" if "next" in told else ""
        say(f"{told['id']} is {told['state']}{then}")


def _schedule_row(status: ScheduleStatus) -> dict[str, str | int]:
    counts = {"published": status.published, "missed": status.missed, "skipped": status.skipped}
    return {**status.schedule.write(), **status.write_state(), **counts}


def _row(told: dict[str, str | int]) -> dict[str, str]:
    row = {name: str(value) for name, value in told.items()}
    return row | {"when": f"{row['cron']} {row['zone']}" if "cron" in row else f"every {row['every']}"}

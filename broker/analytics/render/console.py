"""Prints a report on the console. Must not know files."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from broker.analytics.figures import Node, Report, Service
from broker.analytics.quantities import duration, share
from broker.analytics.render import compared
from broker.analytics.render.themes import SERVICE_HEAD, Theme, days, service_rows, themes
from broker.analytics.verdict import State, this_week, verdict

_STYLES: Final = {
    State.ENOUGH: "green",
    State.TIGHT: "yellow",
    State.SHORT: "red",
    State.MISSED: "red",
    State.UNSTABLE: "bold red",
    State.IDLE: "red",
    State.GONE: "dim",
    State.NO_DATA: "dim",
}


def show(report: Report, console: Console) -> None:
    """Print all nodes with their themes."""
    console.print(
        f"[bold]Capacity[/bold]  {report.begin:%Y-%m-%d %H:%M:%S} to {report.end:%Y-%m-%d %H:%M:%S} UTC"
        f" ({duration((report.end - report.begin).total_seconds())})"
    )
    console.print(Text(this_week(report), "bold"))
    if report.before:
        console.print(_compared(report))
    if report.memory_full_days is not None:
        console.print(f"memory of Redis full in {days(report.memory_full_days)}, with all nodes together")
    if report.service.resources:
        console.print(_service(report.service))
    if report.service.missing:
        console.print(Text(report.service.missing, "yellow"))
    for gap in report.gaps:
        console.print(Text(f"missing: {gap}", "red"))
    for node in report.nodes:
        console.print(_node(node, report.target_wait_p95_s))


def _service(service: Service) -> Table:
    return _table("Service", SERVICE_HEAD, service_rows(service))


def _compared(report: Report) -> Table:
    assert report.before is not None
    title = f"Compared with {report.before.begin:%Y-%m-%d %H:%M} to {report.before.end:%Y-%m-%d %H:%M} UTC"
    return _table(title, compared.HEAD, compared.rows(report))


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in head:
        table.add_column(name, justify="left" if name == head[0] else "right")
    for first, *cells in rows:
        # Text, not markup: a node's name may contain square brackets.
        table.add_row(Text(first), *cells)
    return table


def _node(node: Node, target_s: float) -> Panel:
    judged = verdict(node, target_s)
    style = _STYLES[judged.state]
    tables = Columns(
        [*(_theme(theme) for theme in themes(node)), *([_what_if_table(node)] if node.what_if else [])], padding=(1, 3)
    )
    # Text, not markup: a node's name may contain square brackets.
    head = Text.assemble(
        (judged.state.value, style), "  ", judged.words, "\n", f"{judged.remedy}\n" if judged.remedy else ""
    )
    return Panel(Group(head, tables), title=Text(node.node, "bold"), title_align="left", border_style=style)


def _theme(theme: Theme) -> Table:
    table = Table(title=theme.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in theme.lines:
        table.add_row(label, value)
    return table


def _what_if_table(node: Node) -> Table:
    table = Table(title="What if", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("workers", "busy", "p95 wait"):
        table.add_column(name, justify="right")
    for row in node.what_if:
        style = "bold" if row.workers == node.capacity.credit else None
        table.add_row(f"{row.workers:,}", share(row.use), duration(row.wait_p95_s), style=style)
    return table

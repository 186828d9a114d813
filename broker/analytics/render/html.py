"""Writes a report as one HTML file without scripts, for screens of any size and paper. Knows markup; must not compute figures."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from broker.analytics.figures import Hour, Node, Report, Service, Share
from broker.analytics.quantities import duration, milliseconds, number, rate, share
from broker.analytics.render import compared
from broker.analytics.render.charts import charts
from broker.analytics.render.themes import SERVICE_HEAD, Theme, days, service_rows, themes
from broker.analytics.verdict import this_week, verdict

_DRAWN: Final = 20
"""How many nodes, the busiest first, get charts: each adds 60 kB to the file."""

_HOURS: Final = 12
"""Fewer hours of a week make no picture."""

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_LISTED: Final = 12
"""How many subscribers and partitions are listed. The tables for programs have more."""


def write(report: Report, directory: Path) -> None:
    """Write capacity.html."""
    (directory / "capacity.html").write_text(page(report), encoding="utf-8")


def page(report: Report) -> str:
    """Return the page."""
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    nodes = "".join(
        _node(node, number, report.target_wait_p95_s, drawn=number < _DRAWN) for number, node in enumerate(report.nodes)
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Capacity report</title><style>\n{style}</style></head><body>\n{_head(report)}{nodes}</body></html>\n"
    )


def _head(report: Report) -> str:
    lasted = duration((report.end - report.begin).total_seconds())
    full = report.memory_full_days
    memory = (
        "" if full is None else f'<p class="soft">Memory of Redis full in {days(full)}, with all nodes together.</p>'
    )
    gaps = "".join(f'<p class="missing">Missing: {escape(str(gap))}.</p>' for gap in report.gaps)
    cards = "".join(_card(node, number, report.target_wait_p95_s) for number, node in enumerate(report.nodes))
    return (
        "<header><h1>Capacity</h1>"
        f'<p class="soft">{report.begin:%Y-%m-%d %H:%M:%S} to {report.end:%Y-%m-%d %H:%M:%S} UTC ({lasted}), '
        f"from {escape(report.source)}. Target: 95 % of waits ≤ {duration(report.target_wait_p95_s)}.</p>"
        f'<p class="todo">{escape(this_week(report))}</p>{memory}{gaps}<div class="grid wide">{cards}</div>'
        f"{_compared(report)}{_service(report.service)}</header>\n"
    )


def _service(service: Service) -> str:
    missing = f'<p class="missing">{escape(_sentence(service.missing))}</p>' if service.missing else ""
    if not service.resources:
        return missing
    about = (
        "What frontends and Redis carried, when the busiest will be 70 % used, and how many ten times the load needs."
    )
    return missing + _table("Service", about, SERVICE_HEAD, (("", row) for row in service_rows(service)), "long")


def _compared(report: Report) -> str:
    if report.before is None:
        return ""
    about = f"With {report.before.begin:%Y-%m-%d %H:%M} to {report.before.end:%Y-%m-%d %H:%M} UTC."
    return _table("Compared", about, compared.HEAD, (("", row) for row in compared.rows(report)), "long")


def _card(node: Node, number_: int, target_s: float) -> str:
    judged = verdict(node, target_s)
    wait = node.latency.wait
    remedy = f"<p>{escape(_sentence(judged.remedy))}</p>" if judged.remedy else ""
    key = (
        ("arrivals", rate(node.demand.rate_per_s)),
        ("p95 wait", milliseconds(wait.p95_ms if wait else None)),
        ("credit in use", share(node.capacity.credit_use)),
        ("waiting now", number(node.backlog.waiting)),
        ("work lost", share(node.waste.lost_share)),
    )
    return (
        f'<a class="card {_class(judged.state.value)}" href="#node-{number_}">'
        f'<span class="state">{escape(judged.state.value)}</span> <span class="name">{escape(node.node)}</span>'
        f"<p>{escape(_sentence(judged.words))}</p>{remedy}"
        f'<dl class="key">{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in key)}</dl></a>'
    )


def _node(node: Node, number_: int, target_s: float, *, drawn: bool) -> str:
    judged = verdict(node, target_s)
    remedy = f"<p>{escape(_sentence(judged.remedy))}</p>" if judged.remedy else ""
    figures = "".join(
        f'<figure class="card"><figcaption>{caption}</figcaption>{svg}</figure>'
        for caption, svg in (charts(node, target_s) if drawn else ())
    )
    return (
        f'<section class="{_class(judged.state.value)}"><h2 id="node-{number_}">{escape(node.node)}</h2>'
        f'<p><span class="state">{escape(judged.state.value)}</span>: {escape(judged.words)}</p>{remedy}'
        f'<div class="grid wide">{_week(node) if drawn else ""}{figures}</div>'
        f'<div class="grid">{"".join(map(_theme, themes(node)))}{_write_what_if(node)}</div>'
        f'<div class="grid wide">{_shares("Subscribers", node.subscribers)}{_shares("Partitions", node.partitions)}</div>'
        "</section>\n"
    )


def _theme(theme: Theme) -> str:
    rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in theme.lines)
    return (
        f'<div class="card"><h3>{theme.title}</h3><p class="about">{escape(theme.about)}</p>'
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></div>'
    )


def _week(node: Node) -> str:
    """Draw the hours of the week as a table, each as dark as its arrivals are many."""
    most = max((each.rate_per_s or 0.0 for each in node.week), default=0.0)
    if sum(each.rate_per_s is not None for each in node.week) < _HOURS or not most:
        return ""
    lines = "".join(
        f"<tr><th>{day}</th>{''.join(_hour(each, most) for each in node.week if each.weekday == number_)}</tr>"
        for number_, day in enumerate(_DAYS)
    )
    hours = "".join(f"<th>{hour if hour % 6 == 0 else ''}</th>" for hour in range(24))
    return (
        f'<figure class="card"><figcaption>Arrivals by weekday and hour, up to {rate(most)}</figcaption>'
        f'<table class="week"><thead><tr><th></th>{hours}</tr></thead><tbody>{lines}</tbody></table></figure>'
    )


def _hour(of: Hour, most: float) -> str:
    if of.rate_per_s is None:
        return "<td></td>"
    title = f"{_DAYS[of.weekday]} {of.hour:02}:00, {rate(of.rate_per_s)}"
    return f'<td style="--part:{of.rate_per_s / most:.2f}" title="{title}"></td>'


def _write_what_if(node: Node) -> str:
    if not node.what_if:
        return ""
    rows = [
        (
            "now" if row.workers == node.capacity.credit else "",
            (number(row.workers), share(row.use), duration(row.wait_p95_s)),
        )
        for row in node.what_if
    ]
    about = "The busiest hour again, with other numbers of workers. The credit it had is in bold."
    return _table("What if", about, ("workers", "busy", "p95 wait"), rows)


def _shares(title: str, rows: Sequence[Share]) -> str:
    if not rows:
        return ""
    listed = [
        ("", (row.name, number(row.attempts), share(row.share), milliseconds(row.wait_ms), milliseconds(row.held_ms)))
        for row in rows[:_LISTED]
    ]
    about = f"The busiest {_LISTED}." if len(rows) > _LISTED else ""
    return _table(
        title, about, (title[:-1].lower(), "deliveries", "share", "mean wait", "mean service"), listed, "long"
    )


def _table(
    title: str, about: str, head: Iterable[str], rows: Iterable[tuple[str, Sequence[str]]], kind: str = ""
) -> str:
    names = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(
        f'<tr class="{of}"><th>{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for of, (first, *cells) in rows
    )
    return (
        f'<div class="card {kind}"><h3>{title}</h3><p class="about">{about}</p><div class="scroll">'
        f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _class(state: str) -> str:
    return state.replace(" ", "-")


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."

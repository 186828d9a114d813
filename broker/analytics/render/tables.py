"""A report as flat tables for programs: nested figures become columns such as `demand_rate_per_s`.

Columns come from the annotations of the figures' classes, so a table without rows has them too.
"""

from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from broker.analytics.figures import Gap, Hour, Moment, Node, Report, Resource, Share, WhatIf
from broker.analytics.render.compared import Change, changes
from broker.analytics.verdict import verdict


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with their types, and rows."""

    columns: dict[str, type]
    rows: list[dict[str, Any]]


_LISTS: Final = {
    "what_if": ("what_if", WhatIf),
    "subscribers": ("subscribers", Share),
    "partitions": ("partitions", Share),
    "timeline": ("moments", Moment),
    "week": ("week", Hour),
}


def tables(report: Report) -> dict[str, Table]:
    """Return every table by its name."""
    nodes = Table({"node": str, "state": str, "verdict": str, "remedy": str, **_columns(Node)}, [])
    for node in report.nodes:
        judged = verdict(node, report.target_wait_p95_s)
        words = {"state": judged.state.value, "verdict": judged.words, "remedy": judged.remedy}
        nodes.rows.append({"node": node.node, **words, **_values(Node, node)})
    lists = {name: _list_rows(report, attribute, kind) for name, (attribute, kind) in _LISTS.items()}
    resources = Table(_columns(Resource), [_values(Resource, each) for each in report.service.resources])
    gaps = Table(_columns(Gap), [_values(Gap, gap) for gap in report.gaps])
    compared = Table({**_columns(Change), "change": float}, [])
    compared.rows.extend({**_values(Change, each), "change": each.change} for each in changes(report))
    return {"nodes": nodes, **lists, "compared": compared, "resources": resources, "gaps": gaps}


def _list_rows(report: Report, attribute: str, kind: type) -> Table:
    rows = [{"node": node.node, **_values(kind, row)} for node in report.nodes for row in getattr(node, attribute)]
    return Table({"node": str, **_columns(kind)}, rows)


def _columns(kind: type, prefix: str = "") -> dict[str, type]:
    found: dict[str, type] = {}
    for name, held in _parts(kind).items():
        plain = str if issubclass(held, str) else held
        found |= _columns(held, f"{prefix}{name}_") if is_dataclass(held) else {prefix + name: plain}
    return found


def _values(kind: type, value: object, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, held in _parts(kind).items():
        part = None if value is None else getattr(value, name)
        found |= _values(held, part, f"{prefix}{name}_") if is_dataclass(held) else {prefix + name: part}
    return found


def _parts(kind: type) -> dict[str, type]:
    """Return the fields and their types without `None`. Lists are tables of their own."""
    hints = {
        name: next((one for one in get_args(hint) if one is not NoneType), hint) if NoneType in get_args(hint) else hint
        for name, hint in get_type_hints(kind).items()
    }
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not tuple}

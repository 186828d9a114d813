"""A measurement and how it is printed. Knows no server."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

_WHOLE: Final = 1_000
"""Figures from here on have no decimals."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: `ratio` is value to ceiling (or the value, without a ceiling), `holds` whether it meets `target`."""

    name: str
    unit: str
    value: float
    ceiling: float | None
    ratio: float
    target: str
    holds: bool


def row_at_least(name: str, unit: str, value: float, ceiling: float, target: float) -> Row:
    """Return a row whose ratio to the ceiling must reach a target."""
    ratio = value / ceiling
    return Row(name, unit, round(value, 1), round(ceiling, 1), round(ratio, 3), f">= {target}", ratio >= target)


def row_at_most(name: str, unit: str, value: float, target: float, against: float | None = None) -> Row:
    """Return a row whose value, or ratio to `against`, must not exceed a target."""
    ratio = value if against is None else value / against
    shown = None if against is None else round(against, 2)
    return Row(name, unit, round(value, 2), shown, round(ratio, 3), f"<= {target}", ratio <= target)


def row_without_target(name: str, unit: str, value: float, against: float) -> Row:
    """Return a row without a target, next to what it is compared with."""
    return Row(name, unit, round(value, 3), round(against, 3), round(value / against, 3), "", holds=True)


def machine() -> dict[str, str | int]:
    """Describe the machine, without which the figures mean little."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def show(rows: Sequence[Row], *, as_json: bool) -> int:
    """Print the rows as a table; with `as_json` as JSON on stdout, and the table on stderr. 1 when a target is missed."""
    if as_json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}))  # noqa: T201  (its purpose)
    # Without lines between columns and without insignificant digits it fits 80 columns.
    table = Table("what", "value", "unit", "ceiling", "ratio", "target", "holds", box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(
            row.name,
            _figure(row.value),
            row.unit,
            "" if row.ceiling is None else _figure(row.ceiling),
            f"{row.ratio}",
            row.target,
            "yes" if row.holds else "[red]no[/red]",
        )
    Console(stderr=as_json).print(table)
    return 0 if all(row.holds for row in rows) else 1


def _figure(value: float) -> str:
    return f"{round(value):,}" if value >= _WHOLE else f"{value:,}"

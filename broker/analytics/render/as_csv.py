"""A report as CSV files, one for each table."""

import csv
from datetime import datetime
from pathlib import Path

from broker.analytics.figures import Report
from broker.analytics.render.tables import tables


def write(report: Report, directory: Path) -> None:
    """Write NAME.csv for each table. Unknown values are empty, times are ISO 8601."""
    for name, table in tables(report).items():
        with (directory / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.DictWriter(file, list(table.columns))
            rows.writeheader()
            rows.writerows({column: _text(value) for column, value in row.items()} for row in table.rows)


def _text(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value

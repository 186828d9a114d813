"""A report as Parquet files, one for each table."""

from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from broker.analytics.figures import Report
from broker.analytics.render.tables import tables

_TYPES: Final = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def write(report: Report, directory: Path) -> None:
    """Write NAME.parquet for each table."""
    for name, table in tables(report).items():
        schema = pa.schema([(column, _TYPES[held]) for column, held in table.columns.items()])
        pq.write_table(pa.Table.from_pylist(table.rows, schema), directory / f"{name}.parquet")

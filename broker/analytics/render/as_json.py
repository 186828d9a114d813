"""A report as one JSON file."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from broker.analytics.figures import Report
from broker.analytics.verdict import verdict

_FORMAT: Final = {"format": "stanzaq-capacity", "version": 1}


def write(report: Report, directory: Path) -> None:
    """Write capacity.json: the figures as they are, and the verdict on each node."""
    (directory / "capacity.json").write_text(
        json.dumps(record(report), ensure_ascii=False, indent=1, default=_text, allow_nan=False) + "\n",
        encoding="utf-8",
    )


def record(report: Report) -> dict[str, Any]:
    """Return the report as a JSON object."""
    written = {**_FORMAT, **asdict(report)}
    for node, values in zip(report.nodes, written["nodes"], strict=True):
        judged = verdict(node, report.target_wait_p95_s)
        values["verdict"] = {"state": judged.state.value, "words": judged.words, "remedy": judged.remedy}
    return written


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    msg = f"{type(value).__name__} has no place in a report"
    raise TypeError(msg)

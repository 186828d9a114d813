"""`stanzaq doctor`: prints the findings of the diagnostics with their remedies. Must not know how anything is checked."""

import asyncio
import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker.redis_core.nodes.diagnostics import examine_nodes
from broker.redis_core.redis_client.diagnostics import Finding, Level, examine
from broker.settings import RedisSettings

_STYLES = {Level.FINE: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


def main(settings: RedisSettings, *, as_json: bool) -> int:
    """Examine Redis and the queues in it, and print the findings; 1 when one breaks a promise of the queue."""
    findings = asyncio.run(_examine(settings.redis_url, settings.redis_timeout))
    if as_json:
        print(json.dumps({"findings": [{**asdict(each), "level": each.level.value} for each in findings]}))  # noqa: T201
    else:
        Console().print(_table(findings))
    return int(any(finding.level is Level.PROBLEM for finding in findings))


async def _examine(url: str, seconds: float) -> list[Finding]:
    return [*await examine(url, seconds), *await examine_nodes(url, seconds)]


def _table(findings: list[Finding]) -> Table:
    table = Table("", "where", "what", "found", "what to do")
    for finding in findings:
        level = Text(finding.level.value, style=_STYLES[finding.level])
        table.add_row(level, *map(Text, (finding.where, finding.what, finding.found, finding.remedy)))
    return table

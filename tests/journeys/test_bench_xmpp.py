"""`stanzaq bench xmpp` measures what issue and README name; a short run says nothing about the figures."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_rows(tmp_path: Path) -> None:
    """A short run prints one JSON object with the machine and a row of each name; the exit code tells whether all hold."""
    done = subprocess.run(
        [sys.executable, "-m", "frontends.cli", "bench", "xmpp", "--json", "--quick"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode in {0, 1}, done.stderr
    report = json.loads(done.stdout)
    rows = {row["name"]: row for row in report["rows"]}
    assert report["machine"]["cores"] == os.cpu_count()
    assert list(rows) == ["jobs", "cpu_per_stanza", "latency_p50", "latency_p99", "two_frontends"]
    assert all(row.keys() == {"name", "unit", "value", "ceiling", "ratio", "target", "holds"} for row in rows.values())
    assert all(row["value"] > 0 for row in rows.values())
    assert all(rows[name]["ceiling"] > 0 for name in ("jobs", "two_frontends"))
    assert done.returncode == (0 if all(row["holds"] for row in rows.values()) else 1)
    assert list(tmp_path.iterdir()) == []

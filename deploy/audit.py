"""Looks for known vulnerabilities of locked packages, by pip-audit.

Must not judge a vulnerability itself: without a network it only serves saved records in the form of OSV's own service.

    audit.py             ask the public database
    audit.py DIRECTORY   ask saved records: a copy of PyPA's advisory database, or of OSV's export for PyPI, unpacked
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[1]
AUDITED: Final = ("frontend", "reports", "demo", "build", "dev", "release")
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def records(directory: Path) -> Iterator[dict[str, Any]]:
    """Read all saved records."""
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".json":
            yield json.loads(path.read_text())
        elif path.suffix == ".yaml" and path.name.startswith("PYSEC-"):
            yield yaml.load(path.read_text(), _LOADER)  # noqa: S506  (the safe one, in C where there is one)


def by_package(found: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group records by the package that they are about."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for record in found:
        packages = [each["package"] for each in record.get("affected", ())]
        for name in {canonicalize_name(each["name"]) for each in packages if each["ecosystem"] == "PyPI"}:
            grouped.setdefault(name, []).append(record)
    return grouped


def affects(record: Mapping[str, Any], name: str, version: str) -> bool:
    """Return whether a version is named, or lies in a range (OSV schema 1.7, `affected[].ranges[]`)."""
    for affected in record["affected"]:
        if canonicalize_name(affected["package"]["name"]) != name:
            continue
        if version in affected.get("versions", ()):
            return True
        ranges = [each["events"] for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM"]
        if any(_within(events, Version(version)) for events in ranges):
            return True
    return False


def _within(events: list[dict[str, str]], version: Version) -> bool:
    bounds = [(_parsed(text), kind) for event in events for kind, text in event.items() if kind != "limit"]
    for (begin, kind), (end, ended) in pairwise([*sorted(bounds), (None, "")]):
        if kind != "introduced" or begin is None or version < begin:
            continue
        if end is None or version < end or (ended == "last_affected" and version == end):
            return True
    return False


def _parsed(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


class _Answers(BaseHTTPRequestHandler):
    """Answers `POST /v1/query` of OSV's API from saved records."""

    saved: Mapping[str, list[Mapping[str, Any]]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = canonicalize_name(asked["package"]["name"]), asked["version"]
        found = [record for record in self.saved.get(name, ()) if affects(record, name, version)]
        body = json.dumps({"vulns": found} if found else {}, default=str).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Keep the terminal for pip-audit."""


def audit(locks: Iterable[Path], *options: str) -> int:
    """Run pip-audit on each lock; return 1 if it finds something in any."""
    failed = 0
    for path in locks:
        print(f"{path.name}:", file=sys.stderr, flush=True)  # noqa: T201
        command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--strict"]
        command += ["--progress-spinner", "off"]
        failed |= subprocess.run(  # noqa: S603  (pip-audit, of this interpreter)
            [*command, *options, "--requirement", str(path)], check=False
        ).returncode
    return failed


def audit_offline(locks: Iterable[Path], directory: Path) -> int:
    """Run pip-audit against saved records."""
    _Answers.saved = by_package(records(directory))
    if not _Answers.saved:
        sys.exit(f"audit: no record for a package of PyPI is in {directory}")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/v1/query"
        try:
            return audit(locks, "--vulnerability-service", "osv", "--osv-url", address)
        finally:
            server.shutdown()


def main(arguments: list[str]) -> int:
    """Audit every lock."""
    locks = [ROOT / "deploy" / "locked" / f"{name}.txt" for name in AUDITED]
    return audit_offline(locks, Path(arguments[0])) if arguments else audit(locks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

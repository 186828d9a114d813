"""Locks every dependency with hashes, by uv, and checks that the locks fit pyproject.toml.

Knows which environment has which extras. Must not write the address of an index, or a path of this machine.

    lock.py          renew all locks
    lock.py --keep   change only what pyproject.toml asks for
    lock.py --check  say in one line if a lock does not fit
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
OURS: Final = "stanzaq"

LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    # All others take their versions from this one, so it comes first.
    "dev": ("amqp", "dev", "embedded", "http", "otel", "reload", "rest", "spark", "testing"),
    "demo": ("embedded",),
    "frontend": ("amqp", "otel", "rest"),
    "reports": ("spark",),
    "release": ("release",),
}
"""The extras of each lock; `frontend` and `reports` are in images."""

BUILD: Final = "build"
"""The lock of what builds the project, and packages that have no wheel."""

BACKENDS: Final = ("cffi", "editables", "setuptools>=77")
"""For python-qpid-proton and pyspark, and for an editable install."""

_PIN: Final = re.compile(r"^([\w.-]+)==([^\s;\\]+)")


class LockError(Exception):
    """A lock does not fit; the message is one line that says what to do."""


@dataclass(slots=True)
class Pin:
    """One locked version, whether only some machines need it, and which packages do."""

    version: str
    conditional: bool = False
    hashes: int = 0
    via: set[str] = field(default_factory=set)


def pins(text: str) -> dict[str, list[Pin]]:
    """Read a lock: a package has several pins if its version depends on Python's."""
    found: dict[str, list[Pin]] = {}
    pin = Pin("")
    for line in text.splitlines():
        if start := _PIN.match(line):
            pin = Pin(start[2], " ; " in line)
            found.setdefault(canonicalize_name(start[1]), []).append(pin)
        elif line.startswith("    --hash=sha256:"):
            pin.hashes += 1
        elif line.startswith("    #"):
            pin.via.add(line.removeprefix("    #").strip().removeprefix("via").strip())
    return found


def wanted(project: Mapping[str, Any], extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Yield the direct requirements of the project with these extras."""
    own = project["project"]
    seen, left, lines = set[str](), list(extras), list(own["dependencies"])
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        lines += own["optional-dependencies"][extra]
        for requirement in map(Requirement, own["optional-dependencies"][extra]):
            left += requirement.extras if requirement.name == OURS else ()
    for requirement in map(Requirement, lines):
        if requirement.name != OURS:
            yield requirement


def direct(project: Mapping[str, Any], name: str) -> list[Requirement]:
    """Return the direct requirements of a lock."""
    if name == BUILD:
        return [Requirement(line) for line in (*project["build-system"]["requires"], *BACKENDS)]
    return list(wanted(project, LOCKS[name]))


def check(project: Mapping[str, Any], name: str, text: str) -> None:
    """Raise LockError if a lock lacks a requirement, a hash or a reason for a pin."""
    for problem in _problems(pins(text), direct(project, name)):
        msg = f"deploy/locked/{name}.txt does not fit: {problem}; run `make lock`"
        raise LockError(msg)


def _problems(locked: Mapping[str, list[Pin]], requirements: list[Requirement]) -> Iterator[str]:
    for requirement in requirements:
        versions = [pin.version for pin in locked.get(canonicalize_name(requirement.name), ())]
        if not versions or not all(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"pyproject.toml wants {requirement}, and {' and '.join(versions) or 'nothing'} is locked"
    needed = {canonicalize_name(each.name) for each in requirements}
    for package, several in locked.items():
        if not all(pin.hashes for pin in several):
            yield f"{package} has no hash"
        if package not in needed and not any(via in locked for pin in several for via in pin.via):
            yield f"nothing needs {package}"


def check_all(root: Path = ROOT) -> None:
    """Raise LockError for the first lock that does not fit."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    for name in (*LOCKS, BUILD):
        path = root / "deploy" / "locked" / f"{name}.txt"
        check(project, name, path.read_text() if path.exists() else "")


def _write(name: str, *, keep: bool) -> None:
    """Lock one environment for every platform and Python that the project supports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = "\n".join(map(str, direct(project, name)))
    path = Path("deploy/locked") / f"{name}.txt"
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-config", "--universal"]
    command += ["--generate-hashes", "--no-header", "--python-version", "3.11"]
    command += [] if keep else ["--upgrade"]
    command += [] if name == "dev" else ["--constraint", "deploy/locked/dev.txt"]
    subprocess.run(  # noqa: S603  (uv, beside this interpreter)
        [*command, "--output-file", str(path), "-"], cwd=ROOT, input=lines, text=True, check=True
    )


def main(arguments: list[str]) -> None:
    """Write or check all locks."""
    try:
        if "--check" not in arguments:
            for name in (*LOCKS, BUILD):
                _write(name, keep="--keep" in arguments)
        check_all()
    except LockError as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main(sys.argv[1:])

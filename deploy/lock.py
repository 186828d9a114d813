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
PLACES: Final = ("pyproject.toml", "server/pyproject.toml")
"""Our distributions, the one that has all extras first."""

Projects = Mapping[str, Mapping[str, Any]]
"""What pyproject.toml of each distribution says, by its name."""

LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    # All others take their versions from this one, so it comes first.
    "dev": ("amqp", "dev", "embedded", "encryption", "http", "otel", "reload", "rest", "spark", "testing"),
    # For `make demo` and `make dev`: without AMQP, which is compiled.
    "demo": ("http", "testing"),
    "frontend": ("amqp", "otel", "rest"),
    "reports": ("spark",),
    "release": ("release",),
}
"""The extras of each lock; `frontend` and `reports` are in images."""

BUILD: Final = "build"
"""The lock of what builds the project, and packages that have no wheel."""

BACKENDS: Final = ("cffi", "setuptools>=77")
"""For python-qpid-proton and pyspark."""

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


def read_projects(root: Path = ROOT) -> Projects:
    """Read what our distributions ask for."""
    read = [tomllib.loads((root / place).read_text()) for place in PLACES]
    return {each["project"]["name"]: each for each in read}


def wanted(projects: Projects, extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Yield the direct requirements of our distributions with these extras."""
    seen, left = set[tuple[str, str]](), [(OURS, extra) for extra in ("", *extras)]
    while left:
        name, extra = each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        own = projects[name]["project"]
        for requirement in map(Requirement, own["optional-dependencies"][extra] if extra else own["dependencies"]):
            if requirement.name in projects:
                left += [(requirement.name, more) for more in ("", *requirement.extras)]
            else:
                yield requirement


def direct(projects: Projects, name: str) -> list[Requirement]:
    """Return the direct requirements of a lock."""
    if name == BUILD:
        own = projects[OURS]["build-system"]["requires"]
        return [Requirement(line) for line in (*own, *BACKENDS)]
    return list(wanted(projects, LOCKS[name]))


def check(projects: Projects, name: str, text: str) -> None:
    """Raise LockError if a lock lacks a requirement, a hash or a reason for a pin."""
    for problem in _problems(pins(text), direct(projects, name)):
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
    projects = read_projects(root)
    for name in (*LOCKS, BUILD):
        path = root / "deploy" / "locked" / f"{name}.txt"
        check(projects, name, path.read_text() if path.exists() else "")


def _write(name: str, *, keep: bool) -> None:
    """Lock one environment for every platform and Python that the project supports."""
    lines = "\n".join(map(str, direct(read_projects(), name)))
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

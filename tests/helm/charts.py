"""The chart, rendered by the two Helms. Knows their command line; must not know the chart's contents."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "stanzaq"
TOOLS: Final = ROOT / ".venv" / "tools"
HELMS: Final = ("helm3", "helm4")
MAINLY_4: Final = ("helm4", pytest.param("helm3", marks=pytest.mark.soak))
"""For many cases of one kind: both Helms render the same, which others show."""

NAMES: Final = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
SPARK: Final = ("--api-versions", "sparkoperator.k8s.io/v1beta2")

Object = dict[str, Any]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Those in C, where there are any, are nine times as fast."""


def values(name: str) -> Path:
    """Return a values file of `ci/`."""
    return CHART / "ci" / f"{name}-values.yaml"


def helm(version: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the Helms."""
    program = TOOLS / version
    assert program.exists(), f"{program.relative_to(ROOT)} is missing: make .venv/.tools"
    # Neither of them may find, or leave, anything of its user's.
    own = {"PATH": os.environ["PATH"], "HOME": str(TOOLS)}
    return subprocess.run([program, *arguments], env=own, capture_output=True, text=True, check=False, timeout=60)


def rendered(version: str, *arguments: str | Path, chart: Path = CHART) -> list[Object]:
    """Render the chart as the release `queues` in the namespace `work`."""
    return documents(_text(version, chart, *arguments))


@cache
def _text(version: str, chart: Path, *arguments: str | Path) -> str:
    """Render once what several tests change something of."""
    done = helm(version, "template", "queues", chart, "--namespace", "work", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[Object]:
    """Read the objects of a text."""
    found = yaml.load_all(text, _LOADER)
    return [cast("Object", document) for document in found if document]


def written(objects: Iterable[Object]) -> str:
    """Write objects as a text."""
    return str(yaml.dump_all(objects, Dumper=_DUMPER))


def refusal(version: str, *arguments: str | Path) -> str:
    """Return Helm's message when it refuses to render."""
    done = helm(version, "template", "queues", CHART, "--namespace", "work", *arguments)
    assert done.returncode != 0 and done.stdout == ""
    return done.stderr


def having(name: str, *settings: str) -> list[str | Path]:
    """Write the arguments for a values file with more settings."""
    return ["--values", values(name), *(word for setting in settings for word in ("--set", setting))]


def only(objects: Sequence[Object], kind: str, component: str | None = None) -> list[Object]:
    """Choose the objects of a kind, and of a component."""
    of_kind = [found for found in objects if found["kind"] == kind]
    if component is None:
        return of_kind
    return [found for found in of_kind if found["metadata"]["labels"].get("app.kubernetes.io/component") == component]


def the(objects: Sequence[Object], kind: str, component: str | None = None) -> Object:
    """Choose the one object of a kind."""
    (found,) = only(objects, kind, component)
    return found


def pods(objects: Sequence[Object]) -> list[Object]:
    """Return every pod that would run, whoever creates it: `metadata` and `spec`."""
    found: list[Object] = []
    for each in objects:
        match each["kind"]:
            case "Pod":
                found.append(each)
            case "Deployment" | "StatefulSet" | "Job":
                found.append(each["spec"]["template"])
            case "CronJob":
                found.append(each["spec"]["jobTemplate"]["spec"]["template"])
    return found

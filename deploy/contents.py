"""Compares what an environment contains with its SBOM (CycloneDX). Must not know how either was made."""

import csv
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name


def described(sbom: Path) -> dict[str, str]:
    """Return name and version of each package in an SBOM, the project included."""
    said = json.loads(sbom.read_text())
    everything = [*said.get("components", ()), said["metadata"]["component"]]
    return {canonicalize_name(each["name"]): each["version"] for each in everything}


def unlicensed(sbom: Path) -> list[str]:
    """Name the components without a licence."""
    said: Mapping[str, Any] = json.loads(sbom.read_text())
    return [each["name"] for each in said.get("components", ()) if not each.get("licenses")]


def complete(sbom: Path, packages: Path) -> None:
    """Add the licences that cyclonedx-py leaves out, those not named as by SPDX; remove where the files were on this machine."""
    said = json.loads(sbom.read_text())
    named = {
        canonicalize_name(each.name): each.metadata["License"] or "" for each in distributions(path=[str(packages)])
    }
    for each in said.get("components", ()):
        references = each.get("externalReferences", ())
        each["externalReferences"] = [one for one in references if not one["url"].startswith("file:")]
        name = named.get(canonicalize_name(each["name"]), "").strip()
        if not each.get("licenses") and name and "\n" not in name:
            each["licenses"] = [{"license": {"name": name, "acknowledgement": "declared"}}]
    sbom.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")


def installed(packages: Path) -> dict[str, str]:
    """Return name and version of each package in a directory `site-packages`."""
    return {canonicalize_name(each.name): each.version for each in distributions(path=[str(packages)])}


def strays(packages: Path) -> list[str]:
    """Name the files that belong to no installed package."""
    owned: set[Path] = set()
    for record in packages.glob("*.dist-info/RECORD"):
        owned |= {(packages / row[0]).resolve() for row in csv.reader(record.read_text().splitlines())}
    return [str(path.relative_to(packages)) for path in _files(packages) if path not in owned]


def _files(packages: Path) -> Iterator[Path]:
    """Yield files; compiled Python belongs to its source."""
    for path in sorted(packages.resolve().rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def differences(packages: Path, sbom: Path) -> list[str]:
    """Say in lines what is in only one of them."""
    said, found = described(sbom), installed(packages)
    lines = [f"{name} {found[name]} is not in the SBOM" for name in sorted(found) if said.get(name) != found[name]]
    lines += [f"{name} {said[name]} of the SBOM is not there" for name in sorted(said) if name not in found]
    return lines + [f"{name} belongs to no package" for name in strays(packages)]

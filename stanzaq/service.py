"""Finds the service's own packages: installed, of this version, and not hidden by a module of the user. Must not import them."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SERVER: Final = "stanzaq-server"

_PARTS: Final = {"broker": "redis_core", "frontends": "compose.py"}
"""A part of each package by which it is known: others may have a module of the same name."""


class UnfitServiceError(ImportError):
    """The service is installed and cannot be imported; the message says why, and what to do."""


def require_service(extra: str) -> None:
    """Raise ModuleNotFoundError if the service is not installed, UnfitServiceError if another module or version is there."""
    ours = version("stanzaq")
    try:
        theirs = version(_SERVER)
    except PackageNotFoundError:
        msg = f"{_SERVER} is missing: pip install 'stanzaq[{extra}]'"
        raise ModuleNotFoundError(msg, name=_SERVER) from None
    if theirs != ours:
        msg = f"stanzaq {ours} cannot use {_SERVER} {theirs}: pip install 'stanzaq[{extra}]=={ours}'"
        raise UnfitServiceError(msg)
    for name, part in _PARTS.items():
        found = find_spec(name)
        if found and not any(Path(place, part).exists() for place in found.submodule_search_locations or ()):
            msg = f"{found.origin or name} hides the package {name!r} of {_SERVER}: rename it, or remove it from Python's path"
            raise UnfitServiceError(msg)

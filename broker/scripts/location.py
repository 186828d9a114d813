"""Finds the Lua files: inside an installed wheel, or in the repository. Must not know their content."""

from pathlib import Path


def lua_directory() -> Path:
    """Return the directory of the Lua files.

    `../lua` counts only beside this project's `pyproject.toml`: next to an installed package it would be a stranger's.
    """
    broker = Path(__file__).resolve().parent.parent
    bundled = broker / "_lua"
    if bundled.is_dir():
        return bundled
    if (broker.parent / "pyproject.toml").is_file():
        return broker.parent / "lua"
    msg = f"the scripts of stanzaq are not installed: {bundled} is missing; install stanzaq again"
    raise FileNotFoundError(msg)

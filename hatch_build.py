"""Puts the files that are not Python into the wheel; must not touch any other kind of build.

An editable install reads them where the repository has them: a copy there would go stale.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLED = {
    "lua": "broker/_lua",
    "deploy/local/ejabberd.yml": "frontends/_local/ejabberd.yml",
}


class Bundle(BuildHookInterface[Any]):
    """Copies each source of `BUNDLED` to its place in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Act for real wheels only: `version` is `editable` for the other kind."""
        if version == "standard":
            build_data["force_include"].update(BUNDLED)

"""Puts the service's folders into its distributions; must not touch editable installs.

The folders lie above this one in the repository, and beside it in a source distribution. An editable install reads them where
they are: a copy would go stale.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLED = {
    "broker": "broker",
    "frontends": "frontends",
    "lua": "broker/_lua",
    "deploy/local/ejabberd.yml": "frontends/_local/ejabberd.yml",
}
"""Where each folder and file of the repository is in the wheel; a source distribution has them where the repository has."""


class Bundle(BuildHookInterface[Any]):
    """Copies each source of `BUNDLED` to its place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Act for real distributions only: `version` is `editable` for the other kind."""
        if version != "standard":
            return
        here = Path(self.root)
        home = here if (here / "broker").is_dir() else here.parent
        for source, target in BUNDLED.items():
            build_data["force_include"][str(home / source)] = source if self.target_name == "sdist" else target

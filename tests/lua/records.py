"""Runs the scripts of nodes, JIDs and the service, each on keys of its own. Knows how keys are named, no script."""

# ruff: noqa: ANN401  (what Redis takes and answers has no types of its own)

import secrets
from typing import Any

from broker import keys
from tests.lua.driver import DEFAULTS, SCRIPTS, T0, Runner

_NAMED = {"node": keys.of_node, "jid": keys.of_jid}


class Records:
    """The records of one node or JID that no other test touches."""

    def __init__(self, runner: Runner) -> None:
        """Choose a name."""
        self._runner = runner
        self.client = runner.client
        self.whose = f"someone-{secrets.token_hex(4)}@x"

    def key(self, name: str) -> str:
        """Name a key; those of the service are the test's own too, under a tag of their own."""
        holder = keys.BY_NAME[name].holder
        return _NAMED[holder](name, self.whose) if holder in _NAMED else f"sq:{{{self.whose}}}:{name}"

    def run(self, name: str, /, *rows: dict[str, Any], **fixed: Any) -> list[Any]:
        """Run a script."""
        found = SCRIPTS[name]
        known = {"now": T0, **DEFAULTS, **fixed}
        wanted = {argument: known[argument] for argument in found.arguments}
        reply: list[Any] = self._runner.run(name, [self.key(key) for key in found.keys], wanted, rows)
        return reply

    def hash(self, name: str) -> dict[str, str]:
        """Read a hash."""
        found: dict[Any, Any] = self.client.hgetall(self.key(name))
        return {field.decode(): value.decode() for field, value in found.items()}

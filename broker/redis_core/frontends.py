"""The frontends as administrators see them, and the end of one. Must not know how a frontend ends, nor what it owes."""

import re
from typing import Final

from broker import keys
from broker.model.frontends import Disconnect, Disconnected, FrontendList, Frontends, Heard
from broker.model.names import bare
from broker.model.problems import Problem
from broker.model.results import Refused, Result
from broker.redis_core.server import Server, Value
from broker.redis_core.terms import Rules

MOST_TOLD: Final = 1_000
TOLD_MS: Final = 86_400_000
"""How long it is kept that a frontend is to end: one that hangs for longer has been killed by its watchdog."""

_KEYS: Final = ("frontends", "disconnected")
_FORBIDDEN: Final = Refused(Problem.FORBIDDEN, "only administrators may see frontends, or disconnect them")
_UNKNOWN: Final = Refused(Problem.ITEM_NOT_FOUND, "no frontend has such a name")
_NAME: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)


class Muster:
    """Lists frontends, and has them end."""

    def __init__(self, server: Server, rules: Rules) -> None:
        """Look at the list that heartbeats keep."""
        self._server = server
        self._rules = rules
        self._names = [keys.of_service(name) for name in _KEYS]

    async def list(self, command: Frontends) -> Result:
        """List them."""
        if bare(command.sender) not in self._rules.admins:
            return _FORBIDDEN
        _code, rows = await self._server.run(self._server.arguments("frontends", self._names, {"now": ""}))
        return FrontendList(tuple(Heard(name.decode(), ago, by.decode()) for name, ago, by in rows))

    async def disconnect(self, command: Disconnect) -> Result:
        """Have one end."""
        if bare(command.sender) not in self._rules.admins:
            return _FORBIDDEN
        if not _NAME.fullmatch(command.frontend):
            return _UNKNOWN
        told: dict[str, Value] = {
            "frontend": command.frontend,
            "by": bare(command.sender),
            "keep_ms": TOLD_MS,
            "most": MOST_TOLD,
        }
        _code, listed = await self._server.run(self._server.arguments("disconnect", self._names, {"now": "", **told}))
        return Disconnected(listed=bool(listed))

"""A copy of Redis's append-only files: made, looked at and put back as docs/operations.md says. Judges nothing."""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Final

import redis

from broker.model.commands import InspectItems
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.results import InspectedItems
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.admitting import ADMITTING
from tests.faults.lives import Held

_FILES: Final = "appendonlydir"
_POLL_SECONDS: Final = 0.05


class Copy:
    """A copy of the files of a server that runs."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        """Make it."""
        self._server, self._directory = server, directory
        with redis.Redis.from_url(server.url) as client:
            client.config_set("auto-aof-rewrite-percentage", 0)
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(_POLL_SECONDS)
            shutil.copytree(server.directory / _FILES, directory / _FILES)
            client.config_set("auto-aof-rewrite-percentage", 100)

    def held(self, node: str) -> Held:
        """Read a queue and its dead letters, in a server of the copy's own."""
        place = self._directory / "looked_at"
        shutil.copytree(self._directory / _FILES, place / _FILES)
        with RedisServer(place, binary=redis_binary(), options={"appendonly": "yes"}) as server:
            return asyncio.run(_held(server.url, node))

    def put_back(self) -> None:
        """Put it in place of the server's files, which must not run."""
        shutil.rmtree(self._server.directory / _FILES)
        shutil.copytree(self._directory / _FILES, self._server.directory / _FILES)


async def _held(url: str, node: str) -> Held:
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    try:
        items, tokens = await _items(core, node)
        dead, _ = await _items(core, f"{node}/dead")
        return Held(items, tokens, dead)
    finally:
        await core.stop()


async def _items(core: RedisCore, node: str) -> tuple[set[str], dict[str, int]]:
    """Read all items of a node, which may not be there, and the tokens of locks."""
    items, tokens, scan, more = set[str](), dict[str, int](), "", True
    record = await core._store.read(node)
    if record is None:
        return items, tokens
    owner = next(jid for jid, role in record.affiliations.items() if role is Affiliation.OWNER)
    while more:
        found = await core.ask(InspectItems(node, Jid(owner), (), 1_000, scan))
        assert isinstance(found, InspectedItems), found
        items |= {each.item_id for each in found.items}
        tokens |= {each.item_id: each.lock.token for each in found.items if each.lock}
        scan = found.scan
        more = bool(scan)
    return items, tokens

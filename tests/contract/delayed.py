"""A program that drops delayed items by stanzas to a frontend over a real Redis, and prints the replies.

It runs in a copy of the tree that has that operation (docs/examples/operation.patch).
"""

import asyncio
import sys
from typing import Any
from xml.etree import ElementTree as ET

from broker.model.commands import Declare, Publish
from broker.model.items.hints import Hints
from broker.model.names import Jid
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends import logs
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies, requests, stanzas
from frontends.xmpp.stanzas import Question
from tests.admitting import ADMITTING

_OWNER, _STRANGER = Jid("owner@x/1"), Jid("stranger@x/1")


async def _ask(core: RedisCore, node: str, sender: Jid) -> str:
    inside = f"<purge-delayed xmlns='{ns.STANZAQ}' node='{node}'/>"
    iq = stanzas.parse_iq(
        ET.fromstring(f"<iq xmlns='jabber:client' type='set' id='1' from='{sender}' to='q.x'>{inside}</iq>")
    )
    assert iq is not None
    question = requests.read(iq)
    assert isinstance(question, Question)
    return replies.answer(question, await core.ask(question.command)).decode()


async def _run(url: str, node: str) -> None:
    settings: dict[str, Any] = {"redis_url": url, "xmpp_domain": "q.x", "xmpp_secret": "s"}
    core = RedisCore(Settings(**ADMITTING, **settings), None)
    await core.ask(Declare(node, _OWNER, {"stanzaq#partitions": ("2",)}))
    for partition in (0, 1):
        await core.ask(Publish(node, _OWNER, None, b"x", 1, partition=partition, hints=Hints(delay_ms=60_000)))
        await core.ask(Publish(node, _OWNER, None, b"x", 1, partition=partition))
    for sender in (_STRANGER, _OWNER, _OWNER):
        sys.stdout.write(await _ask(core, node, sender) + "\n")
    await core.stop()


# Lines of the log, e.g. on what another test left in the same Redis, go to the other output.
logs.set_up(as_json=False)
asyncio.run(_run(*sys.argv[1:]))

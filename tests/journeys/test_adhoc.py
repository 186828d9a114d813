"""Ad-hoc commands of administrators and owners through a whole service, by any of its frontends."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from tests.journeys.client import COMMANDS, DISCO_ITEMS, FORM, STANZAQ, Answer, Client, Delivery, submitted
from tests.journeys.conftest import Join
from tests.journeys.service import Frontend, Service, serving
from tests.waiting import PATIENCE_SECONDS

_ITEMS: Final = 90

ADMIN = f"admin-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Provide a service of this module's own, which has an administrator."""
    with serving(ejabberd, "adhoc.localhost", ADMINS=ejabberd.register(ADMIN, "secret")) as service:
        yield service


@pytest.fixture
async def admin(join: Join, service: Service) -> Client:
    """Return the administrator."""
    return await join(f"{ADMIN}@{service.ejabberd.accounts}", "secret")


async def run(client: Client, name: str, fields: Mapping[str, str] | None = None, about: str = "") -> Answer:
    """Execute a command, with a form when it has fields."""
    node = f"{STANZAQ}#{name}"
    form = "" if fields is None else submitted(node, fields)
    return await client.ask(f"<command xmlns='{COMMANDS}' node='{node}' {about}>{form}</command>")


def told(answer: Answer) -> tuple[str | None, str]:
    """Return the status of a command and its note."""
    assert answer.error == ""
    command = answer.find(f"{{{COMMANDS}}}command")
    return command.get("status"), command.findtext(f"{{{COMMANDS}}}note", "")


async def test_overview(admin: Client, join: Join) -> None:
    """Only an administrator lists all nodes, and only it sees that command."""
    owner = await join()
    node = await owner.queue()
    await owner.publish(node, "i1")
    rows = (await run(admin, "overview", {})).element.findall(f".//{{{FORM}}}item")
    cells = [{field.get("var"): field.findtext(f"{{{FORM}}}value") for field in row} for row in rows]
    assert [row["waiting"] for row in cells if row["node"] == node] == ["1"]
    for client, shown in ((admin, True), (owner, False)):
        listed = await client.ask(f"<query xmlns='{DISCO_ITEMS}' node='{COMMANDS}'/>", "get")
        assert (f"{STANZAQ}#overview" in [item.get("node") for item in listed.element.iter()]) is shown
    assert (await run(owner, "overview", {})).error == "auth forbidden"
    assert (await run(admin, "overview", {"limit": "0"})).error == "modify bad-request bad-payload"
    assert (await run(admin, "overview", about="sessionid='?'")).error == "modify bad-request bad-sessionid"


async def test_states_and_locks(admin: Client, join: Join) -> None:
    """An administrator and the owner pause, resume and drain, and end locks by force; others may not."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    assert told(await run(admin, "pause", {"node": node})) == ("completed", f"{node} is paused")
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    await worker.settle()
    assert worker.left(Delivery) == []
    assert told(await run(owner, "resume", {"node": node})) == ("completed", f"{node} is running")
    assert (await worker.next(Delivery)).attempt == 1
    assert told(await run(admin, "release", {"node": node, "holder": worker.bare})) == ("completed", "released 1")
    assert (await worker.next(Delivery)).item == "i1"
    assert told(await run(owner, "drain", {"node": node})) == ("completed", f"{node} is draining")
    assert (await owner.publish(node, "i2")).error == "wait policy-violation"
    for name, more in (("pause", {}), ("release", {"items": "i1"}), ("redrive", {"all": "1"}), ("move", {"to": "x"})):
        assert (await run(worker, name, {"node": node, **more})).error == "auth forbidden"
    assert (await run(admin, "pause", {"node": "?"})).error == "cancel item-not-found"


async def test_move(admin: Client, join: Join) -> None:
    """Waiting items move at a rate, by a form that any frontend gives and any takes; it may be cancelled instead."""
    owner = await join()
    node, other = await owner.queue(), await owner.queue()
    for number in range(12):
        await owner.publish(node, f"i{number}")
    first = await run(admin, "move")
    session = f"sessionid='{first.find(f'{{{COMMANDS}}}command').get('sessionid')}' action='next'"
    answer = await run(admin, "move", {"node": node, "to": other, "rate": "1000"}, session)
    assert told(answer) == ("completed", "moved 12")
    assert told(await run(admin, "move", about=session.replace("next", "cancel")))[0] == "canceled"
    assert (await run(admin, "move", {"node": node, "to": other, "scan": "x"})).error == "modify bad-request"


async def test_disconnect(admin: Client, join: Join, service: Service) -> None:
    """Issue 8: one of three frontends is told to end: work continues, nothing is lost or done twice, and it ends."""
    owner, worker = await join(), await join()
    node = await owner.queue({"stanzaq#dedupe": "ignore"})
    assert (await worker.subscribe(node, 5)).error == ""
    known = _choices(await run(admin, "disconnect"))
    settings = {"XMPP_DOMAIN": service.domain, "ADMINS": f"{ADMIN}@{service.ejabberd.accounts}"}
    server = service.ejabberd
    with Frontend(service.redis.url, server.component_port, server.secret, **settings) as doomed:
        (name,) = _choices(await run(admin, "disconnect")) - known
        tokens: dict[str, set[int]] = {}
        working = asyncio.create_task(_work(worker, node, tokens))
        for number in range(_ITEMS):
            if number == _ITEMS // 3:
                assert told(await run(admin, "disconnect", {"frontend": name})) == ("completed", "disconnected")
            await _sure(partial(owner.publish, node, f"i{number}"))
        assert await doomed.ended(PATIENCE_SECONDS) == 75
        await asyncio.wait_for(working, PATIENCE_SECONDS)
        (said,) = (json.loads(line) for line in doomed.log.splitlines() if "disconnected by" in line)
        assert (said["frontend"], said["reason"]) == (name, f"disconnected by {settings['ADMINS']}")
    assert {item: len(known) for item, known in tokens.items()} == {f"i{number}": 1 for number in range(_ITEMS)}
    assert _choices(await run(admin, "disconnect")) == known
    assert (await run(worker, "disconnect", {"frontend": name})).error == "auth forbidden"


def _choices(answer: Answer) -> set[str]:
    """Return the frontends that a form offers."""
    assert told(answer)[0] == "executing"
    return {option.findtext(f"{{{FORM}}}value", "") for option in answer.element.iter(f"{{{FORM}}}option")}


async def _work(worker: Client, node: str, tokens: dict[str, set[int]]) -> None:
    """Acknowledge items until all have come; a delivery that comes again with its token is dropped."""
    while len(tokens) < _ITEMS:
        given = await worker.next(Delivery)
        known = tokens.setdefault(given.item, set())
        if given.token not in known:
            known.add(given.token)
            await _sure(partial(worker.retract, node, given.item, given.token, request=f"r-{given.token}"))


TRY_SECONDS: Final = 2


async def _sure(ask: Callable[[], Awaitable[Answer]]) -> None:
    """Repeat until there is an answer: a frontend that ends says so, or the stanza is lost with its stream."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                answer = await asyncio.wait_for(ask(), TRY_SECONDS)
            except TimeoutError:
                continue
            if not answer.error.startswith("wait"):
                assert answer.error == ""
                return

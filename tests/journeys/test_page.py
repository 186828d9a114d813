"""The web page in a real browser, over a real service with work flowing: shown, used by keyboard, and safe (R5)."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Final
from xml.sax.saxutils import quoteattr

from selenium.webdriver.common.keys import Keys

from tests.doors.frontend import HASH, PASSWORD
from tests.doors.rest.served import RestFrontend
from tests.journeys.browser import Browser, chromium
from tests.journeys.client import Client, Delivery
from tests.journeys.conftest import Join
from tests.journeys.page import judge
from tests.journeys.service import Service

HOSTILE: Final = "<img src=x onerror=window.hacked=1>"
"""The name of a queue, of an item, the reason of a dead letter, and the resource of a worker."""

FLOW: Final = ("mail/outgoing", "thumbnails")


@contextlib.asynccontextmanager
async def flowing(owner: Client, worker: Client) -> AsyncIterator[None]:
    """Publish and work items until the end."""
    for node in FLOW:
        assert (await owner.create(node, {"pubsub#title": f"Work for {node}"})).error == ""
        assert (await worker.subscribe(node, 5)).error == ""

    # On a busy machine less flows, and no backlog grows.
    room = asyncio.Semaphore(20)

    async def send() -> None:
        for node in itertools.cycle((*FLOW, FLOW[0], FLOW[0])):
            await room.acquire()
            assert (await owner.publish(node)).error == ""
            await asyncio.sleep(0.03)

    async def work() -> None:
        while True:
            delivery = await worker.next(Delivery, 60)
            await asyncio.sleep(0.02)
            await worker.retract(delivery.node, delivery.item)
            room.release()

    tasks = [asyncio.create_task(send()), asyncio.create_task(work())]
    try:
        yield
    finally:
        # asyncio.wait_for of Python 3.11 swallows a cancellation that comes together with the answer.
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=1)


_SLOW: Final = """
const ask = window.fetch;
window.slow = [];
window.fetch = (...told) => new Promise((come) => slow.push(async (text) => {
  const answer = text ? new Response(text) : await ask(...told);
  const copy = answer.clone();
  come(answer);
  await copy.text();
}));
window.swift = () => {
  window.fetch = ask;
  for (const each of slow) each();
};
"""
"""Answers come one by one, as they are called from `slow`, maybe with another text; after `swift` they come at once again."""


async def dead_letters(owner: Client, worker: Client) -> None:
    """Make dead letters, one with an id and a reason that would be markup elsewhere; two queues share a place for theirs."""
    dead = (
        ("payments", "card-2", "no such account"),
        ("payments", "card-3", "torn"),
        ("refunds", "card-4", "torn"),
        (HOSTILE, HOSTILE, HOSTILE),
    )
    nodes: dict[str, dict[str, str]] = {
        "payments": {},
        "refunds": {"stanzaq#dead_letter_node": "payments/dead"},
        HOSTILE: {},
    }
    for node, options in nodes.items():
        assert (await owner.create(node, options)).error == ""
        assert (await worker.subscribe(node, 1)).error == ""
    for node, item, reason in dead:
        payload = "<job xmlns='urn:x'>&lt;script>hacked=1&lt;/script></job>"
        assert (await owner.publish(node, item, payload)).error == ""
        assert (await worker.next(Delivery)).item == item
        hint = f"""reason="{reason.replace("<", "&lt;")}" dead-letter='true'"""
        assert (await worker.unlock(node, item, None, hint)).error == ""
    for node in nodes:
        assert (await worker.unsubscribe(node)).error == ""
    assert (await owner.create("invoices", {"stanzaq#state": "paused", "stanzaq#partitions": "4"})).error == ""
    await asyncio.gather(*(owner.publish("invoices", f"invoice-{number}") for number in range(40)))


async def test_page(service: Service, join: Join, account: tuple[str, str]) -> None:
    """R5: counts and charts move, a dead letter is redriven by keyboard, nothing is markup, and the page is accessible."""
    owner, admin = await join(), await join()
    flower, worker = await join(), await join(f"{account[0]}/{HOSTILE}", account[1])
    passwords = "".join(f"{each.bare}:{HASH}\n" for each in (owner, admin))
    await dead_letters(owner, worker)
    with chromium() as browser:
        async with flowing(owner, flower):
            settings = {"HTTP_PASSWORDS": passwords, "HTTP_ANONYMOUS": "anybody@example.org", "ADMINS": admin.bare}
            with RestFrontend(service.redis.url, **settings) as frontend:
                await asyncio.to_thread(_signs_in, browser, frontend, owner.bare)
                await asyncio.to_thread(_counts_move, browser)
                await asyncio.to_thread(_narrow, browser)
                await asyncio.to_thread(_redrives, browser)
                # It returned to its node, and is worked on.
                assert (await worker.subscribe(HOSTILE, 2)).error == ""
                assert (await worker.next(Delivery)).item == HOSTILE
                await asyncio.to_thread(_releases, browser)
                assert (await worker.next(Delivery)).item == HOSTILE
                await asyncio.to_thread(_pauses, browser)
                await asyncio.to_thread(_redrives_all, browser)
                for node in (HOSTILE, f"{HOSTILE}/dead"):
                    await owner.owner(f"<delete node={quoteattr(node)}/>")
                await asyncio.to_thread(_pictures, browser)
                assert (await owner.create("letters", {"pubsub#access_model": "authorize"})).error == ""
                assert (await worker.subscribe("letters")).error == (await flower.subscribe("letters")).error == ""
                await asyncio.to_thread(_rights, browser, owner.bare, worker.jid, flower.jid)
                await asyncio.to_thread(_changes_user, browser, admin.bare)
                await asyncio.to_thread(_quotas, browser, owner.bare)
            await asyncio.to_thread(_loses_the_service, browser)
    assert service.faults() == []


def _signs_in(browser: Browser, frontend: RestFrontend, jid: str) -> None:
    browser.wide(1200)
    browser.driver.get(f"{frontend.url}/ui")
    # Anybody may look around here.
    browser.says("live", "#connection")
    browser.click("#user")
    browser.find("form.door")
    assert browser.barriers() == []
    browser.press(jid, Keys.TAB, "wrong", Keys.ENTER)
    browser.says("the name or the password is wrong")
    browser.press(jid, Keys.TAB, PASSWORD, Keys.ENTER)
    browser.find("tbody tr")


def _row(name: str) -> str:
    return f'tr[data-key="{name}"]'


def _counts_move(browser: Browser) -> None:
    """Check that counts and charts change, and that each queue's state is shown."""
    row = _row(FLOW[0])
    browser.until(
        lambda: browser.text(f"{row} td:nth-child(7)") not in {"", "\N{EN DASH}", "0.0"}, "a rate of what is done"
    )
    assert float(browser.text(f"{row} td:nth-child(6)")) > 0
    before = browser.attribute(f"{row} .line", "points"), browser.text(".figures")
    browser.until(lambda: browser.attribute(f"{row} .line", "points") != before[0], "the chart moves")
    browser.until(lambda: browser.text(".figures") != before[1], "the counts move")
    assert (
        browser.text(f"{_row('invoices')} .badge") == "paused" and browser.text(f"{_row(FLOW[1])} .badge") == "running"
    )
    assert browser.text(f"{_row('invoices')} td:nth-child(3)") == "40"
    # Sorted by keyboard: the largest first, and the row with the focus keeps it.
    browser.tab_to("Waiting")
    browser.press(Keys.ENTER)
    assert browser.attribute("thead th[data-by=waiting]", "aria-sort") == "descending"
    assert browser.text("tbody tr:first-child th a") == "invoices"


def _narrow(browser: Browser) -> None:
    """On the smallest phone nothing is cut off."""
    browser.wide(360)
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    assert browser.barriers() == []
    browser.picture("ui-narrow")
    browser.wide(1200)


def _redrives(browser: Browser) -> None:
    """By keyboard alone: from the table to the dead letters, redrive one, and see the message."""
    browser.driver.execute_script("document.activeElement.blur()")
    browser.tab_to("1")
    browser.press(Keys.ENTER)
    browser.says(f"Redrive {HOSTILE}", "tbody")
    assert (
        browser.text("h1") == HOSTILE and browser.driver.execute_script("return document.activeElement.tagName") == "H1"
    )
    assert browser.barriers() == []
    browser.tab_to(HOSTILE)
    browser.press(Keys.ENTER)
    browser.says("&lt;script&gt;hacked=1", "dialog pre")
    browser.press(Keys.ESCAPE)
    browser.tab_to(f"Redrive {HOSTILE}")
    browser.press(Keys.ENTER)
    browser.says(f"{HOSTILE} is on its way back to {HOSTILE}", "#said")
    browser.says("No dead letters")
    assert browser.attribute("#said", "role") == "status"


def _releases(browser: Browser) -> None:
    """See subscribers with their locks, and end a lock."""
    browser.tab_to("Subscribers")
    browser.press(Keys.ENTER)
    browser.says(f"/{HOSTILE}")
    browser.says("working", "tbody .state")
    assert browser.barriers() == []
    browser.find("tbody button").send_keys(Keys.ENTER)
    browser.says("1 lock of", "#said")


def _pauses(browser: Browser) -> None:
    browser.tab_to("Pause")
    browser.press(Keys.ENTER)
    browser.says("paused", ".head .badge")
    browser.click(".actions [data-state=running]")
    browser.says("running", ".head .badge")
    assert not browser.driver.execute_script("return window.hacked") and browser.complaints() == []


def _redrives_all(browser: Browser) -> None:
    """Redrive those of one reason, the others stay; then all of them. Another queue's letters in the same place stay too."""
    browser.click(".crumbs a")
    browser.click(f"{_row('payments')} [data-label=Dead] a")
    browser.says("torn")
    judge(browser, "dead")
    browser.find("select").send_keys("torn")
    browser.fill("[name=header]", "colour")
    browser.click("form .main")
    browser.says("is no header", "#said")
    browser.fill("[name=header]", "colour: red")
    browser.click("form .main")
    browser.says("0 dead letters on the way back", "#said")
    browser.fill("[name=header]", "")
    browser.click("form .main")
    browser.says("1 dead letter on the way back", "#said")
    browser.until(lambda: "torn" not in browser.text("tbody"), "it is gone")
    assert "card-2" in browser.text("tbody") and "card-4" not in browser.text("tbody")
    # The reason is still chosen, though none is left that died of it.
    browser.click("form .main")
    browser.says("0 dead letters on the way back", "#said")
    browser.find("select").send_keys("anything")
    browser.click("form .main")
    browser.says("No dead letters")
    browser.click(".crumbs a")
    browser.click(f"{_row('payments/dead')} th a")
    browser.click(".tabs [data-part=dead]")
    browser.says("card-4", "tbody")
    browser.click(".crumbs a")


def _pictures(browser: Browser) -> None:
    """Take pictures in dark and in light."""
    browser.until(lambda: HOSTILE not in browser.text("main"), "what is deleted is gone")
    browser.until(lambda: not browser.text("#said"), "what was said has been read")
    browser.wide(1200, 540)
    for scheme in ("dark", "light"):
        browser.shades(scheme)
        assert browser.barriers() == [], scheme
        browser.picture(f"ui-{scheme}")


def _rights(browser: Browser, owner: str, one: str, other: str) -> None:
    """Decide who asks to subscribe, and give, change and take affiliations; a refusal says what is wrong, and changes nothing."""

    def row(jid: str) -> str:
        return f'tr[data-key="{jid}"]'

    browser.driver.execute_script("location.hash = '#/queue/letters/access'")
    browser.says("Approve", row(one))
    judge(browser, "requests")
    browser.click(f"{row(one)} td.do button")
    browser.says(f"{one} is approved", "#said")
    browser.says("the account member", row(one.partition("/")[0]))
    browser.click(f"{row(other)} td.do button:last-child")
    browser.says(f"{other} is denied", "#said")
    browser.says("Nobody waits for approval")
    browser.click(".add")
    browser.fill("dialog [name=jid]", "a@b@c")
    browser.click("dialog [type=submit]")
    browser.says("is not a JID", "dialog [role=alert]")
    browser.fill("dialog [name=jid]", "example.net")
    browser.click("dialog option:last-child")
    browser.click("dialog [type=submit]")
    browser.says("The affiliation of example.net is outcast", "#said")
    browser.says("accounts of the domain outcast", row("example.net"))
    browser.click(".add")
    browser.fill("dialog [name=jid]", "group:a@b")
    browser.click("dialog [type=submit]")
    browser.says("the group member", row("group:a@b"))
    browser.click(f"{row('example.net')} td.do button")
    browser.click("dialog option:nth-child(2)")
    browser.click("dialog [type=submit]")
    browser.says("accounts of the domain publisher", row("example.net"))
    browser.click(f"{row('example.net')} td.do button:last-child")
    browser.click("dialog [type=submit]")
    browser.says("The affiliation of example.net is removed", "#said")
    browser.until(lambda: not browser.text(row("example.net")), "it is not listed")
    browser.click(f"{row(owner)} td.do button:last-child")
    browser.click("dialog [type=submit]")
    browser.says("a node keeps at least one owner", "dialog [role=alert]")
    browser.click("dialog .close")


def _changes_user(browser: Browser, jid: str) -> None:
    """Sign out and in as an administrator: only administrators see frontends. Nothing of the former user is shown."""
    browser.click(".bar nav a[href='#/frontends']")
    browser.says("Only administrators")
    browser.driver.execute_script(_SLOW)
    browser.until(lambda: browser.driver.execute_script("return slow.length"), "the page asks")
    # Half an answer is none.
    browser.driver.execute_script("slow.shift()('{\"queues\": [')")
    browser.says("the service does not answer: trying again", "#connection")
    browser.until(lambda: browser.driver.execute_script("return slow.length"), "the page asks again")
    browser.click("#user")
    browser.says("You are signed out")
    # The answer to what was asked before comes now.
    browser.driver.execute_async_script("const [done] = arguments; slow.shift()().then(done);")
    browser.driver.execute_script("location.hash = '#/'")
    browser.says("There is no queue")
    browser.driver.execute_script("location.hash = '#/frontends'; swift()")
    browser.says("Only administrators")
    browser.click("#user")
    browser.find("form.door")
    browser.press(jid, Keys.TAB, PASSWORD, Keys.ENTER)
    browser.says("alive")
    # Those of every door, not of XMPP alone.
    browser.says("HTTP", "tbody")
    browser.says("XMPP", "tbody")
    judge(browser, "frontends")


def _quotas(browser: Browser, owner: str) -> None:
    """Set a quota as an administrator, see what is used of it, change and clear it; an error is shown in its form."""
    browser.click(".bar nav a[href='#/quotas']")
    browser.says("There are no quotas", ".empty")
    browser.click(".add")
    browser.fill("dialog [name=subject]", owner)
    browser.fill("dialog [name=items]", "many")
    browser.click("dialog [type=submit]")
    browser.says("items: must be a whole number", "dialog [role=alert]")
    judge(browser, "quota")
    browser.fill("dialog [name=items]", "3")
    browser.fill("dialog [name=publish_rate]", "1000/s")
    browser.click("dialog [type=submit]")
    browser.says(f"The quota of {owner} is set", "#said")
    row = f'tr[data-key="{owner}"]'
    browser.until(lambda: browser.text(f"{row} td.over").endswith(" of 3"), "more is used than there may be")
    judge(browser, "quotas")
    browser.click(f"{row} td.do button")
    browser.fill("dialog [name=items]", "")
    browser.click("dialog [type=submit]")
    browser.until(lambda: " of 3" not in browser.text("tbody"), "it has no limit of items")
    browser.click(f"{row} td.do button:last-child")
    browser.click("dialog [type=submit]")
    browser.says(f"The quota of {owner} is cleared", "#said")
    browser.click(".bar nav a[href='#/frontends']")
    browser.says("alive")


def _loses_the_service(browser: Browser) -> None:
    """Lose the service: this is reported once, in words, and the last shown figures stay."""
    browser.says("the service does not answer", "#connection")
    assert browser.attribute("#connection", "data-mood") == "away" and "alive" in browser.text("main")

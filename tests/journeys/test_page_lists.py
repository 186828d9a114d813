"""The web page's lists: what items carry, several at once, copies that are sent again (R5)."""

import asyncio
import secrets
from typing import Final

import httpx

from tests.doors.frontend import ALICE
from tests.doors.rest.served import RestFrontend, client
from tests.journeys.browser import Browser, chromium
from tests.journeys.page import judge, sign_in
from tests.journeys.service import Service

JSON: Final = {"Accept": "application/json"}


async def test_lists(service: Service) -> None:
    """R5: an owner sees what items carry, cancels, redrives and drops several at once, and sends edited copies."""
    with RestFrontend(service.redis.url) as frontend, client(frontend) as http, chromium() as browser:
        await asyncio.to_thread(_all, browser, frontend, http)


def _all(browser: Browser, frontend: RestFrontend, http: httpx.Client) -> None:
    name = f"letters-{secrets.token_hex(3)}"
    http.put(f"/queues/{name}", json={"options": {"stanzaq#result_seconds": 600}})
    _bury(http, name)
    browser.wide(1280)
    sign_in(browser, frontend, ALICE)
    _lists(browser, http, name)
    _cancels(browser, http, name)
    _dead(browser, http, name)
    _ends(browser, http, name)
    browser.wide(360)
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    assert browser.complaints() == []


def _bury(http: httpx.Client, name: str) -> None:
    """Make four dead letters."""
    batch = [
        {"json": {"card": number}, "guid": f"card-{number}", "headers": {"colour": "red", "n": str(number)}}
        for number in range(4)
    ]
    http.post(f"/batches/{name}", json=batch)
    lease = http.post("/subscriptions", json={"destinations": [name], "prefetch": 4}).json()["href"]
    held = list[dict[str, str]]()
    while len(held) < 4:
        held = http.get(f"{lease}?wait=10", headers=JSON).json()["messages"]
    for each in held:
        http.post(each["dead_letter"], json={"reason": "torn"})
    http.delete(lease)


def _open(browser: Browser, name: str, part: str) -> None:
    browser.driver.execute_script(f"location.hash = '#/queue/{name}/{part}'")
    browser.find(f".tabs [data-part={part}][aria-current]")


def _row(item: str) -> str:
    return f"tr[data-key='{item} 0']"


def _lists(browser: Browser, http: httpx.Client, name: str) -> None:
    """Each row begins with what the item carries; bytes are counted."""
    batch = [
        {"text": "first line\n  second line", "guid": "lines", "group_key": "emma"},
        {"text": "x" * 300, "guid": "long", "headers": {"a": "1", "b": "2", "c": "3", "d": "4"}},
        {"base64": "AAEC", "guid": "bytes"},
    ]
    http.post(f"/batches/{name}", json=batch)
    _open(browser, name, "items")
    browser.says("first line second line", _row("lines"))
    assert "x\N{HORIZONTAL ELLIPSIS}" in browser.text(f"{_row('long')} .carries span")
    assert browser.text(f"{_row('long')} .carries small") == "a: 1, b: 2, c: 3, \N{HORIZONTAL ELLIPSIS}"
    assert browser.text(f"{_row('bytes')} .carries") == "application/octet-stream, 3 bytes"
    for words, item in (("key=emma", "lines"), ("header=c=3", "long")):
        browser.fill("[role=search] input", words)
        browser.click("[role=search] [type=submit]")
        browser.says("1 found in 3", ".found")
        browser.find(f"tr:only-child{_row(item).removeprefix('tr')}")
    judge(browser, "items")
    browser.fill("[role=search] input", "key=nobody")
    browser.click("[role=search] [type=submit]")
    browser.says("has no item key=nobody", ".empty")
    browser.click(".all")
    browser.says("long", "tbody")


def _cancels(browser: Browser, http: httpx.Client, name: str) -> None:
    """Cancel those chosen at once; one that has gone is told by its id, and what is left can be sent again."""
    browser.click(f"{_row('long')} [type=checkbox]")
    browser.click(f"{_row('bytes')} [type=checkbox]")
    browser.says("2 chosen", ".chosen")
    browser.click("#pause-updates")
    browser.says("paused", "#connection")
    assert http.delete(f"/messages/{name}/long").status_code == 200
    browser.click(".chosen button:not([hidden])")
    browser.says("Cancel 2 items?", "dialog")
    browser.click("dialog [type=submit]")
    browser.says("1 of 2 items is cancelled; long is not: ", "#said")
    browser.click("#pause-updates")
    browser.click(f"{_row('lines')} .link")
    browser.click("dialog .again")
    assert browser.find("dialog [name=text]").get_attribute("value") == "first line\n  second line"
    judge(browser, "again")
    browser.fill("dialog [name=text]", "edited")
    browser.click("dialog [type=submit]")
    browser.says("is published", "#said")
    browser.says("edited", "tbody")


def _dead(browser: Browser, http: httpx.Client, name: str) -> None:
    """Redrive and drop letters at once; an edited copy takes the place of one."""
    _open(browser, name, "dead")
    browser.says('{"card": 3}', "tbody")
    letters = {each["died"]["item"]: each["id"] for each in http.get(f"/surveys/{name}/dead").json()["items"]}
    for words in ("reason=nothing", "card-0"):
        browser.fill("[role=search] input", words)
        browser.click("[role=search] [type=submit]")
        browser.says(f"{int(words == 'card-0')} found in 4", ".found")
    browser.until(lambda: "card-1" not in browser.text("tbody"), "one letter")
    browser.click(f"{_row(letters['card-0'])} .link")
    browser.click("dialog .again")
    browser.says(name, "dialog h2")
    browser.fill("dialog [name=text]", '{"card": 99}')
    browser.click("dialog [name=drop]")
    browser.click("dialog [type=submit]")
    browser.says("is published. card-0 is dropped.", "#said")
    copies = [each for each in http.get(f"/surveys/{name}?preview=20").json()["items"] if "99" in each["preview"]]
    assert [each["headers"] for each in copies] == [{"colour": "red", "n": "0"}]
    browser.says("has no item card-0", ".empty")
    browser.click(".all")
    browser.says("card-1", "tbody")
    browser.click(f"{_row(letters['card-1'])} [type=checkbox]")
    browser.click(".chosen button:not([hidden])")
    browser.says("card-1 is on its way back", "#said")
    browser.until(lambda: "card-1" not in browser.text("tbody"), "it is redriven")
    browser.click(".chosen .every")
    browser.says("2 chosen", ".chosen")
    judge(browser, "chosen")
    browser.click(".chosen button:last-child")
    browser.says("Drop 2 dead letters?", "dialog")
    browser.click("dialog [type=submit]")
    browser.says("2 of 2 items are dropped", "#said")
    browser.says("No dead letters")


def _ends(browser: Browser, http: httpx.Client, name: str) -> None:
    """How an item has ended is listed with the worker's result."""
    http.put(f"/queues/{name}-done")
    http.post(f"/queues/{name}-done?guid=sum", content=b"x", headers={"Message-Reply": "true"})
    lease = http.post("/subscriptions", json={"destinations": [f"{name}-done"], "prefetch": 1}).json()["href"]
    (held,) = http.get(f"{lease}?wait=10", headers=JSON).json()["messages"]
    http.post(held["complete"], content=b'{"sum": 42}', headers={"Content-Type": "application/json"})
    http.delete(lease)
    _open(browser, f"{name}-done", "ends")
    browser.says('sum acknowledged {"sum": 42}', "tbody")
    judge(browser, "ends")

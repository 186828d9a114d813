"""The web page: an owner creates a queue, uses and deletes it, each action by a click, at both widths (R5)."""

import asyncio
import secrets

import httpx
from selenium.webdriver.common.keys import Keys

from tests.doors.frontend import ALICE, BOB
from tests.doors.rest.served import RestFrontend, client
from tests.journeys.browser import Browser, chromium
from tests.journeys.page import judge, sign_in
from tests.journeys.service import Service

LOCK_SECONDS = "[name='stanzaq#lock_seconds']"
LONG_NAME = "customers/letters/incoming-from-the-registered-post-office-in-northumberland"

_LISTS = """
const [done] = arguments, ask = window.fetch;
const item = {id: 'twin', state: 'waiting', attempts: 0, published: '2026-12-01T09:00Z', publisher: 'a', headers: {}, bytes: 1};
const items = [{...item, partition: 0}, {...item, partition: 1}];
const jids = [{jid: 'twin', subid: 'a', credit: 1, held: 0}, {jid: 'twin', subid: 'b', credit: 1, held: 0}];
const answers = {
  surveys: [{items}, {items}, {items: [items[1]]}],
  subscribers: [{subscribers: jids}, {subscribers: jids}, {subscribers: [jids[1]], more: true}],
};
window.fetch = async (url, ...how) => {
  const [, root] = String(url).match(/([a-z]+).twins/) ?? [];
  return root ? Response.json(answers[root].shift()) : ask(url, ...how);
};
async function rows(part) {
  const found = [];
  for (let time = 0; time < 3; time += 1) {
    await part.refresh();
    found.push(part.root.querySelectorAll('tbody tr').length);
  }
  return found;
}
import(new URL('ui/parts.js', document.baseURI)).then(async ({itemsPart, subscribersPart}) => {
  const subscribers = subscribersPart('twins', {});
  const found = {surveys: await rows(itemsPart('twins', {})), subscribers: await rows(subscribers)};
  window.fetch = ask;
  done([found, subscribers.root.querySelector('.more:not([hidden])')?.textContent]);
}).catch((fault) => done([String(fault), null]));
"""
"""Shows lists three times, the last time with a row less: items with the same id, subscriptions of the same JID."""


async def test_owner(service: Service) -> None:
    """R5: an owner does all that the page offers; a log looks like one; nothing is cut off or inaccessible."""
    with RestFrontend(service.redis.url) as frontend, client(frontend) as http, chromium() as browser:
        await asyncio.to_thread(_all, browser, frontend, http)


def _all(browser: Browser, frontend: RestFrontend, http: httpx.Client) -> None:
    mark = secrets.token_hex(3)
    name = f"{mark}-books"
    http.put(f"/queues/{mark}/{LONG_NAME}", json={"options": {"pubsub#title": "Letters that customers wait for"}})
    http.put(f"/queues/{mark}", json={"options": {"pubsub#node_type": "collection", "pubsub#title": "A shop"}})
    browser.wide(1280)
    sign_in(browser, frontend, ALICE)
    _creates(browser, name, f"{mark}-log")
    _configures(browser, http, name)
    _schedules(browser, name)
    _publishes(browser, name)
    _finds(browser, http, name)
    _waits(browser, http, f"{mark}-flow")
    _go(browser, name, "items")
    _deletes_an_item(browser, http, name)
    _purges(browser, http, name)
    _hour(browser, frontend, name)
    _cancels(browser, http, name)
    _log(browser, http, f"{mark}-log")
    _places(browser, mark, name)
    _ends(browser, http, name)
    _dots(browser, http)
    _others(browser, frontend, http, f"{mark}-log")
    assert browser.complaints() == []


def _type(browser: Browser, fields: dict[str, str]) -> None:
    for name, text in fields.items():
        browser.fill(f"dialog [name={name}]", text)


def _creates(browser: Browser, name: str, log: str) -> None:
    """Create a queue and a log; an existing name is refused beside its field."""
    browser.click(".create")
    judge(browser, "create")
    _type(browser, {"name": name, "title": "Books to send"})
    browser.click("dialog [type=submit]")
    browser.says(name, "h1")
    browser.says(f"{name} is made", "#said")
    browser.says("Books to send", ".about")
    # The message disappears with its page.
    browser.click(".crumbs a")
    browser.says("Queues", "h1")
    assert browser.text("#said") == ""
    browser.click(".create")
    _type(browser, {"name": name})
    browser.click("dialog [type=submit]")
    browser.says(f"There is a {name} already", "dialog [role=alert]")
    _type(browser, {"name": log})
    browser.click("dialog [value=log]")
    browser.click("dialog [type=submit]")
    browser.says(f"{log} is made", "#said")


def _go(browser: Browser, name: str, part: str = "") -> None:
    """Open a queue by its row, and a part of it by its tab."""
    browser.click(".bar nav a")
    browser.click(f'tr[data-key="{name}"] th a')
    browser.says(name, "h1")
    if part:
        browser.click(f".tabs [data-part={part}]")


def _configures(browser: Browser, http: httpx.Client, name: str) -> None:
    """Read and change settings; a wrong value is reported, and typed text stays meanwhile."""
    _go(browser, name, "settings")
    assert browser.find(LOCK_SECONDS).get_attribute("value") == "60"
    assert browser.text(".settings") and "stanzaq#destinations" not in browser.text(".settings")
    browser.fill(LOCK_SECONDS, "0")
    browser.click(".settings [type=submit]")
    browser.says("stanzaq#lock_seconds", ".settings [role=alert]")
    judge(browser, "settings")
    browser.fill(LOCK_SECONDS, "45")
    browser.click("[name='pubsub#notify_config']")
    policies = {
        "retry_delay": "0.5", "retry_backoff": "2", "retry_limit": "60", "retry_jitter": "0.1",
        "rate": "5000/m", "rate_burst": "200", "max_in_flight": "50", "rate_by_key": "100/s", "max_in_flight_by_key": "9",
        "publish_rate": "500/s", "fair_weights": "gold=3", "result_seconds": "60",
    }  # fmt: skip
    for option, value in policies.items():
        browser.fill(f"[name='stanzaq#{option}']", value)
    browser.click("[name='stanzaq#fair'] option:nth-child(2)")
    browser.click(".settings [type=submit]")
    browser.says("15 settings", "#said")
    options = http.get(f"/queues/{name}", headers={"Accept": "application/json"}).json()["options"]
    assert (options["stanzaq#lock_seconds"], options["pubsub#notify_config"]) == ("45", "1")
    assert {option: options[f"stanzaq#{option}"] for option in policies} == policies
    assert options["stanzaq#fair"] == "key"


def _schedules(browser: Browser, name: str) -> None:
    """Make, pause and delete a schedule; an error is shown in its form."""
    browser.click(".tabs [data-part=schedules]")
    browser.says("There are no schedules", ".empty")
    browser.click(".add")
    _type(browser, {"id": "report", "cron": "0 9 * * 8", "text": "{}"})
    browser.click("dialog [type=submit]")
    browser.says("cron cannot be read", "dialog [role=alert]")
    judge(browser, "schedule")
    _type(browser, {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"})
    browser.click("dialog [type=submit]")
    browser.says("report is active", "#said")
    judge(browser, "schedules")
    browser.click('tr[data-key="report"] td.do button')
    browser.says("report is paused", "#said")
    browser.click('tr[data-key="report"] td.do button:last-child')
    browser.click("dialog [type=submit]")
    browser.says("report is deleted", "#said")


def _publishes(browser: Browser, name: str) -> None:
    """Publish an item with all options; an error is shown beside its field."""
    browser.click(".tabs [data-part=items]")
    browser.click(".publish")
    browser.click("dialog summary")
    _type(browser, {"text": '{"title": "Emma"}', "guid": "emma", "headers": "no colon"})
    browser.click("dialog [type=submit]")
    browser.says("is no header", "dialog [role=alert]")
    judge(browser, "publish")
    _type(
        browser,
        {"headers": "colour: red\nauthor: Jane Austen", "group_key": "austen", "delay": "3000", "priority": "7"},
    )
    browser.click("dialog [type=submit]")
    browser.says("emma is published", "#said")
    for item in ("persuasion", "sanditon"):
        browser.click(".publish")
        browser.click("dialog summary")
        _type(browser, {"text": "x", "guid": item, "content_type": "text/plain"})
        browser.click("dialog [type=submit]")
        browser.says(f"{item} is published", "#said")
    browser.says("sanditon", "tbody")


def _finds(browser: Browser, http: httpx.Client, name: str) -> None:
    """Find an item by its id, with headers, group key, due time, and the end of its lock if it has one."""
    browser.fill("[role=search] input", "emma")
    browser.click("[role=search] [type=submit]")
    browser.until(lambda: "persuasion" not in browser.text("tbody"), "one item")
    assert "delayed until" in browser.text("tr[data-key='emma 0'] .state") and "key austen" in browser.text(
        "tr[data-key='emma 0'] th"
    )
    browser.click("tr[data-key='emma 0'] .link")
    browser.says('{"title": "Emma"}', "dialog pre")
    shown = browser.text("dialog")
    for words in ("Group key austen", "Due ", "colour red", "author Jane Austen", "Priority 7", "application/json"):
        assert words in shown, words
    judge(browser, "item")
    browser.click("dialog .close")
    browser.click(".all")
    browser.says("persuasion", "tbody")
    browser.fill("[role=search] input", "nowhere")
    browser.click("[role=search] [type=submit]")
    browser.says("has no item nowhere", ".empty")
    browser.click(".all")
    lease = http.post("/subscriptions", json={"destinations": [name], "prefetch": 1}).json()["href"]
    (held,) = http.get(f"{lease}?wait=10", headers={"Accept": "application/json"}).json()["messages"]
    browser.says("locked until", f"tr[data-key='{held['id']} 0'] .state")
    browser.click(f"tr[data-key='{held['id']} 0'] .link")
    browser.says("Lock ends", "dialog")
    browser.click("dialog .close")
    assert http.post(held["renew"], json={"progress": 0.4, "note": "page 2 of 5"}).status_code == 200
    browser.fill("[role=search] input", held["id"])
    browser.click("[role=search] [type=submit]")
    browser.until(lambda: "emma" not in browser.text("tbody"), "one item, read again")
    browser.click(f"tr[data-key='{held['id']} 0'] .link")
    browser.says("40 %, page 2 of 5", "dialog")
    browser.click("dialog .close")
    browser.click(".all")
    browser.says("emma", "tbody")
    http.delete(held["href"])
    http.delete(lease)
    browser.until(lambda: held["id"] not in browser.text("tbody"), "it is done")


def _waits(browser: Browser, http: httpx.Client, name: str) -> None:
    """See what waits for what, in layers that a keyboard leads through, and go from one item to another."""
    http.put(f"/queues/{name}")
    for item, after in (("cat", ""), ("dog", ""), ("album", "cat dog"), ("mail", "album")):
        headers = {"Message-Keep": "true"} | ({"Message-After": after} if after else {})
        assert http.post(f"/queues/{name}?guid={item}", content=b"x", headers=headers).status_code == 200
    lease = http.post("/subscriptions", json={"destinations": [name], "prefetch": 1}).json()["href"]
    (held,) = http.get(f"{lease}?wait=10", headers={"Accept": "application/json"}).json()["messages"]
    http.delete(held["href"])
    browser.click(".bar nav a")
    _go(browser, name, "items")
    browser.click("tr[data-key='album 0'] .link")
    browser.says("waits for album", "dialog .waits")
    layers = [browser.text(f"dialog .waits ol > li:nth-child({layer})") for layer in (1, 2, 3)]
    assert layers == [
        "cat acknowledged dog waiting",
        "album dependent , waits for cat, dog",
        "mail dependent , waits for album",
    ]
    assert len(browser.driver.find_elements("css selector", "dialog .waits path")) == 3
    judge(browser, "flow")
    browser.tab_to("dog")
    browser.press(Keys.ENTER)
    browser.says("dog", "dialog h2")
    browser.click("dialog .close")
    http.delete(lease)
    http.delete(f"/queues/{name}")


def _messages(http: httpx.Client, name: str) -> list[str]:
    found = http.get(f"/surveys/{name}").json()["items"]
    return [each["id"] for each in found]


def _deletes_an_item(browser: Browser, http: httpx.Client, name: str) -> None:
    """Delete an item: the page asks first, and a refusal keeps it."""
    for answer, left in ((".close", True), ("[type=submit]", False)):
        browser.click("tr[data-key='emma 0'] .do button:not([hidden])")
        browser.says("Delete emma?", "dialog")
        if left:
            judge(browser, "confirm")
        browser.click(f"dialog {answer}")
        browser.until(lambda: not browser.text("dialog"), "the question is gone")
        assert ("emma" in _messages(http, name)) is left
    browser.says("emma is deleted", "#said")


def _purges(browser: Browser, http: httpx.Client, name: str) -> None:
    assert len(_messages(http, name)) == 1
    browser.click(".purge")
    browser.says("1 waiting item will be gone", "dialog")
    browser.click("dialog [type=submit]")
    browser.says(f"{name} is purged", "#said")
    assert _messages(http, name) == []
    browser.says("Nothing is in this queue")


def _hour(browser: Browser, frontend: RestFrontend, name: str) -> None:
    """See the last hour, also after a reload: three published, one worked on and two deleted."""
    for _ in range(2):
        browser.click(".tabs [data-part=hour]")
        browser.says("Came in 3 Done 1 Tries 1", ".part .figures")
        line = browser.attribute(".part .flow .line", "points")
        assert len({point.split(",")[1] for point in line.split()}) > 1, "it is drawn"
        browser.driver.refresh()
        sign_in(browser, frontend, ALICE)
        _go(browser, name)
    browser.click(".tabs [data-part=hour]")
    browser.says("Came in 3", ".part .figures")
    judge(browser, "hour")


def _cancels(browser: Browser, http: httpx.Client, name: str) -> None:
    """Cancel an item that somebody works on: its token is void."""
    _go(browser, name, "items")
    lease = http.post("/subscriptions", json={"destinations": [name], "prefetch": 1}).json()["href"]
    assert http.post(f"/queues/{name}", params={"guid": "wrong"}, content=b"x").status_code == 200
    (held,) = http.get(f"{lease}?wait=10", headers={"Accept": "application/json"}).json()["messages"]
    browser.says("locked until", "tr[data-key='wrong 0'] .state")
    browser.click("tr[data-key='wrong 0'] .do button:nth-child(2)")
    browser.says("Cancel wrong?", "dialog")
    browser.click("dialog [type=submit]")
    browser.says("wrong is cancelled", "#said")
    assert http.delete(held["href"]).status_code in {404, 409, 410}
    http.delete(lease)


def _log(browser: Browser, http: httpx.Client, log: str) -> None:
    """Check that a log is shown as such, without a queue's figures."""
    http.post(f"/queues/{log}", content=b"x", headers={"Content-Type": "text/plain", "Group-Key": "emma"})
    _go(browser, log)
    browser.says("every reader gets every entry", ".about")
    browser.says("Entries 1", ".figures")
    browser.says("emma", "tbody")
    figures, tabs = browser.text(".figures"), browser.text(".tabs")
    assert "Waiting" not in figures and "Dead letters" not in tabs and browser.text(".head .badge") == "log"
    judge(browser, "log")


def _places(browser: Browser, collection: str, name: str) -> None:
    """Every other page fits too."""
    browser.click(".bar nav a")
    browser.says("log", ".count")
    judge(browser, "queues")
    _go(browser, collection)
    browser.says("customers", "tbody")
    judge(browser, "collection")
    _go(browser, f"{collection}/{LONG_NAME}")
    judge(browser, "long-name")
    _go(browser, name, "subscribers")
    judge(browser, "subscribers")
    rows, more = browser.driver.execute_async_script(_LISTS)
    assert rows == {"surveys": [2, 2, 1], "subscribers": [2, 2, 1]} and more == "There are more than these."


def _ends(browser: Browser, http: httpx.Client, name: str) -> None:
    browser.click(".delete")
    browser.says(f"Delete {name}?", "dialog")
    browser.click("dialog [type=submit]")
    browser.says(f"{name} is deleted", "#said")
    browser.says("Queues", "h1")
    assert http.get(f"/queues/{name}").status_code == 404


def _dots(browser: Browser, http: httpx.Client) -> None:
    """Use a queue whose name a browser would take for a step in the tree."""
    assert http.put("/queues/=..").status_code == 201
    _go(browser, "..", "subscribers")
    browser.says("Nobody is subscribed")
    assert http.delete("/queues/=..").status_code == 200


def _others(browser: Browser, frontend: RestFrontend, http: httpx.Client, log: str) -> None:
    """As another user, check that hidden parts are named, and that the page does not change while one reads it."""
    http.patch(f"/queues/{log}", json={"options": {"pubsub#access_model": "whitelist"}})
    browser.driver.refresh()
    sign_in(browser, frontend, BOB)
    for part, words in (
        ("settings", "Only the queue's owners"),
        ("access", "Only the queue's owners and"),
        ("hour", "admits only accounts on its list"),
        ("items", "owners"),
    ):
        browser.driver.execute_script(f"location.hash = '#/queue/{log}/{part}'")
        browser.says(words, ".part .empty:not([hidden])")
    browser.fill("[role=search] input", "typed")
    seen = browser.text("#connection")
    browser.until(lambda: browser.text("#connection") != seen, "it looked anew")
    assert browser.find("[role=search] input").get_attribute("value") == "typed"
    assert not browser.find(".actions").is_displayed()

"""A headless Chromium, used by keyboard and clicks. Knows WebDriver; must not know the page."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import PATIENCE_SECONDS

ROOT: Final = Path(__file__).resolve().parents[2]
AXE: Final = ROOT / ".venv" / "tools" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES: Final = ROOT / "build"
_TABS: Final = 60

_SPOKEN: Final = (
    "const e = document.activeElement; return e.getAttribute('aria-label') || e.textContent || e.name || '';"
)
_NOT_YET: Final = (
    StaleElementReferenceException,
    ElementNotInteractableException,
    ElementClickInterceptedException,
)
"""The page is replacing the element, has yet to show it, or still has a dialog before it."""

_LISTEN: Final = """
window.received = false;
// The driver chooses an option by a click on its list.
const clicked = arguments[0].closest('select') ?? arguments[0];
clicked.addEventListener('click', () => { window.received = true; }, {capture: true, once: true});
"""
_AXE: Final = """
const [rules, done] = arguments;
axe.run(document, {resultTypes: ['violations'], ...rules.length && {runOnly: rules}}).then(
  found => done(found.violations.map(each => each.id + ': ' + each.nodes.map(node => node.html).join(' '))),
  fault => done([String(fault)]));
"""


class Browser:
    """One window."""

    def __init__(self, driver: Chrome) -> None:
        """Drive this one."""
        self.driver = driver

    def find(self, selector: str) -> WebElement:
        """Return an element, waiting for it."""
        self.until(lambda: bool(self.driver.find_elements(By.CSS_SELECTOR, selector)), selector)
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click an element until it receives the click: the page may move it between the driver's look and its click."""

        def received() -> bool:
            element = self.find(selector)
            self.driver.execute_script(_LISTEN, element)
            element.click()
            return bool(self.driver.execute_script("return window.received;"))

        self._do(received, selector)

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        self._do(lambda: self.find(selector).clear(), selector)
        self._do(lambda: self.find(selector).send_keys(text), selector)

    def _do(self, work: Callable[[], bool | None], what: str) -> None:
        """Repeat `work` until the page is ready for it and it does not return False."""

        def done() -> bool:
            try:
                return work() is not False
            except _NOT_YET:
                return False

        self.until(done, what)

    def text(self, selector: str) -> str:
        """Return an element's present text, in one line; nothing if there is no such element."""
        script = (
            "const e = document.querySelector(arguments[0]); return e ? e.innerText.replace(/\\s+/g, ' ').trim() : '';"
        )
        return str(self.driver.execute_script(script, selector))

    def attribute(self, selector: str, name: str) -> str:
        """Return an attribute's present value."""
        script = "return document.querySelector(arguments[0])?.getAttribute(arguments[1]) ?? '';"
        return str(self.driver.execute_script(script, selector, name))

    def says(self, words: str, selector: str = "main") -> None:
        """Wait until an element has this text."""
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}")

    def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait until this is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what}:\n{self.text('body')}\n{self.complaints()}"
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, words: str) -> None:
        """Press Tab until the focus is on the element of this name, and check that the focus is visible."""
        for _ in range(_TABS):
            self.press(Keys.TAB)
            if " ".join(str(self.driver.execute_script(_SPOKEN)).split()) == words:
                outline = "return getComputedStyle(document.activeElement).outlineStyle;"
                assert self.driver.execute_script(outline) != "none", f"the focus at {words} cannot be seen"
                return
        msg = f"no key leads to {words!r}"
        raise AssertionError(msg)

    def shades(self, scheme: str) -> None:
        """Choose the dark or the light colour scheme."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def wide(self, pixels: int, high: int = 760) -> None:
        """Set the width of the screen."""
        metrics = {"width": pixels, "height": high, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def picture(self, name: str) -> None:
        """Save a screenshot, if somebody has made the directory for it."""
        if PICTURES.is_dir():
            self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def barriers(self, *rules: str) -> list[str]:
        """Return the accessibility problems that axe finds, by these of its rules or by all."""
        if not self.driver.execute_script("return typeof axe === 'object';"):
            self.driver.execute_script(AXE.read_text())
        return list(self.driver.execute_async_script(_AXE, rules))

    def complaints(self) -> list[str]:
        """Return the browser's errors since the last call; expected refusals are excluded by their status."""
        log = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has not typed it
        return [each["message"] for each in log if "status of 4" not in each["message"]]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Provide a window of Debian's Chromium."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # As root it refuses to run with its sandbox; /dev/shm is small in containers; all pages are our own.
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    # Forms of others may ask for fonts from afar.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))
    try:
        driver.set_script_timeout(PATIENCE_SECONDS)
        yield Browser(driver)
    finally:
        driver.quit()

"""The page at `/ui` in a browser: sign-in, and checks for every page. Must not know what a journey does there."""

from typing import Final

from selenium.webdriver.common.keys import Keys

from tests.doors.frontend import PASSWORD
from tests.doors.rest.served import RestFrontend
from tests.journeys.browser import Browser

WIDTHS: Final = (1280, 400)
"""The widths of a screen and of a phone: after both are checked, the test goes on with the phone's."""
SCHEMES: Final = {"light": (), "dark": ("color-contrast",)}
"""Each with the rules of axe that are checked in it: in the second one only the colours are others."""

_LEAST_COLUMN: Final = 48
"""Pixels: in a narrower column words are cut into letters."""

_FAULTS: Final = """
const [least] = arguments, faults = [], seen = (each) => each.getClientRects().length > 0;
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) faults.push(`sideways: ${root.scrollWidth} of ${root.clientWidth}`);
for (const each of document.querySelectorAll('dialog[open]'))
  if (each.scrollWidth > each.clientWidth) faults.push(`a dialog sideways: ${each.scrollWidth} of ${each.clientWidth}`);
for (const each of document.querySelectorAll('main td, main th, main dd, dialog dd'))
  if (seen(each) && each.innerText.length > 8 && each.clientWidth < least && !each.closest('.mute'))
    faults.push(`letter by letter: ${each.innerText}`);
for (const each of document.querySelectorAll('.figures')) {
  const columns = getComputedStyle(each).gridTemplateColumns.split(' ').length;
  if (seen(each) && each.children.length % columns) faults.push(`holes: ${each.children.length} figures in ${columns} columns`);
}
return faults;
"""


def sign_in(browser: Browser, frontend: RestFrontend, jid: str) -> None:
    """Open the page and sign in."""
    browser.driver.get(f"{frontend.url}/ui")
    browser.find("form.door")
    browser.press(jid, Keys.TAB, PASSWORD, Keys.ENTER)
    browser.find(".figures")


def judge(browser: Browser, what: str) -> None:
    """Check that the shown page fits and is usable, on a phone and on a screen, in light and in dark."""
    for width in WIDTHS:
        browser.wide(width)
        faults = browser.driver.execute_script(_FAULTS, _LEAST_COLUMN)
        assert faults == [], f"{what} at {width} px: {faults}"
        for scheme, rules in SCHEMES.items():
            browser.shades(scheme)
            assert browser.barriers(*rules) == [], f"{what} at {width} px in the {scheme}"
            browser.picture(f"ui-{what}-{width}-{scheme}")

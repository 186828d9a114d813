"""The page signs people in at a real OpenID provider, npm's `oidc-provider`: the code flow with PKCE, in a real browser."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.results import Declared
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.process import Process, Server, free_port
from frontends.tools.servers.redis import RedisServer
from tests.doors.rest.served import RestFrontend
from tests.journeys.browser import ROOT, Browser, chromium

QUEUE: Final = "payments"
MODULES: Final = ROOT / ".venv" / "tools" / "node_modules"
JULIET: Final = "juliet@example.org"


class Provider(Server):
    """The provider, for a page."""

    _ready_seconds = 30.0

    def __init__(self, page_port: int) -> None:
        """Lead back to a page."""
        super().__init__(None, "provider")
        self.port = free_port()
        self._page = f"http://127.0.0.1:{page_port}/ui"
        self.url = f"http://127.0.0.1:{self.port}"

    def issue(self, *roles: str, closed: bool = False) -> None:
        """Let the next tokens have these roles, or let there be none."""
        (self.directory / "next.json").write_text(json.dumps({"roles": roles, "seconds": 3, "closed": closed}))

    def _launch(self) -> Process:
        self.issue()
        script = Path(__file__).with_name("oidc_provider.mjs")
        words = ["node", str(script), str(MODULES), str(self.port), self._page, str(self.directory / "next.json")]
        return Process(words, directory=self.directory, log=self.directory / "provider.log", environment=None)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/.well-known/openid-configuration").is_success
        except httpx.TransportError:
            return False


@contextmanager
def serving(redis: RedisServer) -> Iterator[tuple[RestFrontend, Provider]]:
    """Serve the page, and its provider."""
    frontend = RestFrontend(redis.url)
    with Provider(frontend.port) as provider:
        frontend._settings |= {
            "DEFAULT_ACCESS_MODEL": "whitelist",
            "JWT_KEYS": f"{provider.url}/jwks",
            "JWT_ISSUER": provider.url,
            "JWT_AUDIENCE": "stanzaq",
            "JWT_ROLES": "look viewer\nrun operator\n",
            "PAGE_CLIENT": "stanzaq-page",
        }
        with frontend:
            yield frontend, provider


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server with a closed queue of somebody else."""

    async def make(url: str) -> None:
        core = RedisCore(CommandSettings(redis_url=url), None)
        assert await core.ask(Declare(QUEUE, Jid("owner@example.net"), {})) == Declared(QUEUE)
        await core.stop()

    with RedisServer() as server:
        asyncio.run(make(server.url))
        yield server


def test_sign_on(redis: RedisServer) -> None:
    """People sign in at the provider; their role changes with the next token; it expires, they come again, and sign out."""
    with serving(redis) as (frontend, provider), chromium() as browser:
        _signs_in(browser, frontend, provider)
        _gets_a_role(browser, provider)
        _expires(browser, provider)
        _is_forgotten(browser)
        _signs_out(browser, frontend, provider)
        _refuses_foreign_answers(browser, frontend)


def _signs_in(browser: Browser, frontend: RestFrontend, provider: Provider) -> None:
    provider.issue("look")
    browser.driver.get(f"{frontend.url}/ui#/queue/{QUEUE}")
    browser.says(f"Sign in at 127.0.0.1:{provider.port}", ".sign-on")
    assert browser.barriers() == []
    browser.find(".sign-on").click()
    _logs_in(browser)
    browser.says(QUEUE, "h1")
    browser.says("live", "#connection")
    # Where the user was, without the code, and nothing is left in the browser's storage.
    assert browser.driver.current_url == f"{frontend.url}/ui#/queue/{QUEUE}"
    assert browser.driver.execute_script("return sessionStorage.length + localStorage.length") == 0
    browser.says("you are viewer", ".about")
    assert not browser.find(".owners").is_displayed()


def _logs_in(browser: Browser) -> None:
    browser.fill("input[name=login]", JULIET)
    browser.fill("input[name=password]", "any")
    # A click that leads to another page, which nobody could see received.
    browser.find("button[type=submit]").click()
    _consents(browser)


def _consents(browser: Browser) -> None:
    browser.says("Continue", "button[type=submit]")
    browser.find("button[type=submit]").click()


def _gets_a_role(browser: Browser, provider: Provider) -> None:
    """Check that a renewed token has the role that the account has now."""
    provider.issue("run")
    browser.says("you are operator", ".about")
    browser.click(".states button[data-state=paused]")
    browser.says("paused", ".badge")


def _expires(browser: Browser, provider: Provider) -> None:
    """Check that a token that nobody renews expires, and that the user comes again without a password."""
    provider.issue(closed=True)
    browser.says("the token is refused: Signature has expired", ".why")
    provider.issue("look")
    browser.find(".sign-on").click()
    # The provider knows the user, and asks for no password.
    _consents(browser)
    browser.says("you are viewer", ".about")


_FORGET_WHILE_RENEWING: Final = """
const [module, done] = arguments, real = window.fetch;
import(module).then(({forget, signedOn}) => {
  window.fetch = async (url, more) => {
    const answer = await real(url, more);
    if (String(url).endsWith("/token")) {
      window.fetch = real;
      forget();
      setTimeout(() => done(signedOn()), 100);
    }
    return answer;
  };
});
"""


def _is_forgotten(browser: Browser) -> None:
    """Check that a renewal that is under way signs nobody in again who has left."""
    module = browser.driver.execute_script("return new URL('ui/sign-on.js', document.baseURI).href")
    assert browser.driver.execute_async_script(_FORGET_WHILE_RENEWING, module) is False
    browser.find(".sign-on").click()
    _consents(browser)
    browser.says("you are viewer", ".about")


def _signs_out(browser: Browser, frontend: RestFrontend, provider: Provider) -> None:
    """Check that signing out ends the session at the provider too."""
    browser.find("#user").click()
    browser.find("button[name=logout]").click()
    browser.find(".sign-on")
    assert browser.driver.current_url.startswith(f"{frontend.url}/ui")
    browser.find(".sign-on").click()
    browser.find("input[name=login]")
    assert browser.driver.current_url.startswith(provider.url)


def _refuses_foreign_answers(browser: Browser, frontend: RestFrontend) -> None:
    """Check that an answer that this page did not ask for signs nobody in, and that a refusal is told."""
    for said, told in (
        ("state=made-up&code=theirs", "the answer belongs to another sign-on"),
        ("state=made-up&error=access_denied", "the answer belongs to another sign-on"),
    ):
        browser.driver.get("about:blank")
        browser.driver.get(f"{frontend.url}/ui#{said}")
        browser.says(f"Nobody could sign you in: {told}.", ".why")

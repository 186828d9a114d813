"""Requests to a service over HTTP, which are repeated until they are answered, and its streams of events.

aiohttp keeps the connections. Must not know what a request is about.
"""

import asyncio
import json
import logging
import ssl
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from yarl import URL

from stanzaq.errors import StanzaqError
from stanzaq.http import messages
from stanzaq.http.messages import Refusal
from stanzaq.transport.account import HttpAccount
from stanzaq.transport.backoff import Backoff
from stanzaq.transport.interface import Content
from stanzaq.transport.program import program

log = logging.getLogger("stanzaq")

_ANSWER_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 20.0
"""The longest silence of a stream of events; the service breaks it every five seconds."""

_AT_ONCE: Final = 20
"""The most requests at once besides the streams: a service has a limited number of connections for all clients."""

_REFUSED: Final = 300
"""Redirections count as refusals: a request with a password goes nowhere else."""


class LostError(Exception):
    """No answer came, or only one that says to try again later; nobody need hear of it if a token was `renewed`."""

    def __init__(self, reason: str, seconds: float = 0.0, *, renewed: bool = False) -> None:
        """Keep the reason, and for how long the service wants to be left alone."""
        super().__init__(reason)
        self.seconds = seconds
        self.renewed = renewed


class HttpConnection:
    """One account's connections to a service; requests open them as needed."""

    def __init__(self, account: HttpAccount) -> None:
        """Connect with the first request."""
        self._account = account
        self._session: aiohttp.ClientSession | None = None
        self._authorization: str | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._is_lost = False

    async def ask(  # noqa: PLR0913, PLR0917  (what a request is)
        self,
        what: str,
        method: str,
        path: str,
        body: object = None,
        inner: Callable[[Any], Refusal | None] = lambda _: None,
        headers: Mapping[str, str] | None = None,
        *,
        once: bool = False,
    ) -> Any:  # noqa: ANN401  (any JSON)
        """Send a request until it is answered, and return the JSON of the answer; raises StanzaqError if it cannot do `what`.

        `inner` finds a refusal in an answer of success. One that is sent `once` returns None at the time of the next attempt.
        """
        backoff = Backoff(0.2, 10.0)
        waiting = False
        while True:
            try:
                async with self._room:
                    found = await self._send_once(method, path, body, headers or {})
            except LostError as lost:
                await self.pause(lost, backoff)
            else:
                told = found if isinstance(found, Refusal) else inner(found)
                if told is None or not told.passing:
                    self._note_answer()
                if told is None:
                    return found
                if not told.passing:
                    raise told.fault(what)
                quiet = waiting or told.condition == messages.EXPIRED
                log.log(logging.DEBUG if quiet else logging.WARNING, "%s; trying again", told.fault(what))
                waiting = True
                await asyncio.sleep(max(told.seconds, backoff.delay()))
            if once:
                return None

    async def events(self, what: str, path: str, backoff: Backoff) -> AsyncGenerator[tuple[str, Any], None]:
        """Receive events, each with its name; raises StanzaqError if the service refuses, LostError when the stream is over.

        Whatever comes, be it a comment, resets `backoff`: a stream that was quiet did no worse than a busy one.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
        parser = messages.Events()
        try:
            async with self._request("GET", path, headers={"Accept": "text/event-stream"}, timeout=timeout) as answer:
                if answer.status >= _REFUSED:
                    told = await self._read_refusal(answer)
                    if told.passing:
                        raise LostError(str(told.fault(what)), told.seconds, renewed=told.condition == messages.EXPIRED)
                    raise told.fault(what)
                self._note_answer()
                async for data in answer.content.iter_any():
                    backoff.reset()
                    for event in parser.feed(data):
                        yield event
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _translate_fault(error) from error
        reason = "the stream ended"
        raise LostError(reason)

    async def pause(self, lost: LostError, backoff: Backoff) -> None:
        """Wait before the next attempt; the first loss is a warning, unless a token has only been renewed."""
        delay = max(lost.seconds, backoff.delay())
        level = logging.DEBUG if self._is_lost or lost.renewed else logging.WARNING
        self._is_lost = self._is_lost or not lost.renewed
        log.log(level, "no connection to %s: %s; trying again until it answers", self._account.origin, lost)
        await asyncio.sleep(delay)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _send_once(self, method: str, path: str, body: object, more: Mapping[str, str]) -> Any:  # noqa: ANN401
        """Send a request once; returns the JSON of its answer, or a refusal. Raises LostError, or StanzaqError for good."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS)
        sent = body if isinstance(body, Content) else Content(json.dumps(body).encode(), "application/json")
        data = None if body is None else sent.body
        headers = {"Accept": "application/json", **more} | ({} if data is None else {"Content-Type": sent.type})
        try:
            async with self._request(method, path, headers=headers, data=data, timeout=timeout) as answer:
                if answer.status >= _REFUSED:
                    return await self._read_refusal(answer)
                # No content is nothing to read.
                text = b"{}" if answer.status == HTTPStatus.NO_CONTENT else await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _translate_fault(error) from error
        try:
            said = json.loads(text)
        except ValueError:
            msg = f"{self._account.origin} is no stanzaq service: it answers {answer.status} without JSON"
            raise StanzaqError(msg) from None
        return said

    def _request(self, method: str, path: str, *, headers: dict[str, str], **more: Any) -> Any:  # noqa: ANN401  (aiohttp's)
        if self._session is None:
            # Streams are as many as nodes, and `_room` limits the rest.
            tls = ssl.create_default_context() if self._account.origin.startswith("https:") else True
            connector = aiohttp.TCPConnector(limit=0, ssl=tls)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers={"User-Agent": program()}
            )
        if self._authorization is None:
            self._authorization = self._credentials()
        if self._authorization:
            headers = {**headers, "Authorization": self._authorization}
        url = URL(self._account.origin + path, encoded=True)
        return self._session.request(method, url, headers=headers, allow_redirects=False, **more)

    def _credentials(self) -> str:
        """Ask the account; raises LostError if its function cannot tell now, as while an identity provider is away."""
        try:
            return self._account.authorization()
        except StanzaqError:
            raise
        except Exception as error:
            reason = f"there is no password: {error!r}"
            raise LostError(reason) from error

    async def _read_refusal(self, answer: aiohttp.ClientResponse) -> Refusal:
        """Read a refusal; raises StanzaqError if the credentials are refused, and newer ones would be the same."""
        if answer.status == messages.UNAUTHORIZED:
            used = answer.request_info.headers.get("Authorization", "")
            self._authorization = self._credentials()
            if self._authorization == used:
                who = self._account.user or ("the token" if used else "requests without a user")
                msg = f"the service refuses {who} (not-authorized): correct the user or the password"
                raise StanzaqError(msg, "not-authorized")
            # A token that has expired; the next attempt has the new one.
            return Refusal(messages.EXPIRED, "", passing=True)
        return messages.refusal(answer.status, await answer.read(), _seconds(answer.headers.get("Retry-After", "")))

    def _note_answer(self) -> None:
        if self._is_lost:
            self._is_lost = False
            log.info("connected to %s again", self._account.origin)


def _translate_fault(error: Exception) -> Exception:
    """Return the exception for a request without an answer; StanzaqError if no further attempt can succeed."""
    if isinstance(error, aiohttp.ClientConnectorError):
        # Frames of aiohttp refer to the request, and to the fault that they raise.
        traceback.clear_frames(error.__traceback__)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", error.certificate_error)
        told = f"the service's certificate is not trusted ({why}): give the file of its authority in SSL_CERT_FILE"
        return StanzaqError(told)
    if isinstance(error, aiohttp.ClientConnectorError):
        return LostError(f"{error.strerror or error.os_error}; does a frontend for HTTP run there?")
    return LostError(str(error) or type(error).__name__)


def _seconds(text: str) -> float:
    """Read `Retry-After` in seconds; dates, which this service does not send, are ignored."""
    return float(text) if text.isascii() and text.isdigit() else 0.0

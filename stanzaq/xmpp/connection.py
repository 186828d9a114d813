"""One account's connection to its XMPP server: it reconnects by itself, and repeats requests until they are answered.

slixmpp connects and authenticates; stanzas bypass its stanza classes as text and elements. Must not know what a stanza contains
beyond its addresses.
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from slixmpp import ClientXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from stanzaq.errors import StanzaqError
from stanzaq.transport.account import Account
from stanzaq.transport.backoff import Backoff
from stanzaq.xmpp.stanzas import AWAY, CLIENT, UNSAYABLE, Refusal, describe, refusal

log = logging.getLogger("stanzaq")

_LOGIN_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 15.0
"""Time to wait for an answer before the request is repeated with the same id: the service answers it once."""

_LEAVE_SECONDS: Final = 2.0

_STEADY_SECONDS: Final = 10.0
"""A stream that has lasted so long was no failed attempt."""

_UNSENT_BYTES: Final = 16_384

_SURE_BYTES: Final = 10_000
"""Every XMPP server takes stanzas of this size (RFC 6120 §13.12)."""


class Listener(Protocol):
    """The events that a connection reports."""

    async def connected(self) -> None:
        """Set up a new stream; raises StanzaqError if the service refuses."""

    def message(self, message: Element) -> None:
        """Receive a message from the service."""


class XmppConnection:
    """Connects, and reconnects after each loss, until it is closed."""

    def __init__(self, account: Account) -> None:
        """Create a connection that `run` will open."""
        self._account = account
        self._numbers = itertools.count(1)
        self._run = secrets.token_hex(4)
        self._answers: dict[str, asyncio.Future[Element | None]] = {}
        self._sizes: dict[str, int] = {}
        self._stream: ClientXMPP | None = None
        self._unsent: list[str] = []
        self._up = asyncio.Event()
        self._closed = asyncio.Event()
        self._listener: Listener | None = None
        self._heard_at = self._taken_at = 0.0
        self._left = 0
        self.jid = account.jid
        """The full JID; the server may choose another resource than requested."""

    async def run(self, listener: Listener) -> None:
        """Stay connected until `close`; raises StanzaqError if no further attempt can succeed."""
        self._listener = listener
        backoff = Backoff(0.5, 60.0)
        while not self._closed.is_set():
            reason = await self._session(listener, backoff)
            if self._closed.is_set():
                return
            delay = backoff.delay()
            log.warning("no connection as %s: %s; next try in %.1f s", self.jid, reason, delay)
            await asyncio.sleep(delay)

    async def ask(self, what: str, kind: str, payload: str, item: str = "") -> Element:
        """Send a request and return its result; raises StanzaqError on a permanent error, saying that it cannot do `what`.

        A request whose answer is lost is repeated with its id, also over the next stream. If it has one row, about `item`, the
        error of that is the request's.
        """
        name = self._name()
        backoff = Backoff(0.2, 10.0)
        waiting = False
        if found := UNSAYABLE.search(payload):
            # The stream would break, and so would the next one when the request is repeated.
            msg = f"cannot {what}: it has the character {found[0]!r}, which XML cannot contain"
            raise StanzaqError(msg, "not-acceptable")
        while True:
            element = await self._send_once(name, kind, payload)
            if element is None:
                self._drop_silent()
                continue
            told = refusal(element, item)
            if told is None:
                return element
            is_away = told.condition in AWAY or await self._service_is_away(told)
            if not (told.passing or is_away):
                raise told.fault(what)
            remedy = f"; does the service run, and is {self._account.service} its domain (service=)?" if is_away else ""
            log.log(logging.DEBUG if waiting else logging.WARNING, "%s%s; trying again", told.fault(what), remedy)
            waiting = True
            await asyncio.sleep(max(told.seconds, backoff.delay()))

    async def up(self) -> None:
        """Wait until there is a stream."""
        await self._up.wait()

    async def ask_once(self, kind: str, payload: str) -> Element | None:
        """Send a request once and return its answer; None when that is lost."""
        return await self._send_once(self._name(), kind, payload)

    async def _send_once(self, name: str, kind: str, payload: str) -> Element | None:
        """Send a request once and return its answer; None when that is lost."""
        await self._up.wait()
        answer: asyncio.Future[Element | None] = asyncio.get_running_loop().create_future()
        self._answers[name], self._sizes[name] = answer, len(payload.encode())
        try:
            self.send(f"<iq type='{kind}' id='{name}' to={quoteattr(self._account.service)}>{payload}</iq>")
            while not answer.done():
                await asyncio.wait({answer}, timeout=_ANSWER_SECONDS)
                if not answer.done() and not self._is_sending():
                    return None
            return answer.result()
        finally:
            self._answers.pop(name, None)
            self._sizes.pop(name, None)
            if answer.done():
                # Whoever asked may be leaving: then asyncio would complain that nobody took the fault.
                answer.exception()
            # A fault refers to this frame, and the future to the fault.
            del answer

    async def _service_is_away(self, fault: Refusal) -> bool:
        """Return whether the server answered for a service that is not connected, by forbidding to look for it elsewhere.

        The service itself tells everybody what it is (XEP-0030).
        """
        if fault.condition != "forbidden":
            return False
        element = await self._send_once(self._name(), "get", describe())
        about = None if element is None else refusal(element)
        return element is None or (about is not None and about.condition == "forbidden")

    def _name(self) -> str:
        return f"{self._run}-{next(self._numbers)}"

    def _is_sending(self) -> bool:
        """Return whether the server still takes what waits here to be sent: a repeat would only wait behind it."""
        transport, now = None if self._stream is None else self._stream.transport, time.monotonic()
        left = 0 if transport is None else transport.get_write_buffer_size()
        if left != self._left:
            self._left, self._taken_at = left, now
        return left > 0 and now - self._taken_at < 2 * _ANSWER_SECONDS

    def _drop_silent(self) -> None:
        """End a stream that looks open but has been silent for too long."""
        alive_at = max(self._heard_at, self._taken_at)
        if self._stream is not None and time.monotonic() - alive_at > 2 * _ANSWER_SECONDS:
            self._stream.abort()

    def send(self, text: str) -> None:
        """Send a stanza on the current stream; without one it is lost. Stanzas of one turn of the event loop go together."""
        if self._stream is not None:
            if not self._unsent:
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent.append(text)

    def _flush(self) -> None:
        text = "".join(self._unsent)
        self._unsent.clear()
        transport = None if self._stream is None else self._stream.transport
        # The stream may have ended, or broken without having been told: with TLS a write to it raises AttributeError.
        if self._stream is not None and transport is not None and not transport.is_closing():
            self._stream.send_raw(text)

    async def close(self) -> None:
        """Disconnect gracefully."""
        self._closed.set()
        if self._stream is not None:
            await self._stream.disconnect(wait=_LEAVE_SECONDS)

    async def _session(self, listener: Listener, backoff: Backoff) -> str:
        """Connect once, stay until the stream ends, and return the reason."""
        stream = _Stream(self._account, self._hear)
        tasks: list[asyncio.Task[Any]] = []
        steady: asyncio.TimerHandle | None = None
        try:
            reason = await stream.open()
            if reason:
                return reason
            self._stream, self.jid = stream.xmpp, str(stream.xmpp.boundjid.full)
            self._heard_at, self._left = time.monotonic(), 0
            stream.tell_unsent()
            self._up.set()
            steady = asyncio.get_running_loop().call_later(_STEADY_SECONDS, backoff.reset)
            work, ended = asyncio.create_task(listener.connected()), asyncio.create_task(stream.wait_until_ended())
            tasks += work, ended
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                # Raises its exception.
                work.result()
            return await ended
        finally:
            if steady is not None:
                steady.cancel()
            self._up.clear()
            self._stream = None
            for task in tasks:
                task.cancel()
            if stream.is_violated and self._refuse_largest():
                backoff.reset()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(None)
            await stream.drop()

    def _refuse_largest(self) -> bool:
        """Refuse the request at which the server ended the stream: it would end each further one. False if there is none."""
        name = max(self._sizes, key=self._sizes.__getitem__, default="")
        size, answer = self._sizes.get(name, 0), self._answers.get(name)
        if size <= _SURE_BYTES or answer is None or answer.done():
            return False
        msg = (
            f"the XMPP server takes no stanza of {size} bytes: make the payload smaller, or raise the server's"
            " limit (max_stanza_size in ejabberd)"
        )
        answer.set_exception(StanzaqError(msg, "not-acceptable"))
        return True

    def _hear(self, stanza: Element) -> bool:
        """Handle a stanza from the service; False for any other."""
        self._heard_at = time.monotonic()
        if stanza.get("from") != self._account.service:
            return False
        if stanza.tag == f"{{{CLIENT}}}message":
            if self._listener is not None:
                self._listener.message(stanza)
            return True
        answer = self._answers.get(stanza.get("id", ""))
        if answer is None or stanza.get("type") not in {"result", "error"}:
            return False
        if not answer.done():
            answer.set_result(stanza)
        return True


class _Stream:
    """One stream of slixmpp, from its opening to its end."""

    def __init__(self, account: Account, hear: Callable[[Element], bool]) -> None:
        plain = account.tls == "disabled"
        mechanisms = {"feature_mechanisms": {"unencrypted_scram": True, "unencrypted_plain": True}} if plain else {}
        self._account = account
        self._hear = hear
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fault = self._denial = ""
        self._final = False
        self.is_violated = False
        """The server ended the stream with `policy-violation`, as servers do when a stanza is too large."""
        self.xmpp = ClientXMPP(account.jid, account.password(), plugin_config=mechanisms)
        self.xmpp.enable_direct_tls = self.xmpp.enable_starttls = not plain
        self.xmpp.enable_plaintext = plain
        self.xmpp.add_filter("in", self._filter)
        self.xmpp.add_event_handler("connected", self._on_reached)
        self.xmpp.add_event_handler("session_start", self._begin)
        self.xmpp.add_event_handler(
            "disconnected", lambda reason: self._end(str(reason or "the server ended the stream"))
        )
        self.xmpp.add_event_handler("stream_error", self._broken)
        self.xmpp.add_event_handler("connection_failed", lambda reason: self._note(str(reason)))
        self.xmpp.add_event_handler("ssl_invalid_chain", self._on_untrusted)
        self.xmpp.add_event_handler("failed_auth", self._on_denied)
        for name in ("failed_all_auth", "no_auth"):
            self.xmpp.add_event_handler(name, self._on_unauthorised)

    async def open(self) -> str:
        """Connect and log in; returns why that failed, or "". Raises StanzaqError if another attempt would fail too."""
        attempt = self.xmpp.connect(*(self._account.address or (None, None)))
        try:
            async with asyncio.timeout(_LOGIN_SECONDS):
                # A future instead of a result is slixmpp's own next attempt; attempts are made here.
                if await attempt is not None:
                    return self._fault or "the server cannot be reached"
                await asyncio.wait((self._begun, self._ended), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return f"no session after {_LOGIN_SECONDS:g} s"
        return "" if self._begun.done() else await self.wait_until_ended()

    async def wait_until_ended(self) -> str:
        """Wait for the end of the stream and return the reason; raises StanzaqError if the next one would end so too."""
        reason = await asyncio.shield(self._ended)
        if self._final:
            raise StanzaqError(self._fault)
        return self._fault or reason

    def tell_unsent(self) -> None:
        """Let the system hold back little of what the server does not take yet, so that the transport knows how much that is."""
        transport = self.xmpp.transport
        plug = None if transport is None else transport.get_extra_info("socket")
        if plug is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)

    async def drop(self) -> None:
        """End the stream in any state."""
        self.xmpp.cancel_connection_attempt()
        if self.xmpp.is_connected():
            self.xmpp.abort()
        filters = self.xmpp._run_out_filters  # noqa: SLF001  (slixmpp never ends this task)
        if filters is not None:
            filters.cancel()

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        return None if self._hear(stanza.xml) else stanza

    def _on_reached(self, _: object) -> None:
        # Another address, or the same one with TLS, may have failed before.
        self._fault = ""

    def _begin(self, _: object) -> None:
        if not self._begun.done():
            self._begun.set_result(None)

    def _end(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    def _broken(self, error: StanzaBase) -> None:
        condition = error["condition"]
        self.is_violated = condition == "policy-violation"
        self._fault = f"the server ended the stream ({condition})"
        if condition == "conflict":
            # Each would replace the other again and again (RFC 6120 §4.9.3.3).
            told = f"another program has connected as {self.xmpp.boundjid.full}: leave out the resource, or give each its own"
            self._give_up(told, final=True)

    def _note(self, reason: str) -> None:
        remedy = "" if self._account.address else "; if DNS does not name it, give address=host:port"
        self._fault = f"the server cannot be reached ({reason}){remedy}"

    def _on_untrusted(self, error: object) -> None:
        told = f"the server's certificate is not trusted ({error}): give the file of its authority in SSL_CERT_FILE"
        self._give_up(told, final=True)

    def _on_denied(self, failure: StanzaBase) -> None:
        self._denial = failure["condition"]

    def _on_unauthorised(self, _: object) -> None:
        user = self._account.jid.partition("/")[0]
        if self._denial == "temporary-auth-failure":
            self._give_up(f"the server cannot check the password of {user} now", final=False)
        elif self._denial:
            self._give_up(f"the server refuses {user} ({self._denial}): correct the user or the password", final=True)
        else:
            self._give_up(
                "the server offers no way to log in that is safe on this connection: it needs TLS", final=True
            )

    def _give_up(self, reason: str, *, final: bool) -> None:
        self._fault, self._final = reason, final
        self.xmpp.abort()
        self._end(reason)

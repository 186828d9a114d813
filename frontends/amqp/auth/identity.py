"""Turns SASL credentials or a client certificate into a JID. Must not know frames or what the peer asks for."""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from broker.model.names import Jid, lower_jid, read_bare_jid
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.protocol import sasl
from frontends.amqp.protocol.types import Malformed
from frontends.logins.failed_logins import FailedLogins, TooSoon
from frontends.logins.passwords import Passwords, TooMany
from frontends.logins.tokens import Tokens, Undecided, Untrusted

ANONYMOUS, EXTERNAL, PLAIN, TOKENS = "ANONYMOUS", "EXTERNAL", "PLAIN", "MSSBCBS"


_TOKEN: Final = re.compile(r"eyJ[^.]*\.[^.]*\.[^.]*")
"""What a JWT looks like: three parts, the first of which begins with an object's brace in base64."""

Ends = Callable[[], float]
"""Tells when the credentials of a peer end, in seconds since 1970: never, or 0 if they were changed or removed."""


def never() -> float:
    """Tell that credentials do not end."""
    return math.inf


class Stranger(Exception):  # noqa: N818  (named after the state of a peer)
    """Authentication has failed, with the SASL outcome for the peer."""

    def __init__(self, outcome: int) -> None:
        """Keep the outcome."""
        super().__init__("not believed")
        self.outcome = outcome


class Identity:
    """Checks passwords, tokens and certificates. Anonymous peers get the configured JID, or show tokens later."""

    def __init__(
        self, passwords: Passwords, tokens: Tokens, anonymous: Jid | None, keys: Keys, failed: FailedLogins
    ) -> None:
        """Use `anonymous` as the JID of anonymous peers; without it, they may show `tokens`, or some signed with `keys`.

        Note `failed` logins.
        """
        self._passwords = passwords
        self.tokens = tokens
        self.failed = failed
        self.anonymous = anonymous
        self.keys = keys

    def mechanisms(self, certified: Jid | None) -> list[str]:
        """Return the SASL mechanisms to offer to a peer with this certificate."""
        return [
            *([EXTERNAL] if certified else []),
            *([PLAIN] if self._passwords or self.tokens else []),
            *([ANONYMOUS] if self.anonymous or self._takes_tokens_later else []),
            *([TOKENS] if self._takes_tokens_later else []),
        ]

    @property
    def _takes_tokens_later(self) -> bool:
        return bool(self.keys or self.tokens) and not self.anonymous

    def replace(self, passwords: str, keys: str, tokens: Tokens | None) -> None:
        """Take these lines of passwords and of shared keys from now on, and, if there are others, these keys of tokens."""
        self.tokens = tokens or self.tokens
        self._passwords.replace(passwords)
        self.keys.replace(keys)

    async def of(self, init: sasl.Init, certified: Jid | None, address: str) -> tuple[Jid | None, Ends]:
        """Return the JID of a peer at an address, None for one that will show a token, and when its credentials end.

        Raises Stranger.
        """
        if init.mechanism == EXTERNAL and certified:
            return certified, never
        if init.mechanism == ANONYMOUS and self.anonymous:
            return self.anonymous, never
        if init.mechanism in {ANONYMOUS, TOKENS} and self._takes_tokens_later:
            return None, never
        if init.mechanism == PLAIN and (self._passwords or self.tokens):
            with suppress(Malformed):
                acts_as, user, password = sasl.parse_plain(init.response)
                if self.tokens and _TOKEN.fullmatch(password):
                    jid, ends = await self._check_token(password, address)
                    named = lower_jid(user) if user else jid
                else:
                    jid, ends = await self._check_password(lower_jid(user), password, address)
                    named = jid
                # RFC 4616 §2: acting as another user is not supported.
                if named == jid and (not acts_as or lower_jid(acts_as) == jid):
                    return jid, ends
        raise Stranger(sasl.REFUSED)

    async def _check_password(self, jid: Jid, password: str, address: str) -> tuple[Jid, Ends]:
        try:
            right = await self._passwords.is_right(jid, password, address)
        except (TooMany, TooSoon):
            raise Stranger(sasl.LATER) from None
        if not right:
            raise Stranger(sasl.REFUSED)
        stays = self._passwords.as_now(jid)
        return jid, lambda: math.inf if stays() else 0.0

    async def _check_token(self, token: str, address: str) -> tuple[Jid, Ends]:
        try:
            return await self.verify(token)
        except Untrusted as fault:
            # Nobody guesses a signature: it is told and counted, and not slowed.
            self.failed.tell("", address, f"the token is refused: {fault}")
            raise Stranger(sasl.REFUSED) from None
        except Undecided:
            raise Stranger(sasl.LATER) from None

    async def verify(self, token: str) -> tuple[Jid, Ends]:
        """Return the JID of a token and when it ends; raises Untrusted or Undecided."""
        tokens = self.tokens
        jid, ends = await tokens.bearer(token)
        return jid, lambda: ends if self.tokens is tokens else 0.0


def read_certificate(certificate: Mapping[str, Any] | None) -> Jid | None:
    """Return the bare JID of a verified certificate: an e-mail address in subjectAltName, else the common name."""
    if not certificate:
        return None
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "email"]
    names += [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    for name in names:
        with suppress(ValueError):
            return read_bare_jid(name)
    return None

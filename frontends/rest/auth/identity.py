"""Turns an Authorization header into a JID (RFC 7617, RFC 6750). Must not know what is requested."""

import binascii
import math
from base64 import b64decode
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from broker.model.names import Jid, lower_jid
from frontends.logins.failed_logins import FailedLogins, TooSoon
from frontends.logins.passwords import Passwords, TooMany
from frontends.logins.tokens import Tokens, Undecided, Untrusted
from frontends.rest.errors import RETRY_SECONDS, Fault

REALM: Final = 'realm="stanzaq"'

_MISSING: Final = "missing-credentials"
_INVALID: Final = "invalid-credentials"
_INVALID_TOKEN: Final = "invalid-token"  # noqa: S105  (an error code)


class Identity:
    """Checks passwords and tokens; clients without credentials get the configured JID, if any."""

    def __init__(self, passwords: Passwords, tokens: Tokens, anonymous: Jid | None, failed: FailedLogins) -> None:
        """Use `anonymous` as the JID of clients without credentials; note `failed` logins."""
        self._failed = failed
        self._passwords = passwords
        self._tokens = tokens
        self._anonymous = anonymous

    def replace_passwords(self, lines: str) -> None:
        """Take these lines of passwords from now on."""
        self._passwords.replace(lines)

    def replace_tokens(self, tokens: Tokens) -> None:
        """Take tokens with these keys alone from now on."""
        self._tokens = tokens

    async def of(self, authorization: str, address: str) -> tuple[Jid, Callable[[], float]]:
        """Return the JID of a sender at an address, and what tells the time at which the credentials end; raises Fault."""
        scheme, _, credentials = authorization.partition(" ")
        match scheme.lower():
            case "":
                if self._anonymous is None:
                    raise self._refusal(_MISSING, "credentials are required")
                return self._anonymous, lambda: math.inf
            case "basic" if self._passwords:
                jid = await self._check_password(credentials.strip(), address)
                stays = self._passwords.as_now(jid)
                return jid, lambda: math.inf if stays() else 0.0
            case "bearer" if self._tokens:
                return await self._check_token(credentials.strip(), address)
        raise self._refusal(_INVALID, "this authentication scheme is not supported")

    async def _check_password(self, credentials: str, address: str) -> Jid:
        try:
            user, colon, password = b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise self._refusal(_INVALID, "Basic credentials are NAME:PASSWORD in base64") from None
        jid = lower_jid(user)
        try:
            right = bool(colon) and await self._passwords.is_right(jid, password, address)
        except TooMany:
            detail = "too many passwords wait to be checked"
            raise _later(detail) from None
        except TooSoon as early:
            headers = {"Retry-After": str(math.ceil(early.seconds))}
            raise Fault(HTTPStatus.TOO_MANY_REQUESTS, "too-fast", str(early), headers) from None
        if not right:
            raise self._refusal(_INVALID, "the name or the password is wrong")
        return jid

    async def _check_token(self, token: str, address: str) -> tuple[Jid, Callable[[], float]]:
        tokens = self._tokens
        try:
            jid, ends = await tokens.bearer(token)
        except Untrusted as fault:
            # Nobody guesses a signature: it is told and counted, and not slowed.
            self._failed.tell("", address, f"the token is refused: {fault}")
            raise self._refusal(_INVALID_TOKEN, f"the token is refused: {fault}", ', error="invalid_token"') from None
        except Undecided:
            detail = "the keys of tokens cannot be fetched"
            raise _later(detail) from None
        return jid, lambda: ends if self._tokens is tokens else 0.0

    def _refusal(self, code: str, detail: str, error: str = "") -> Fault:
        taken = [f'Basic {REALM}, charset="UTF-8"'] if self._passwords else []
        taken += [f"Bearer {REALM}{error}"] if self._tokens else []
        # A 401 needs a challenge even where only anonymous clients are served.
        challenge = ", ".join(taken) or f"Basic {REALM}"
        return Fault(HTTPStatus.UNAUTHORIZED, code, detail, {"WWW-Authenticate": challenge})


def end_of_credentials(ends: float) -> Fault:
    """Return the end of a stream whose credentials have expired, or were changed or removed."""
    if ends:
        return Fault(HTTPStatus.UNAUTHORIZED, _INVALID_TOKEN, "the token has expired")
    return Fault(HTTPStatus.UNAUTHORIZED, _INVALID, "the credentials were changed or removed")


def _later(detail: str) -> Fault:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return Fault(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, headers)

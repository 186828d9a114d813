"""Who asks: from an Authorization header to a JID (RFC 7617, RFC 6750). Must not know what is asked."""

import binascii
from base64 import b64decode
from http import HTTPStatus
from typing import Final

from broker.model.names import Jid, prepared
from frontends.passwords import Passwords, TooMany
from frontends.rest.auth.tokens import Tokens, Untrusted
from frontends.rest.errors import RETRY_SECONDS, Fault

REALM: Final = 'realm="stanzaq"'

_MISSING: Final = "missing-credentials"
_INVALID: Final = "invalid-credentials"
_INVALID_TOKEN: Final = "invalid-token"  # noqa: S105  (a word)


class Identity:
    """Believes passwords and tokens, and nobody else unless a JID is set for them."""

    def __init__(self, passwords: Passwords, tokens: Tokens, anonymous: Jid | None) -> None:
        """Take `anonymous` for whoever says nothing."""
        self._passwords = passwords
        self._tokens = tokens
        self._anonymous = anonymous

    async def of(self, authorization: str) -> Jid:
        """Give who asks; raises Fault."""
        scheme, _, credentials = authorization.partition(" ")
        match scheme.lower():
            case "":
                if self._anonymous is None:
                    raise self._refusal(_MISSING, "say who you are")
                return self._anonymous
            case "basic" if self._passwords:
                return await self._by_password(credentials.strip())
            case "bearer" if self._tokens:
                return await self._by_token(credentials.strip())
        raise self._refusal(_INVALID, "such credentials are not taken here")

    async def _by_password(self, credentials: str) -> Jid:
        try:
            user, colon, password = b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise self._refusal(_INVALID, "Basic credentials are NAME:PASSWORD in base64") from None
        jid = prepared(user)
        try:
            right = bool(colon) and await self._passwords.right(jid, password)
        except TooMany:
            raise Fault(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "unavailable",
                "too many passwords wait to be checked",
                {"Retry-After": str(RETRY_SECONDS)},
            ) from None
        if not right:
            raise self._refusal(_INVALID, "the name or the password is wrong")
        return jid

    async def _by_token(self, token: str) -> Jid:
        try:
            return await self._tokens.bearer(token)
        except Untrusted as fault:
            raise self._refusal(_INVALID_TOKEN, f"the token is not taken: {fault}", ', error="invalid_token"') from None

    def _refusal(self, code: str, detail: str, error: str = "") -> Fault:
        taken = [f'Basic {REALM}, charset="UTF-8"'] if self._passwords else []
        taken += [f"Bearer {REALM}{error}"] if self._tokens else []
        # Somebody may be served here without a word; who has said the wrong one is told by what scheme to say it.
        challenge = ", ".join(taken) or f"Basic {REALM}"
        return Fault(HTTPStatus.UNAUTHORIZED, code, detail, {"WWW-Authenticate": challenge})

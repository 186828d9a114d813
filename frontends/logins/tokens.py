"""JWTs of one issuer for one audience, as HTTP and AMQP take them. Must not know any door.

Only asymmetric signatures are accepted: whoever can verify a token cannot forge one, and no token chooses its algorithm freely.
Keys at a URL are fetched in the background. Whatever goes wrong there, the last good ones stay.
"""

import asyncio
import contextlib
import math
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.error import URLError

import jwt
import structlog

from broker.model.names import GROUP, Jid, is_group, read_bare_jid
from broker.model.roles import Role, Said
from broker.tasks import start
from broker.token_keys import ALGORITHMS, read_keys

log = structlog.get_logger()

_NO_ROLES: Final[Mapping[str, Role]] = {}
_TIMES: Final = ("exp", "nbf", "iat")
_LATEST: Final = 2.0**40
"""No token ends later, in seconds since 1970: times in ms must stay whole numbers."""

LEEWAY_SECONDS: Final = 10
"""The allowed difference between two clocks."""

KEYS_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 10.0
"""How long fetched keys are used, and the shortest time between two fetches."""
FETCH_SECONDS: Final = 5.0
"""How long a fetch may take, and how long tokens with unknown keys wait for it."""
_KEYS_BYTES: Final = 262_144


class Untrusted(Exception):  # noqa: N818  (named after the state of a token)
    """A token is refused; the text is for its bearer."""


class _Unknown(Exception):  # noqa: N818  (named after the state of a token)
    """None of the known keys has signed a token."""


class Undecided(Exception):  # noqa: N818  (named after the state of a token)
    """A token's key is unknown, but the keys could not be fetched: it may be good."""


class _HttpsAlone(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https alone: anything else may be read and changed on its way."""

    def redirect_request(  # noqa: PLR0913, PLR0917  (the library's)
        self,
        req: urllib.request.Request,
        fp: Any,  # noqa: ANN401
        code: int,
        msg: str,
        headers: Any,  # noqa: ANN401
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith("https:"):
            fp.close()
            reason = "it redirects to a URL that is not https"
            raise URLError(reason)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str) -> str:
    """Return the text at a URL; raises an error of any kind."""
    ends = time.monotonic() + FETCH_SECONDS
    body = b""
    with urllib.request.build_opener(_HttpsAlone()).open(url, timeout=FETCH_SECONDS) as answer:
        while piece := answer.read1(_KEYS_BYTES):
            body += piece
            # The time-out of a socket bounds each of its reads alone.
            if len(body) > _KEYS_BYTES or time.monotonic() > ends:
                msg = "the answer is too long or too slow"
                raise ValueError(msg)
    # Some servers begin with a byte order mark.
    return body.decode("utf-8-sig")


def _values(said: Mapping[str, Any], claim: str) -> list[str]:
    """Return the texts of a claim: one, or a list of them; a dot leads into a claim that is an object."""
    found: Any = said.get(claim)
    if found is None:
        found = said
        for step in claim.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str)]


class Tokens:
    """Verifies tokens."""

    def __init__(  # noqa: PLR0913  (settings, and what tests replace)
        self,
        keys: str,
        issuer: str,
        audience: str,
        claim: str,
        *,
        role_claim: str = "",
        roles: Mapping[str, Role] = _NO_ROLES,
        group_claim: str = "",
        note: Callable[[Jid, Said], Awaitable[None]] | None = None,
        fetch: Callable[[str], str] = fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Trust `keys`: a URL, a JWKS, or a public key in PEM; without any, no token is accepted.

        If values of a claim give `roles`, or a claim names groups, `note` is told what each token says of its account: the
        highest role and the groups.
        """
        self._url = keys if "://" in keys[:8] else ""
        self._issuer = issuer
        self._audience = audience
        self._claim = claim
        self._role_claim = role_claim
        self._roles = roles
        self._group_claim = group_claim
        self._note = note if roles or group_claim else None
        self._keys = [] if self._url or not keys else read_keys(keys)
        self._fetch = fetch
        self._clock = clock
        self._fetching: asyncio.Task[None] | None = None
        self._fetched = -math.inf
        # Whether the keys are those of the last fetch.
        self._current = not self._url
        self._there = bool(keys)

    def __bool__(self) -> bool:
        """Tell whether any key is configured."""
        return self._there

    async def bearer(self, token: str) -> tuple[Jid, float]:
        """Return the JID of a token, and the time from which it is refused; raises Untrusted or Undecided."""
        try:
            said = await self._verify(token, jwt.get_unverified_header(token).get("kid"))
            # The library takes a text for a time, too.
            if wrong := [name for name in _TIMES if name in said and type(said[name]) not in {int, float}]:
                msg = f"{wrong[0]} is no number"
                raise Untrusted(msg)
            ends, issued = min(float(said["exp"]), _LATEST) + LEEWAY_SECONDS, float(said.get("iat", 0))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as fault:
            raise Untrusted(str(fault)) from None
        try:
            jid = read_bare_jid(str(said[self._claim]))
        except ValueError as fault:
            msg = f"{self._claim}: {fault}"
            raise Untrusted(msg) from None
        if self._note:
            given = [self._roles[value] for value in _values(said, self._role_claim) if value in self._roles]
            named = dict.fromkeys(Jid(f"{GROUP}{value}") for value in _values(said, self._group_claim))
            groups = tuple(filter(is_group, named)) if self._group_claim else None
            await self._note(jid, Said(max(given, default=None), issued, ends, groups))
        return jid, ends

    async def _verify(self, token: str, kid: str | None) -> dict[str, Any]:
        """Return what a token claims; raises Untrusted, Undecided, or an error of the library."""
        if self._url:
            # Those that are known serve meanwhile.
            self._renewal(KEYS_SECONDS if self._current else AGAIN_SECONDS)
        with contextlib.suppress(_Unknown):
            return self._claims(token, kid)
        if self._url and (fetching := self._renewal(AGAIN_SECONDS)):
            await asyncio.wait({fetching}, timeout=FETCH_SECONDS)
        try:
            return self._claims(token, kid)
        except _Unknown:
            if not self._current:
                raise Undecided from None
            msg = "it is signed with an unknown key"
            raise Untrusted(msg) from None

    def _claims(self, token: str, kid: str | None) -> dict[str, Any]:
        """Return what a token claims, if a known key has signed it; raises _Unknown, or an error of the library."""
        for name, key in self._keys:
            # A key without a name fits any token, and a token without a name any key.
            if kid is not None and name not in {None, kid}:
                continue
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=ALGORITHMS,
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iss", "aud", self._claim]},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
                continue
        raise _Unknown

    def _renewal(self, seconds: float) -> asyncio.Task[None] | None:
        """Return the fetch under way, if there is one; the last one was enough for so many seconds."""
        if self._fetching is None and self._clock() - self._fetched >= seconds:
            self._current = False
            self._fetching = start(self._renew())
        return self._fetching

    async def _renew(self) -> None:
        try:
            self._keys = await asyncio.to_thread(lambda: read_keys(self._fetch(self._url)))
            self._current = True
        except Exception as fault:  # noqa: BLE001  (nothing that happens there makes the old keys wrong)
            log.warning("the keys of tokens cannot be fetched", path=self._url, error=repr(fault))
        finally:
            self._fetched = self._clock()
            self._fetching = None

"""Turns SASL credentials or a client certificate into a JID. Must not know frames or what the peer asks for."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.model.names import Jid, lower_jid, read_bare_jid
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.protocol import sasl
from frontends.amqp.protocol.types import Malformed
from frontends.logins.failed_logins import FailedLogins, TooSoon
from frontends.logins.passwords import Passwords, TooMany

ANONYMOUS, EXTERNAL, PLAIN, TOKENS = "ANONYMOUS", "EXTERNAL", "PLAIN", "MSSBCBS"


class Untrusted(Exception):  # noqa: N818  (named after the state of a peer)
    """Authentication has failed, with the SASL outcome for the peer."""

    def __init__(self, outcome: int) -> None:
        """Keep the outcome."""
        super().__init__("not believed")
        self.outcome = outcome


class Identity:
    """Checks passwords and certificates. Anonymous peers get the configured JID, or authenticate later by tokens."""

    def __init__(self, passwords: Passwords, anonymous: Jid | None, keys: Keys, failed: FailedLogins) -> None:
        """Use `anonymous` as the JID of anonymous peers; without it, `keys` let them authenticate later. Note `failed` logins."""
        self._passwords = passwords
        self.failed = failed
        self.anonymous = anonymous
        self.keys = keys

    def mechanisms(self, certified: Jid | None) -> list[str]:
        """Return the SASL mechanisms to offer to a peer with this certificate."""
        return [
            *([EXTERNAL] if certified else []),
            *([PLAIN] if self._passwords else []),
            *([ANONYMOUS] if self.anonymous or self.keys else []),
            *([TOKENS] if self.keys else []),
        ]

    def replace(self, passwords: str, keys: str) -> None:
        """Take these lines of passwords and of shared keys from now on."""
        self._passwords.replace(passwords)
        self.keys.replace(keys)

    async def of(self, init: sasl.Init, certified: Jid | None, address: str) -> tuple[Jid | None, Callable[[], bool]]:
        """Return the JID of a peer at an address, None for one that will show a token, and what tells later whether it may stay.

        Raises Untrusted.
        """
        if init.mechanism == EXTERNAL and certified:
            return certified, lambda: True
        if init.mechanism == ANONYMOUS and self.anonymous:
            return self.anonymous, lambda: True
        if init.mechanism in {ANONYMOUS, TOKENS} and self.keys:
            return None, lambda: True
        if init.mechanism == PLAIN and self._passwords:
            try:
                acts_as, user, password = sasl.parse_plain(init.response)
                jid = lower_jid(user)
                # RFC 4616 §2: acting as another user is not supported.
                right = await self._passwords.is_right(jid, password, address)
                if right and (not acts_as or lower_jid(acts_as) == jid):
                    return jid, self._passwords.as_now(jid)
            except Malformed:
                pass
            except (TooMany, TooSoon):
                raise Untrusted(sasl.LATER) from None
        raise Untrusted(sasl.REFUSED)


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

"""Who a connection is: from what SASL says, or a client's certificate, to a JID. Must not know frames, nor what is asked."""

from collections.abc import Mapping
from typing import Any

from broker.model.names import Jid, prepared
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.protocol import sasl
from frontends.amqp.protocol.types import Malformed
from frontends.passwords import Passwords, TooMany

ANONYMOUS, EXTERNAL, PLAIN, TOKENS = "ANONYMOUS", "EXTERNAL", "PLAIN", "MSSBCBS"


class Untrusted(Exception):  # noqa: N818  (what a peer is)
    """A peer is not believed: the outcome that it is told."""

    def __init__(self, outcome: int) -> None:
        """Keep it."""
        super().__init__("not believed")
        self.outcome = outcome


class Identity:
    """Believes passwords and certificates, and nobody else unless a JID is set for them, or they are to show tokens."""

    def __init__(self, passwords: Passwords, anonymous: Jid | None, keys: Keys) -> None:
        """Take `anonymous` for whoever says nothing, or else have them say later who they are, if there are `keys`."""
        self._passwords = passwords
        self.anonymous = anonymous
        self.keys = keys

    def mechanisms(self, certified: Jid | None) -> list[str]:
        """Give what may be said by one who has such a certificate."""
        return [
            *([EXTERNAL] if certified else []),
            *([PLAIN] if self._passwords else []),
            *([ANONYMOUS] if self.anonymous or self.keys else []),
            *([TOKENS] if self.keys else []),
        ]

    async def of(self, init: sasl.Init, certified: Jid | None) -> Jid | None:
        """Give who says so, none for one who will show a token; raises Untrusted."""
        if init.mechanism == EXTERNAL and certified:
            return certified
        if init.mechanism == ANONYMOUS and self.anonymous:
            return self.anonymous
        if init.mechanism in {ANONYMOUS, TOKENS} and self.keys:
            return None
        if init.mechanism == PLAIN and self._passwords:
            try:
                acts_as, user, password = sasl.plain(init.response)
                jid = prepared(user)
                # RFC 4616 §2: nobody acts as another.
                if await self._passwords.right(jid, password) and (not acts_as or prepared(acts_as) == jid):
                    return jid
            except Malformed:
                pass
            except TooMany:
                raise Untrusted(sasl.LATER) from None
        raise Untrusted(sasl.REFUSED)


def certified(certificate: Mapping[str, Any] | None) -> Jid | None:
    """Give the bare JID in a certificate that was verified: an e-mail address of its own, else its common name."""
    if not certificate:
        return None
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "email"]
    names += [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    for name in names:
        if name.count("@") == 1 and not any(mark in name for mark in "/ ") and name.isprintable():
            return prepared(name)
    return None

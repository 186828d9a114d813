"""An account and its server, read from a URL and the environment: over XMPP or HTTP. Must not connect."""

import base64
import ipaddress
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from stanzaq.errors import StanzaqError

Tls = Literal["required", "disabled"]
Password = str | Callable[[], str] | None
PASSWORD: Final = "STANZAQ_PASSWORD"  # noqa: S105  (the name of a variable)


@dataclass(frozen=True, slots=True)
class Account:
    """A full JID, the source of its password, the domain of its queue, and its server's address if that is not in DNS."""

    jid: str
    password: Callable[[], str]
    service: str
    address: tuple[str, int] | None
    tls: Tls

    @classmethod
    def read(cls, url: str, service: str | None, password: Password, address: str | None, tls: Tls) -> "Account":
        """Check the arguments of a worker or publisher; raises ValueError with the fault and its remedy."""
        parts = urlsplit(url)
        if parts.scheme != "xmpp" or not parts.username or not parts.hostname or parts.password:
            msg = f"{url!r}: write xmpp://user@example.org, and give the password as STANZAQ_PASSWORD or password="
            raise ValueError(msg)
        if ":" in parts.netloc.rpartition("@")[2]:
            msg = f"{url!r}: the URL names an account; give the server's port by address=, e.g. {parts.hostname}:5222"
            raise ValueError(msg)
        at = _address(address) if address else None
        if tls not in ("required", "disabled"):
            msg = f"tls={tls!r}: it is 'required' or 'disabled'"
            raise ValueError(msg)
        if tls == "disabled" and not (at and _is_loopback(at[0])):
            msg = "tls='disabled' is taken on loopback alone: give an address such as 127.0.0.1:5222, or leave TLS on"
            raise ValueError(msg)
        # Another connection with the same resource would end this one.
        resource = unquote(parts.path.strip("/")) or f"stanzaq-{secrets.token_hex(8)}"
        jid = f"{unquote(parts.username)}@{parts.hostname}/{resource}"
        return cls(jid, _password_source(password), (service or f"queue.{parts.hostname}").lower(), at, tls)


@dataclass(frozen=True, slots=True)
class HttpAccount:
    """The origin of a service over HTTP, and who asks there: a user with a password, or without a user a token's subject."""

    origin: str
    user: str
    password: Password

    @classmethod
    def read(cls, url: str, service: str | None, password: Password, address: str | None, tls: Tls) -> "HttpAccount":
        """Check the arguments of a worker or publisher; raises ValueError with the fault and its remedy."""
        parts = urlsplit(url)
        if not parts.hostname or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
            msg = f"{url!r}: write https://USER@queue.example.org, and give the password as {PASSWORD} or password="
            raise ValueError(msg)
        if service or address:
            msg = "service= and address= are for XMPP: the URL says where the service is, e.g. https://queue.example.org:8443"
            raise ValueError(msg)
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            msg = f"{url!r}: http is taken on loopback alone, as the password would be readable: write https"
            raise ValueError(msg)
        if parts.scheme == "https" and tls == "disabled":
            msg = "tls='disabled' contradicts https: leave it out"
            raise ValueError(msg)
        where = parts.netloc.rpartition("@")[2]
        return cls(f"{parts.scheme}://{where}", unquote(parts.username or ""), password)

    def authorization(self) -> str:
        """Return the header `Authorization`: Basic for a user, Bearer for a token; empty if there is neither.

        Raises StanzaqError if a user has no password.
        """
        if self.user:
            pair = f"{self.user}:{_password_source(self.password)()}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        if self.password is None and PASSWORD not in os.environ:
            return ""
        return f"Bearer {_password_source(self.password)()}"


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal()):
        msg = f"address={text!r}: write host:port, e.g. 127.0.0.1:5222"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _password_source(password: Password) -> Callable[[], str]:
    if callable(password):
        return password
    if password is not None:
        return lambda: password
    return _of_environment


def _of_environment() -> str:
    password = os.environ.get(PASSWORD)
    if password is None:
        msg = f"there is no password: set {PASSWORD}, or give password="
        raise StanzaqError(msg)
    return password

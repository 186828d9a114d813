"""The settings of the HTTP door: addresses, credentials and limits. Must not know the other settings."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode

from broker.address import Address, read_address
from broker.model.names import Jid, is_account, read_bare_jid
from broker.model.nodes.options import MAX_PAYLOAD_BYTES

# As bcrypt takes it: a cost from 4 to 31, and a salt of 128 bits, of which its last character has two.
_LINE: Final = re.compile(r"([^:\s]+):\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")


def read_optional_jid(value: object) -> object:
    """Read the bare JID of an account, for the settings of all doors; None stays None."""
    return None if value is None else read_bare_jid(str(value))


def password_lines(value: SecretStr) -> SecretStr:
    """Check lines of JID:HASH, for the settings of all doors."""
    for number, line in enumerate(value.get_secret_value().splitlines(), 1):
        # The message does not repeat the line: a password written by mistake must not reach a log.
        found = _LINE.fullmatch(line.strip())
        if line.strip() and not (found and is_account(found[1])):
            msg = f"line {number} is not JID:HASH with a bcrypt hash"
            raise ValueError(msg)
    return value


def _networks(value: object) -> object:
    """Read addresses and networks that are separated by commas, or a list in a file."""
    words = [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value
    return tuple(ip_network(str(word)) for word in words) if isinstance(words, list) else words


class HttpSettings(BaseSettings):
    """All HTTP settings; the description of each says what to write."""

    http_bind: Annotated[Address, NoDecode, BeforeValidator(read_address)] = Field(
        default=Address("127.0.0.1", 8080),
        description="where to serve HTTP, e.g. 127.0.0.1:8080, or [::]:8080 for all addresses",
    )
    http_passwords: Annotated[SecretStr, AfterValidator(password_lines)] = Field(
        default=SecretStr(""), description="lines of JID:HASH with hashes of `htpasswd -B`; not set: no passwords"
    )
    http_anonymous: Annotated[Jid | None, BeforeValidator(read_optional_jid)] = Field(
        default=None, description="a bare JID for requests without credentials; not set: they are refused"
    )
    http_body_bytes: int = Field(
        default=4_194_304, ge=MAX_PAYLOAD_BYTES, description="most bytes of a request's body, e.g. 4194304"
    )
    http_header_bytes: int = Field(
        default=16_384, ge=1_024, le=1_048_576, description="most bytes of a request's headers, e.g. 16384"
    )
    http_slow_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="seconds for the headers of a request, and as many for its body, e.g. 10",
    )
    http_rate: float = Field(
        default=1000.0, ge=0, description="requests a second of one JID at one frontend, 0 for no limit, e.g. 1000"
    )
    http_leases: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="most subscriptions of one JID to a queue, a collection, or several destinations, e.g. 1000",
    )
    http_connections: int = Field(default=1_000, ge=1, description="most connections at once, e.g. 1000")
    http_account_connections: int | None = Field(
        default=None, ge=1, description="most of them of one account, e.g. 250; not set: a quarter"
    )
    http_address_connections: int = Field(
        default=0, ge=0, description="most of them of one address, e.g. 100; 0: no limit"
    )
    http_keep_alive: float = Field(
        default=75.0,
        gt=0,
        le=3600,
        description="seconds that a connection may idle between requests: longer than at the load balancer before it, e.g. 75",
    )
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_networks)] = Field(
        default=(),
        description="addresses or networks of HTTP proxies whose field Forwarded is believed, separated by commas, e.g."
        " 10.0.0.0/8",
    )

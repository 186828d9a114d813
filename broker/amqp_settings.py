"""The settings of the AMQP door: addresses, credentials and limits. Must not know the other settings."""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode

from broker.address import Address, read_address
from broker.http_settings import password_lines, read_optional_jid
from broker.model.names import Jid, is_account

_SHARED_KEY: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,255})\s+(\S+)\s+[!-~]{32,256}", re.ASCII)


def _check_shared_keys(value: SecretStr) -> SecretStr:
    names = set()
    for number, line in enumerate(value.get_secret_value().splitlines(), 1):
        # The line has a key, so the message does not repeat it.
        found = _SHARED_KEY.fullmatch(line.strip())
        if line.strip() and not (found and is_account(found[2])):
            msg = f"line {number} is not NAME JID KEY with a key of 32 characters or more"
            raise ValueError(msg)
        if found and found[1] in names:
            msg = f"line {number} repeats a name"
            raise ValueError(msg)
        names.add(found[1] if found else "")
    return value


class AmqpSettings(BaseSettings):
    """All AMQP settings; the description of each says what to write."""

    amqp_bind: Annotated[Address, NoDecode, BeforeValidator(read_address)] = Field(
        default=Address("127.0.0.1", 5672),
        description="where to serve AMQP, e.g. 127.0.0.1:5672, or [::]:5672 for all addresses",
    )
    amqp_passwords: Annotated[SecretStr, AfterValidator(password_lines)] = Field(
        default=SecretStr(""),
        description="lines of JID:HASH for SASL PLAIN, as HTTP_PASSWORDS has them; not set: no PLAIN",
    )
    amqp_anonymous: Annotated[Jid | None, BeforeValidator(read_optional_jid)] = Field(
        default=None,
        description="a bare JID for connections with SASL ANONYMOUS or without SASL; not set: they are refused",
    )
    amqp_event_hubs_keys: Annotated[SecretStr, AfterValidator(_check_shared_keys)] = Field(
        default=SecretStr(""),
        description="lines of NAME JID KEY: shared keys for clients of Event Hubs; not set: no such clients",
    )
    amqp_certificate: Path | None = Field(
        default=None, description="a file with the certificate and its chain in PEM; not set: no TLS"
    )
    amqp_key: Path | None = Field(
        default=None, description="a file with the certificate's key in PEM; not set: it is in the same file"
    )
    amqp_client_ca: Path | None = Field(
        default=None,
        description="a file with the authorities in PEM whose client certificates SASL EXTERNAL accepts; not set: no EXTERNAL",
    )
    amqp_connections: int = Field(default=1_000, ge=1, description="most connections at once, e.g. 1000")
    amqp_account_connections: int | None = Field(
        default=None, ge=1, description="most of them of one account, e.g. 250; not set: a quarter"
    )
    amqp_address_connections: int = Field(
        default=0, ge=0, description="most of them of one address, e.g. 100; 0: no limit"
    )

    @property
    def amqp_secrets(self) -> tuple[str, ...]:
        """Values that must never be shown: hashes and shared keys."""
        hashes = (line.rpartition(":")[2] for line in self.amqp_passwords.get_secret_value().split())
        return *hashes, *self.amqp_event_hubs_keys.get_secret_value().split()[2::3]

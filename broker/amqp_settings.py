"""The settings of the AMQP door: where it listens, whom it believes, how much it takes. Must not know the other settings."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode

from broker.address import Address, read_address
from broker.http_settings import bare_jid, password_lines
from broker.model.names import Jid


class AmqpSettings(BaseSettings):
    """All of them; the description of each says what to write."""

    amqp_bind: Annotated[Address, NoDecode, BeforeValidator(read_address)] = Field(
        default=Address("127.0.0.1", 5672), description="where to serve AMQP, e.g. 127.0.0.1:5672"
    )
    amqp_passwords: Annotated[SecretStr, AfterValidator(password_lines)] = Field(
        default=SecretStr(""),
        description="lines of JID:HASH for SASL PLAIN, as HTTP_PASSWORDS has them; not set: no PLAIN",
    )
    amqp_anonymous: Annotated[Jid | None, BeforeValidator(bare_jid)] = Field(
        default=None, description="a bare JID for connections of SASL ANONYMOUS, or of none; not set: they are refused"
    )
    amqp_certificate: Path | None = Field(
        default=None, description="a file with the certificate and its chain in PEM; not set: no TLS"
    )
    amqp_key: Path | None = Field(
        default=None, description="a file with the certificate's key in PEM; not set: it is in the same file"
    )
    amqp_client_ca: Path | None = Field(
        default=None,
        description="a file with the authorities in PEM whose certificates SASL EXTERNAL believes; not set: no EXTERNAL",
    )
    amqp_connections: int = Field(default=1_000, ge=1, description="most connections at once, e.g. 1000")

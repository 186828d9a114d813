"""The settings of tokens, which HTTP and AMQP take, and of the page's sign-on. Must not know the other settings."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode

from broker.model.roles import Role, read_role

_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}


def is_safe(value: str) -> bool:
    """Return whether nobody on the way to a URL can read or change what is asked there."""
    url = urlsplit(value)
    return bool(url.scheme == "https" and url.hostname) or (url.scheme == "http" and url.hostname in _LOOPBACK)


def _keys(value: str) -> str:
    if "://" in value[:8]:
        if not is_safe(value):
            msg = "keys are fetched over https alone"
            raise ValueError(msg)
    elif value and find_spec("jwt"):
        # Its library is an extra: whatever lacks it serves no tokens.
        from broker.token_keys import read_keys  # noqa: PLC0415

        read_keys(value)
    return value


def _read_roles(value: object) -> object:
    """Read lines of VALUE ROLE: the last word is the role, for a group's name may have blanks."""
    if not isinstance(value, str):
        return value
    roles: dict[str, Role] = {}
    for number, line in enumerate(value.splitlines(), 1):
        if not line.strip():
            continue
        said, _, word = line.strip().rpartition(" ")
        try:
            role = read_role(word)
        except ValueError as wrong:
            msg = f"line {number} is not VALUE ROLE: {wrong}"
            raise ValueError(msg) from None
        if not said.strip() or said.strip() in roles:
            msg = f"line {number} names no value, or one that has a role already"
            raise ValueError(msg)
        roles[said.strip()] = role
    return roles


class TokenSettings(BaseSettings):
    """All settings of tokens; the description of each says what to write."""

    jwt_keys: Annotated[str, AfterValidator(_keys)] = Field(
        default="",
        description="keys that verify tokens: the https URL of a JWKS, or a JWKS or a public key in PEM itself; not"
        " set: no tokens",
    )
    jwt_issuer: str = Field(default="", description="the issuer of the tokens, e.g. https://login.example.org")
    jwt_audience: str = Field(default="", description="the audience of the tokens, e.g. stanzaq")
    jwt_claim: str = Field(default="sub", description="the claim with the bare JID, e.g. sub")
    jwt_role_claim: str = Field(
        default="roles",
        description="the claim whose values give roles, a text or a list, e.g. groups; a dot leads into a claim, e.g."
        " realm_access.roles",
    )
    jwt_roles: Annotated[Mapping[str, Role], NoDecode, BeforeValidator(_read_roles)] = Field(
        default={},
        description="lines of VALUE ROLE, a value of that claim and one of viewer, operator and admin, e.g. queue-team"
        " operator; not set: tokens give no role",
    )
    jwt_group_claim: str = Field(
        default="",
        description="the claim whose values are groups to which nodes may give affiliations, a text or a list, e.g. groups;"
        " not set: tokens name no groups",
    )
    page_client: str = Field(
        default="",
        description="the id of the page for people at JWT_ISSUER, where it signs them in as a public client; not set: they"
        " give the page a password or a token",
    )
    page_scope: str = Field(
        default="openid", description="the scopes that the page asks for there, e.g. openid profile"
    )

"""Tokens of an issuer that the tests are, and their public key. Must not know any door."""

import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.doors.frontend import ALICE

KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
PEM: Final = (
    KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
)
ISSUER, AUDIENCE = "https://login.example.org", "stanzaq"
TRUSTED: Final = {"JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}


def signed(key: Any = KEY, algorithm: str = "RS256", headers: dict[str, str] | None = None, **claims: Any) -> str:  # noqa: ANN401
    """Make a token of alice's; a claim of None is left out."""
    said = {"sub": ALICE, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60, **claims}
    return jwt.encode({name: value for name, value in said.items() if value is not None}, key, algorithm, headers)

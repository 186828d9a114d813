"""Reads the keys that verify tokens: a JWKS (RFC 7517), or one public key in PEM. Must not know where the text is from.

Its library is an extra: only who takes tokens imports this module.
"""

import json
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey


def read_keys(text: str) -> list[tuple[str | None, PublicKey]]:
    """Return the keys that can verify a signature, each with its name if it has one; raises ValueError if there are none."""
    try:
        if text.lstrip().startswith("-----BEGIN"):
            named: list[tuple[str | None, object]] = [(None, load_pem_public_key(text.encode()))]
        else:
            known = jwt.PyJWKSet.from_dict(json.loads(text)).keys
            named = [(each.key_id, each.key) for each in known if _signs(each)]
    except Exception:  # noqa: BLE001  (libraries raise errors of every kind, some with the key in their text)
        msg = "neither a JWKS nor a public key in PEM"
        raise ValueError(msg) from None
    keys = [(name, key) for name, key in named if isinstance(key, PublicKey)]
    if not keys:
        msg = "none of its keys is a public one for signatures by RSA, ECDSA or EdDSA"
        raise ValueError(msg)
    return keys


def _signs(key: jwt.PyJWK) -> bool:
    return key.public_key_use in (None, "sig") and key.algorithm_name in ALGORITHMS

"""Event streams whose token expires."""

import json
import time
from types import SimpleNamespace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker.model.commands import Receive
from broker.model.names import Jid
from broker.model.nodes.pull_subscriptions import new_pull_name
from broker.model.results import Received
from frontends.logins.failed_logins import FailedLogins
from frontends.logins.passwords import Passwords
from frontends.logins.tokens import LEEWAY_SECONDS, Tokens
from frontends.rest.app import Door
from frontends.rest.auth.identity import Identity
from frontends.rest.subscriptions.requests import PullSubscription
from tests.doors.rest.served import Placed

ALICE = Jid("alice@x")


async def test_a_stream_ends_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits no longer than the token is valid, says why it ends, and leaves the subscription for a newer token."""
    key = ec.generate_private_key(ec.SECP256R1())
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, info).decode()
    expires = int(time.time()) + 600
    token = jwt.encode({"sub": ALICE, "iss": "i", "aud": "a", "exp": expires}, key, "ES256")
    # The stream is begun, waits as long as streams do, then for the rest of the token's time.
    moments = iter([expires - 60, expires + LEEWAY_SECONDS - 1, expires + LEEWAY_SECONDS])
    monkeypatch.setattr(
        "frontends.rest.subscriptions.handlers.time", SimpleNamespace(time=lambda: float(next(moments)))
    )
    asked: list[Any] = []

    class Silent:
        async def ask(self, command: object) -> Received:
            asked.append(command)
            return Received((), 0)

    identity = Identity(Passwords("", FailedLogins("test")), Tokens(pem, "i", "a", "sub"), None, FailedLogins("test"))
    door = Door(identity, rate=0, header_bytes=8_192, body_bytes=65_536, slow_seconds=10, subscriptions=1)
    door.open(Silent())  # type: ignore[arg-type]  # no more of a core is needed
    path = PullSubscription(ALICE, "jobs", new_pull_name(60), 60).href
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Placed(door)), base_url="http://x") as http:
        answer = await http.get(path, headers=headers)
    event, _, data = answer.text.rstrip().rpartition("\n")
    assert event.endswith("event: end")
    told = json.loads(data.removeprefix("data: "))
    assert (told["status"], told["type"]) == (401, "urn:stanzaq:0:problem:invalid-token")
    # Nothing ends the subscription.
    assert [type(each) for each in asked] == [Receive] * 3
    assert [each.wait_seconds for each in asked] == [0, 5, 1]

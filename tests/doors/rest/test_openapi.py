"""The OpenAPI document: it is valid, it matches the table of routes, and requests made from it behave as described."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest

from broker.model.nodes.tree import COLLECTION
from frontends.rest import openapi
from frontends.rest.operations import OPERATIONS
from frontends.rest.routes import PARAMETERS, ROUTES, allowed_methods
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.doors.frontend import ALICE, PASSWORD
from tests.doors.rest.served import RestFrontend

ROOT = Path(__file__).parents[3]


def test_one_truth(frontend: RestFrontend, alice: httpx.Client) -> None:
    """Routes, document and operations have the same names, and each path refuses methods that the document lacks."""
    document = alice.get("/openapi.json").json()
    assert document == openapi.document()
    for pattern, methods in ROUTES.items():
        described = {name for name in document["paths"][pattern] if name != "parameters"}
        assert described == {method.lower() for method in methods}
        path = pattern.replace("{queue}", "q").replace("{message}", "m").replace("{subscription}", "s")
        assert alice.options(path).headers["Allow"] == ", ".join(allowed_methods(pattern))
        for method in {"GET", "PUT", "POST", "PATCH", "DELETE"} - set(methods):
            assert alice.request(method, path).status_code == 405
    operations = [operation for methods in ROUTES.values() for operation in methods.values()]
    assert {operation.name for operation in operations} == set(OPERATIONS)
    assert {name for operation in operations for name in (*operation.query, *operation.headers)} == set(PARAMETERS)


def test_options() -> None:
    """Each option has a group of those that are listed, a text, and a default unless something else decides it."""
    body = openapi.document()["paths"]["/queues/{queue}"]["patch"]["requestBody"]["content"]["application/json"]
    options = body["schema"]["properties"]["options"]
    told = {name: field for name, field in options["properties"].items() if name != COLLECTION}
    assert {field["x-group"] for field in told.values()} == set(options["x-groups"])
    assert all(field["description"] for field in told.values())
    assert {name for name in told if "default" not in told[name]} == {"pubsub#access_model", "stanzaq#dead_letter_node"}


def test_generated_clients() -> None:
    """Generators leave out operations with a parameter without a type or of a time, or a body only of types they do not know."""
    said = openapi.document()
    operations = [each for path in said["paths"].values() for method, each in path.items() if method != "parameters"]
    untyped = {
        (operation["operationId"], parameter["name"])
        for operation in operations
        for parameter in operation.get("parameters", [])
        if parameter["schema"].keys().isdisjoint({"type", "$ref"}) or parameter["schema"].get("format") == "date-time"
    }
    bodies = {
        operation["operationId"]: operation["requestBody"]["content"]
        for operation in operations
        if "requestBody" in operation
    }
    assert not untyped and not {name for name, kinds in bodies.items() if set(kinds) == {"*/*"}}


# Its phase `coverage` makes thousands of requests, which take longer than all others together.
SHORT: Final = ("--max-examples", "3", "--phases", "examples,fuzzing,stateful")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "extent",
    [pytest.param(SHORT, id="short"), pytest.param(("--max-examples", "100"), id="long", marks=pytest.mark.soak)],
)
def test_as_described(tmp_path: Path, extent: tuple[str, ...]) -> None:
    """Requests that schemathesis makes from the document, or against it, singly and in sequences, are answered as described."""
    tool, config = Path(sys.executable).with_name("schemathesis"), ROOT / "schemathesis.toml"
    with RedisServer(binary=valkey_binary()) as redis, RestFrontend(redis.url, HTTP_RATE="0") as frontend:
        asked = [f"{frontend.url}/openapi.json", "--auth", f"{ALICE}:{PASSWORD}", "--checks", "all", "--no-color"]
        # Guesses are slowed: after five wrong passwords the next one is 429, which test_identity.py looks at.
        asked += ["--exclude-checks", "ignored_auth"]
        done = subprocess.run(
            [
                tool,
                "--config-file",
                config,
                "run",
                *asked,
                *extent,
                "--seed",
                "1",
                "--no-shrink",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        tested = re.search(r"(\d+) passed", done.stdout)
        assert tested and int(tested[1]) > len(ROUTES)
        assert frontend.probe("/readyz")[0] == 200 and "Traceback" not in frontend.log

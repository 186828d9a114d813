"""The description of the door: it is valid, it is the table of routes, and whoever goes by it finds it true."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from frontends.rest import openapi, resources
from frontends.rest.paths import OPENAPI, UI, UI_FILE
from frontends.rest.routes import PARAMETERS, ROUTES, allowed
from tests.doors.rest.served import RestFrontend, basic_words


def test_one_truth(frontend: RestFrontend, alice: httpx.Client) -> None:
    """Routes, document and operations name the same, and each path refuses what the document has not."""
    document = alice.get("/openapi.json").json()
    assert document == openapi.document()
    for pattern, methods in ROUTES.items():
        described = {name for name in document["paths"][pattern] if name != "parameters"}
        assert described == {method.lower() for method in methods}
        path = pattern.replace("{queue}", "q").replace("{message}", "m")
        assert alice.options(path).headers["Allow"] == ", ".join(allowed(pattern))
        for method in {"GET", "PUT", "POST", "PATCH", "DELETE"} - set(methods):
            assert alice.request(method, path).status_code == 405
    operations = [operation for methods in ROUTES.values() for operation in methods.values()]
    assert {operation.name for operation in operations} == set(resources.OPERATIONS)
    assert {name for operation in operations for name in (*operation.query, *operation.headers)} == set(PARAMETERS)


load_all_checks()
SCHEMA = schemathesis.openapi.from_dict(openapi.document())
CASES = [
    (pattern, method, mode)
    for pattern, methods in ROUTES.items()
    for method in methods
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    # Nothing can be wrong about what takes nothing.
    if mode is GenerationMode.POSITIVE or pattern not in {OPENAPI, UI, UI_FILE}
]
# Which characters a name may have, and what an option's number may be, no schema says: what fits it may be refused.
CHECKED = [check for check in CHECKS.get_all() if check.__name__ != "positive_data_acceptance"]


@pytest.mark.parametrize(("pattern", "method", "mode"), CASES)
def test_as_described(frontend: RestFrontend, pattern: str, method: str, mode: GenerationMode) -> None:
    """Whatever is made up by the description, or against it, is answered as it says."""
    operation = SCHEMA[pattern][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=12,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    def answered(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=frontend.url, headers={"Authorization": basic_words()}, checks=CHECKED)  # type: ignore[arg-type]  # it takes what it gives

    answered()

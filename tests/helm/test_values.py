"""The values, their schema, their table in the README and the product's settings agree."""

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import yaml

from broker.settings import Settings
from tests.helm.charts import CHART, ROOT

TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml.safe_load(TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
MADE_BY_THE_CHART = {
    "redis_url",
    "redis_sentinel_username",
    "redis_sentinel_password",
    "xmpp_server",
    "xmpp_tls",
    "xmpp_ca",
    "xmpp_domain",
    "xmpp_secret",
    "metrics_bind",
    "http_bind",
    "http_passwords",
    "amqp_bind",
    "amqp_certificate",
    "amqp_client_ca",
    "amqp_key",
    "amqp_passwords",
    "amqp_event_hubs_keys",
    "traces",
}


def _module() -> Any:  # noqa: ANN401  (a module found by its path)
    spec = importlib.util.spec_from_file_location("values_table", ROOT / "deploy" / "helm" / "values_table.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _resolved(schema: Any) -> Any:  # noqa: ANN401  (JSON)
    return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _objects(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (JSON)
    schema = _resolved(schema)
    if schema.get("type") == "object" and "properties" in schema:
        yield path, schema
        for name, inner in schema["properties"].items():
            yield from _objects(inner, f"{path}.{name}")


def _leaves(values: Any, schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # noqa: ANN401  (YAML)
    for name, value in values.items():
        inner = _resolved(_resolved(schema)["properties"][name])
        if isinstance(value, dict) and value and name != "resources" and "properties" in inner:
            yield from _leaves(value, inner, (*path, name))
        else:
            yield (*path, name)


def test_table() -> None:
    """The table in README is the one that `make helm-docs` writes now."""
    page = (CHART / "README.md").read_text()
    assert page == _module().filled(page, TEXT)


def test_all_are_explained() -> None:
    """Each value has a comment, and so a row."""
    explained = {path for path, _, _ in _module().rows(TEXT)}
    assert {".".join(path) for path in _leaves(VALUES, SCHEMA)} == explained - {"settings"}


def test_schema_is_strict() -> None:
    """No object of known keys accepts an unknown one, and no known key is missing from values.yaml."""
    for path, schema in _objects(SCHEMA):
        assert schema["additionalProperties"] is False, path
        values = VALUES
        for name in path.split(".")[1:]:
            values = values.get(name, {})
        if path not in {"", ".settings"} and "resources" not in path:
            assert set(values) == set(schema["properties"]), path


def test_settings_are_known() -> None:
    """The settings that may be set are the product's, except those that the chart makes of other values."""
    known = set(SCHEMA["properties"]["settings"]["properties"])
    assert known == set(Settings.model_fields) - MADE_BY_THE_CHART
    assert VALUES["settings"].keys() <= known


def test_default_drain() -> None:
    """The drain time used for a pod's grace period is the product's default."""
    assert VALUES["settings"]["drain_seconds"] == Settings.model_fields["drain_seconds"].default

"""Settings of a service that admits everybody, for tests whose accounts use each other's nodes. Must not know any test."""

from typing import Any, Final

from broker.model.nodes.options import AccessModel
from broker.settings import NodeCreation

ADMITTING: Final[dict[str, Any]] = {"default_access_model": AccessModel.OPEN, "node_creation": NodeCreation.ANYONE}
"""For `Settings` in the process of the test."""

ADMITTING_ENVIRONMENT: Final = {name.upper(): value.value for name, value in ADMITTING.items()}
"""The same for a frontend in a process of its own."""

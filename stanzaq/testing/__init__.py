"""Tests of a worker without servers to set up: `TestBroker` runs its tasks in this process, on an embedded Redis.

It needs the service's own code: the extra `stanzaq[testing]`.
"""

from stanzaq.service import require_service

try:
    require_service("testing")
    from frontends.tools.dev import Service
    from stanzaq.testing.broker import DeadLetter, TestBroker
    from stanzaq.testing.sent import Sent
except ModuleNotFoundError as missing:
    _MSG = f"stanzaq.testing needs the service, and {missing.name} is missing: pip install 'stanzaq[testing]'"
    raise ModuleNotFoundError(_MSG, name=missing.name) from missing

__all__ = ["DeadLetter", "Sent", "Service", "TestBroker"]

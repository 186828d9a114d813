"""The command of `helm test`, run as its pod runs it, with a real XMPP server and a frontend."""

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from tests.helm.charts import Object, the
from tests.helm.conftest import DOMAIN, Everything


def _pod(everything: Everything, name: str) -> Object:
    return the(everything["helm4", name], "Pod", "test")


def _ran(pod: Object, **other: str) -> subprocess.CompletedProcess[str]:
    """Run the pod's command with its environment, except for what differs on this machine."""
    (container,) = pod["spec"]["containers"]
    named: dict[str, Any] = {each["name"]: each["value"] for each in container["env"]}
    assert other.keys() <= named.keys()
    python, *rest = container["command"]
    assert python == "python"
    return subprocess.run(
        [sys.executable, *rest],
        env={"PATH": os.environ["PATH"], **named, **other},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.fixture
def account(ejabberd: Ejabberd, tmp_path: Path) -> dict[str, str]:
    """Return the pod's settings for this machine's XMPP server."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    jid = ejabberd.register(f"tester-{secrets.token_hex(4)}", "secret")
    return {
        "JID": jid,
        "PASSWORD_FILE": str(password),
        "SERVER": f"{ejabberd.host}:{ejabberd.c2s_port}",
        "SERVICE": DOMAIN,
        "TLS": "false",
    }


def test_through(everything: Everything, frontend: Frontend, account: dict[str, str]) -> None:
    """An item is published, delivered and acknowledged through the front door, twice if need be."""
    for _ in range(2):
        done = _ran(_pod(everything, "monitoring"), **account)
        assert (done.returncode, done.stdout) == (0, "an item was published, delivered and acknowledged\n"), done.stderr


def test_nobody_serves(everything: Everything, ejabberd: Ejabberd, account: dict[str, str]) -> None:
    """Without a frontend the test fails, with one line that names who refused."""
    done = _ran(_pod(everything, "monitoring"), **account | {"SERVICE": "nobody.localhost"})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("nobody.localhost refused a request")


def test_domain_of_an_ordinal(everything: Everything) -> None:
    """With a domain for each replica the test goes to that of the first."""
    (container,) = _pod(everything, "prosody-ordinal")["spec"]["containers"]
    assert {"name": "SERVICE", "value": "queue-0.example.org"} in container["env"]


def test_only_when_asked(everything: Everything) -> None:
    """The pod runs for `helm test` alone, and ends by itself."""
    pod = _pod(everything, "monitoring")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] >= 60

"""The Dockerfile as text: `make image-test` tries the image itself, where one can be built."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from server.hatch_build import BUNDLED
from tests.helm.charts import ROOT, Object, pods, rendered, values

DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def _stages() -> dict[str, str]:
    """Return the text of each stage by its name."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()))
    return dict(re.findall(r"FROM \S+ AS (\S+)\n((?:(?!FROM ).*\n?)*)", text))


def test_hadolint() -> None:
    """Hadolint reports nothing that is not justified in place."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_pod_is_the_image() -> None:
    """The chart relies on the image's user and entry point."""
    stages = _stages()
    assert stages.keys() == {"build", "build-reports", "runtime", "reports", "frontend"}
    assert 'ENTRYPOINT ["tini", "--", "stanzaq"]' in stages["runtime"]
    everything: list[Object] = [*rendered("helm4", "--values", values("report"))]
    for pod in pods(everything):
        security = pod["spec"]["securityContext"]
        user = f"USER {security['runAsUser']}:{security['runAsGroup']}"
        assert all(user in stages[name] for name in ("frontend", "reports"))
        assert "command" not in pod["spec"]["containers"][0]


def test_compilers_stay_behind() -> None:
    """Only the stages that build install a compiler, and none of them is what runs."""
    for name, body in _stages().items():
        assert ("gcc" in body) == (name == "build"), name


def test_context_has_all_of_the_wheel() -> None:
    """Every file of the wheels is in the build context."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["only-include"])
    assert packages | {*BUNDLED, "server", "pyproject.toml", project["project"]["readme"]} <= kept

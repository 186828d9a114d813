"""The Dockerfile, read: what it leaves in the image is tried by `make image-test`, where an image can be built."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from hatch_build import BUNDLED
from tests.helm.charts import ROOT, Object, pods, rendered, values

DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def _stages() -> dict[str, str]:
    """Give the text of each stage by its name."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()))
    return dict(re.findall(r"FROM \S+ AS (\S+)\n((?:(?!FROM ).*\n?)*)", text))


def test_hadolint() -> None:
    """Hadolint has nothing to say that is not answered in place."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_pod_is_the_image() -> None:
    """The user and the entry point that the chart relies on are the image's."""
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
    """What the wheel is made of is not kept out of the build."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert packages | {*BUNDLED, "hatch_build.py", "pyproject.toml", project["project"]["readme"]} <= kept

"""The Dockerfile as text: `make image-test` tries the image itself, where one can be built."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
    assert 'ENTRYPOINT ["tini", "--", "entrypoint"]' in stages["reports"]
    everything: list[Object] = [*rendered("helm4", "--values", values("report"))]
    for pod in pods(everything):
        security = pod["spec"]["securityContext"]
        user = f"USER {security['runAsUser']}:{security['runAsGroup']}"
        assert all(user in stages[name] for name in ("frontend", "reports"))
        assert "command" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("given", "started"),
    [
        (["report", "collect", "--out", "a b"], ["stanzaq", "report", "collect", "--out", "a b"]),
        ([], ["stanzaq"]),
        (
            [
                "driver",
                "--properties-file",
                "/opt/spark/conf/spark.properties",
                "--class",
                "Main",
                "local:///cli.py",
                "x y",
            ],
            [
                *("spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.7"),
                *("--properties-file", "/opt/spark/conf/spark.properties", "--class", "Main", "local:///cli.py", "x y"),
            ],
        ),
        (
            ["executor"],
            [
                *("java", "-Da=b c", "-Dtwo=2", "-Xms512m", "-Xmx512m"),
                "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
                *("--driver-url", "spark://driver", "--executor-id", "3", "--cores", "2", "--app-id", "spark-1"),
                *("--hostname", "10.0.0.8", "--resourceProfileId", "0", "--podName", "report-exec-3"),
                "/conf:/extra/*:/spark/jars/*",
            ],
        ),
    ],
)
def test_entrypoint(tmp_path: Path, given: list[str], started: list[str]) -> None:
    """The image for reports starts what Spark asks of it on Kubernetes, and otherwise a command of stanzaq."""
    for name in ("stanzaq", "spark-submit", "java"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@" ${CLASSPATH+"$CLASSPATH"}\n')
        (tmp_path / name).chmod(0o755)
    told = {
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7", "SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dtwo=2",
        "SPARK_HOME": "/spark", "SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/extra/*",
        "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_DRIVER_URL": "spark://driver", "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "report-exec-3",
    }  # fmt: skip
    done = subprocess.run(
        [ROOT / "deploy" / "entrypoint.sh", *given],
        env={**told, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == started


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

"""The rendered chart: without warnings, the same by both Helms, valid for every Kubernetes, Prometheus and KEDA."""

import json
import re
import shutil
import subprocess
import textwrap
from functools import cache
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest
from kubernetes_validate import utils

from tests.helm.charts import (
    CHART,
    HELMS,
    MAINLY_4,
    NAMES,
    ROOT,
    TOOLS,
    Object,
    documents,
    having,
    helm,
    only,
    rendered,
    the,
    values,
    written,
)
from tests.helm.conftest import Everything

KUBERNETES = [f"1.{minor}" for minor in range(28, 38)]
CUSTOM = {"monitoring.coreos.com/v1", "keda.sh/v1alpha1", "sparkoperator.k8s.io/v1beta2"}


@pytest.mark.parametrize("version", MAINLY_4)
@pytest.mark.parametrize("name", NAMES)
def test_lint(version: str, name: str) -> None:
    """`helm lint --strict` reports nothing for any values file."""
    done = helm(version, "lint", "--strict", CHART, "--values", values(name))
    assert done.returncode == 0, done.stdout


def test_both_agree(everything: Everything) -> None:
    """Helm 3.17 and Helm 4.3 make the same objects."""
    for name in NAMES:
        assert everything["helm3", name] == everything["helm4", name], name


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes(version: str, everything: Everything, monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects are valid, strictly, for each Kubernetes from 1.28 to 1.37."""
    # It reads the same megabytes for every object.
    monkeypatch.setattr(utils, "schema_contents", cache(utils.schema_contents))
    # For a missing version it silently takes an older one.
    assert version in {utils.major_minor(each) for each in utils.all_versions()}
    seen = set()
    for name in NAMES:
        for found in everything["helm4", name]:
            # Many files make the same object.
            text = json.dumps(found.get("spec", found), sort_keys=True) + found["kind"]
            if found["apiVersion"] not in CUSTOM and text not in seen:
                seen.add(text)
                kubernetes_validate.validate(found, version, strict=True)
    assert seen


ODD: Final = """
nameOverride: "on"
redis: {url: "redis://r:6379/0"}
xmpp: {server: "x:5347", domain: q.example.org, existingSecret: {name: "123", key: "1"}}
rest:
  enabled: true
  existingSecret: {name: "2024"}
  ingress: {enabled: true, host: q.example.org, className: "1", tlsSecret: "42"}
priorityClassName: "100"
image: {pullSecrets: ["7"]}
report: {collect: {enabled: true}, volume: {storageClass: "3"}}
monitoring: {monitor: pod}
workers: {prometheus: "http://p", scaled: [{deployment: "12", node: jobs, waitingPerReplica: 1, maxReplicas: 2}]}
"""


def test_names_that_look_like_numbers(tmp_path: Path) -> None:
    """A name that YAML reads as a number or a boolean stays a name."""
    (tmp_path / "values.yaml").write_text(ODD)
    found = rendered("helm4", "--namespace", "2025", "--values", tmp_path / "values.yaml")
    for each in found:
        assert each["metadata"]["namespace"] == "2025" and each["metadata"]["labels"]["app.kubernetes.io/name"] == "on"
        if each["apiVersion"] not in CUSTOM:
            kubernetes_validate.validate(each, "1.30", strict=True)
    scaled = [each["spec"]["scaleTargetRef"]["name"] for each in found if each["kind"] == "ScaledObject"]
    assert "12" in scaled and all(isinstance(name, str) for name in scaled)


def test_strictness_is_real(everything: Everything) -> None:
    """A field that Kubernetes does not know would be found."""
    wrong = json.loads(json.dumps(everything["helm4", "ejabberd"][0]))
    wrong["spec"]["unheard-of"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.30", strict=True)


def test_custom_resources(everything: Everything) -> None:
    """Monitors, rules and scaled objects are valid by the models of their operators; a wrong one would be found."""
    found = [each for name in NAMES for each in everything["helm4", name] if each["apiVersion"] in CUSTOM]
    known = [each for each in found if not each["apiVersion"].startswith("sparkoperator")]
    assert {each["kind"] for each in known} == {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ScaledObject"}
    assert _judged(known) == [""] * len(known)
    wrong = [{**each, "spec": {**each["spec"], "selector": 1, "groups": 1, "scaleTargetRef": 1}} for each in known]
    assert "" not in _judged(wrong)


def _judged(objects: list[Object]) -> list[str]:
    """Return each object's errors by the models."""
    command: list[str | Path] = ["node", Path(__file__).with_name("models.mjs"), TOOLS / "node_modules"]
    done = subprocess.run(command, input=json.dumps(objects), capture_output=True, text=True, check=True, timeout=60)
    complaints: list[str] = json.loads(done.stdout)
    return complaints


def test_hosts_of_images(objects: list[Object]) -> None:
    """The chart names no registry of its own: a repository comes from the values."""
    text = json.dumps(objects)
    assert "docker.io" not in text and "ghcr.io" not in text


@pytest.mark.parametrize("version", HELMS)
def test_notes(version: str, tmp_path: Path) -> None:
    """The notes after the installation name the domains for the XMPP server, and how to get more."""
    # Helm prints them only with a cluster: here they are one more object.
    chart = shutil.copytree(CHART, tmp_path / "stanzaq")
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text(f"kind: Notes\ntext: |\n{textwrap.indent(notes, '  ')}")
    text = the(rendered(version, "--values", values("prosody-ordinal"), chart=chart), "Notes")["text"]
    assert [f"queue-{number}.example.org" in text for number in range(4)] == [True, True, True, False]
    assert "helm -n work test queues" in text
    assert "rollout status statefulset/queues-stanzaq-xmpp" in text


def test_runbook() -> None:
    """The runbook names workloads that exist in a release `queues`, in one called `stanzaq`, and for Prosody's ordinals."""
    (line,) = [line for line in (ROOT / "docs" / "operations.md").read_text().splitlines() if "kubectl exec" in line]
    named = {name.replace("RELEASE", "queues") for name in re.findall(r"\b(?:deploy|statefulset)/[\w-]+", line)}
    there = set()
    for release, profile in (("queues", "ejabberd"), ("stanzaq", "ejabberd"), ("queues", "prosody")):
        done = helm("helm4", "template", release, CHART, *having("ejabberd", f"xmpp.profile={profile}"))
        found = documents(done.stdout)
        there |= {f"deploy/{each['metadata']['name']}" for each in only(found, "Deployment")}
        there |= {f"statefulset/{each['metadata']['name']}" for each in only(found, "StatefulSet")}
    assert named == there


def test_checkov(everything: Everything, tmp_path: Path) -> None:
    """Checkov reports nothing that is not justified in place."""
    seen = set()
    for name in NAMES:
        for number, found in enumerate(everything["helm4", name]):
            # Many files make the same object, perhaps with another name.
            text = json.dumps([found["kind"], found.get("spec", found)], sort_keys=True)
            if text not in seen:
                seen.add(text)
                (tmp_path / f"{name}-{number}.yaml").write_text(written([found]))
    command: list[str | Path] = [TOOLS / "checkov" / "bin" / "checkov", "--framework", "kubernetes", "--skip-download"]
    command += ["--directory", tmp_path, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    found = json.loads(done.stdout)
    assert [(each["check_id"], each["resource"]) for each in found["results"]["failed_checks"]] == []
    assert found["summary"]["passed"] > 100
    assert all(each["check_result"]["suppress_comment"] for each in found["results"]["skipped_checks"])

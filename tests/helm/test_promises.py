"""The chart's guarantees about pods, their number, and secrets, checked on the rendered objects."""

import base64
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from broker.model.nodes.options import NodeConfig
from frontends.commands.stores.declared_file import read
from tests.helm.charts import (
    CHART,
    HELMS,
    MAINLY_4,
    NAMES,
    SPARK,
    Object,
    documents,
    having,
    helm,
    only,
    pods,
    rendered,
    the,
    values,
)
from tests.helm.conftest import Everything

DOORS = {"xmpp", "rest", "amqp"}


def _doors(objects: list[Object]) -> list[Object]:
    workloads = [*only(objects, "Deployment"), *only(objects, "StatefulSet")]
    return [each for each in workloads if each["metadata"]["labels"]["app.kubernetes.io/component"] in DOORS]


def _environment(pod: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0].get("env", [])}


def test_security(objects: list[Object]) -> None:
    """Every pod runs as a user of its own with a read-only root, without capabilities, token or service links."""
    assert pods(objects)
    for pod in pods(objects):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"].get("runAsUser", 10_000) >= 10_000
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert all(each["automountServiceAccountToken"] is False for each in only(objects, "ServiceAccount"))


def test_user_of_the_cluster(everything: Everything) -> None:
    """Where the cluster gives each namespace its users, as OpenShift does, no pod asks for one."""
    for pod in pods(everything["helm4", "openshift"]):
        context = pod["spec"]["securityContext"]
        assert context.keys() == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
    changed = ["redis.development.enabled=true", "redis.existingSecret.name=", "securityContext.privileged=false"]
    for pod in pods(rendered("helm4", *having("openshift", *changed, "podSecurityContext.fsGroup=7"))):
        assert pod["spec"]["securityContext"]["fsGroup"] == 7
        assert pod["spec"]["containers"][0]["securityContext"]["privileged"] is False


def test_fullname(everything: Everything) -> None:
    """The names of all objects begin with `fullnameOverride`, and those that name others name these."""
    objects = everything["helm4", "openshift"]
    names = {each["metadata"]["name"] for each in objects}
    assert names == {"queue", "queue-xmpp", "queue-rest", "queue-amqp", "queue-passwords"}
    for door in _doors(objects):
        spec = door["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == spec["containers"][0]["envFrom"][0]["configMapRef"]["name"] == "queue"


def test_extra_objects(everything: Everything) -> None:
    """More objects are rendered as templates; a Secret among them restarts the frontends when it changes."""

    def checksum(objects: list[Object]) -> object:
        return the(objects, "Deployment", "rest")["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"]

    objects = everything["helm4", "openshift"]
    assert the(objects, "Secret")["metadata"]["name"] == "queue-passwords"
    found = the(objects, "Deployment", "rest")["spec"]["template"]["spec"]["volumes"][0]["projected"]["sources"]
    assert "queue-passwords" in {each["secret"]["name"] for each in found}
    changed = rendered("helm4", *having("openshift", "extraObjects[0].stringData.http-passwords=other"))
    assert checksum(changed) != checksum(objects)
    annotated = rendered("helm4", *having("openshift", "extraObjects[0].kind=ConfigMap"))
    other = rendered(
        "helm4", *having("openshift", "extraObjects[0].kind=ConfigMap", "extraObjects[0].metadata.annotations.a=b")
    )
    assert checksum(annotated) == checksum(other)


def test_probes(objects: list[Object]) -> None:
    """Startup and liveness check only the loop, readiness the connections; a standby is ready when it lives."""
    for door in _doors(objects):
        (container,) = door["spec"]["template"]["spec"]["containers"]
        paths = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")]
        stands_by = "/livez" in paths[2]
        assert paths == ["/livez", "/livez", "/livez" if stands_by else "/readyz"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert _environment(door["spec"]["template"])["STANZAQ_METRICS_BIND"] == f"[::]:{ports['metrics']}"


def test_only_standby_is_ready_unconnected(everything: Everything) -> None:
    """Only in Prosody's standby profile is an unconnected frontend ready, so that its rollout completes."""
    for name in NAMES:
        for door in _doors(everything["helm4", name]):
            path = door["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"]
            assert (path == "/livez") == (name == "prosody-standby"), name


@pytest.mark.parametrize("drain", [0, 5, 12.5, 600])
def test_grace(drain: float) -> None:
    """A pod's grace period exceeds its preStop and the three drains of XMPP: of the core, of open requests, of the stream."""
    objects = rendered("helm4", *having("ejabberd"), "--set-json", f"settings.drain_seconds={drain}")
    spec = the(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    sleep, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert spec["terminationGracePeriodSeconds"] >= int(seconds) + 3 * drain + 5
    assert the(objects, "ConfigMap")["data"]["STANZAQ_DRAIN_SECONDS"] == f"{drain}"


def test_rolling(objects: list[Object]) -> None:
    """A rollout stops no frontend before another runs; only where each has a domain is it replaced in place."""
    for door in _doors(objects):
        if door["kind"] == "Deployment":
            strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
            assert door["spec"]["strategy"] == strategy
        else:
            assert door["spec"]["updateStrategy"] == {"type": "RollingUpdate"}


def test_spread(objects: list[Object]) -> None:
    """The frontends of a door are spread over nodes and zones, by their own labels."""
    for door in _doors(objects):
        spread = door["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert {each["topologyKey"] for each in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        chosen = door["spec"]["selector"]["matchLabels"]
        assert all(each["labelSelector"]["matchLabels"] == chosen for each in spread)
        assert chosen.items() <= door["spec"]["template"]["metadata"]["labels"].items()


def test_disruptions(objects: list[Object]) -> None:
    """A door has a disruption budget exactly when more than one frontend of it may run: it lets one go at a time."""
    budgets = {each["metadata"]["name"]: each for each in only(objects, "PodDisruptionBudget")}
    for door in _doors(objects):
        scaled = [*only(objects, "HorizontalPodAutoscaler"), *only(objects, "ScaledObject")]
        most = door["spec"].get("replicas")
        for each in scaled:
            if each["spec"]["scaleTargetRef"]["name"] == door["metadata"]["name"]:
                most = each["spec"].get("maxReplicas", each["spec"].get("maxReplicaCount"))
        budget = budgets.get(door["metadata"]["name"])
        assert (budget is not None) == (most > 1)
        if budget:
            assert budget["spec"]["maxUnavailable"] == 1
            assert budget["spec"]["selector"] == door["spec"]["selector"]


@pytest.mark.parametrize("version", HELMS)
def test_autoscalers(version: str) -> None:
    """Under an autoscaler the Deployment has no replicas, or each upgrade would undo the scaling."""
    for name, kind in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        objects = rendered(version, "--values", values(name))
        door = the(objects, "Deployment", "xmpp")
        assert "replicas" not in door["spec"]
        assert the(objects, kind)["spec"]["scaleTargetRef"]["name"] == door["metadata"]["name"]


def test_processor_time(everything: Everything) -> None:
    """Frontends are scaled by processor time beside the backlog, or alone."""
    objects = everything["helm4", "workers"]
    cpu, waiting = the(objects, "HorizontalPodAutoscaler", "xmpp")["spec"]["metrics"]
    assert cpu["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    assert waiting["external"]["target"] == {"type": "AverageValue", "averageValue": "1000"}
    alone = the(objects, "ScaledObject", "rest")["spec"]
    assert [(each["type"], each["metadata"]) for each in alone["triggers"]] == [("cpu", {"value": "60"})]
    assert "fallback" not in alone


def test_workers(everything: Everything) -> None:
    """Deployments of workers, which are not the chart's, are scaled by what waits in their node alone."""
    scaled = only(everything["helm4", "workers"], "ScaledObject", "worker")
    found = {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in scaled}
    assert {name: (spec["minReplicaCount"], spec["maxReplicaCount"]) for name, spec in found.items()} == {
        "resizers": (0, 20),
        "mailers": (1, 5),
    }
    (trigger,) = found["mailers"]["triggers"]
    assert trigger["metadata"]["threshold"] == "20"
    series = 'namespace="work",app_kubernetes_io_instance="queues",node="mail/out"'
    assert f"max(stanzaq_node_waiting{{{series}}} - " in trigger["metadata"]["query"]


def test_tls_to_the_xmpp_server(everything: Everything) -> None:
    """Frontends of XMPP speak TLS, and read the authorities from a Secret; the other doors need none."""
    objects = everything["helm4", "workers"]
    assert the(objects, "ConfigMap")["data"]["STANZAQ_XMPP_TLS"] == "true"
    for door in ("xmpp", "rest"):
        pod = the(objects, "Deployment", door)["spec"]["template"]
        volumes = {each["name"]: each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each}
        assert volumes == ({"xmpp-tls": "authorities"} if door == "xmpp" else {})
        path = _environment(pod).get("STANZAQ_XMPP_CA")
        assert path == ("/etc/stanzaq/xmpp-tls/ca.crt" if door == "xmpp" else None)


def test_additions(everything: Everything) -> None:
    """What a cluster adds to pods is in every pod of frontends and reports, and changes no selector."""
    objects = everything["helm4", "workers"]
    found = pods(objects)
    assert len(found) == 3
    for pod in found:
        labels = pod["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["example.org/cost"]) == ("queue", "42")
        assert pod["metadata"]["annotations"]["example.org/team"] == "sre"
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert spec["priorityClassName"] == "high" and "podAntiAffinity" in spec["affinity"]
        assert _environment(pod)["TZ"] == "Europe/Berlin"
        assert {each["name"] for each in container["volumeMounts"]} <= {each["name"] for each in spec["volumes"]}
        assert "/etc/ssl/private-authorities" in {each["mountPath"] for each in container["volumeMounts"]}
    assert the(objects, "ServiceAccount")["metadata"]["annotations"] == {"example.org/identity": "queue"}
    assert all("example.org/cost" not in door["spec"]["selector"]["matchLabels"] for door in _doors(objects))
    ports = [port for pod in found for port in pod["spec"]["containers"][0].get("ports", ())]
    ports += [port for service in only(objects, "Service") for port in service["spec"]["ports"]]
    assert {port["protocol"] for port in ports} == {"TCP"}


def test_from_none() -> None:
    """KEDA starts a door without a frontend at the first waiting item, by the metrics of other doors."""
    objects = rendered("helm4", "--values", values("keda"))
    spec = the(objects, "ScaledObject")["spec"]
    (trigger,) = spec["triggers"]
    assert spec["minReplicaCount"] == 0
    assert trigger["metadata"]["activationThreshold"] == "0"
    assert the(objects, "Deployment", "rest")["spec"]["replicas"] > 0
    assert "component" not in trigger["metadata"]["query"]


def test_secrets_are_files(objects: list[Object]) -> None:
    """No pod has a secret in its environment or arguments; it reads them from files that only its group may read."""
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        named = _environment(pod)
        assert not {"STANZAQ_REDIS_URL", "STANZAQ_XMPP_SECRET"} & named.keys()
        assert not any("secretKeyRef" in str(each) or "secretRef" in str(each) for each in container.get("env", []))
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        for path in (value for name, value in named.items() if name.endswith("_FILE")):
            assert path.rpartition("/")[0] in mounts
        for volume in pod["spec"]["volumes"]:
            for source in (volume.get("secret"), volume.get("projected")):
                assert source is None or source["defaultMode"] == 0o440


@pytest.mark.parametrize("version", HELMS)
def test_secrets_are_nowhere_else(version: str) -> None:
    """A secret in the values is in the chart's Secret and in no other object, the URL of Redis whole."""
    settings = ["redis.url=redis://:hunter2@redis:6379/3", "xmpp.secret=swordfish"]
    objects = rendered(version, *having("ejabberd", *settings))
    secret = the(objects, "Secret")
    shown = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert shown == {"redis-url": "redis://:hunter2@redis:6379/3", "xmpp-secret": "swordfish"}
    others = json.dumps([each for each in objects if each is not secret])
    assert "hunter2" not in others and "swordfish" not in others


def test_existing_secrets(everything: Everything) -> None:
    """With existing Secrets the chart creates none, and pods read theirs under the configured keys."""
    objects = everything["helm4", "existing-secrets"]
    assert only(objects, "Secret") == []
    (volume,) = the(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    read = [(each["secret"]["name"], each["secret"]["items"]) for each in volume["projected"]["sources"]]
    assert read == [
        ("redis", [{"key": "url", "path": "redis-url"}]),
        ("component", [{"key": "secret", "path": "xmpp-secret"}]),
    ]


@pytest.mark.parametrize("changed", ["settings.node_quota=7", "xmpp.domain=other.example.org", "xmpp.secret=other"])
def test_changes_roll(changed: str) -> None:
    """Only a change of the configuration or of a secret changes the pods, so that they are replaced."""

    def annotations(*settings: str) -> object:
        objects = rendered("helm4", *having("ejabberd", *settings))
        return the(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations(changed) != annotations()
    assert annotations("monitoring.dashboard=true") == annotations()


def test_settings() -> None:
    """Settings reach the frontends by the environment: lists with commas, numbers without exponents."""
    # As JSON, a number comes as it does from a file.
    more = ("--set-json", "settings.qos_total_bytes=268435456,settings.default_queueing=false")
    for version in HELMS:
        data = the(rendered(version, *having("existing-secrets"), *more), "ConfigMap")["data"]
        assert data["STANZAQ_ADMINS"] == "romeo@example.org,juliet@example.org"
        assert data["STANZAQ_QOS_TOTAL_BYTES"] == "268435456"
        assert data["STANZAQ_DEFAULT_QUEUEING"] == "false"
        assert data["STANZAQ_DRAIN_SECONDS"] == "12.5"


@pytest.mark.parametrize("name", ["admins", "event_log", "http_anonymous", "jwt_issuer", "amqp_anonymous"])
def test_empty_settings(name: str) -> None:
    """An empty setting is one that is not set: the program refuses some of them."""
    empty = "[]" if name == "admins" else '""'
    data = the(rendered("helm4", *having("ejabberd"), "--set-json", f"settings.{name}={empty}"), "ConfigMap")["data"]
    assert f"STANZAQ_{name.upper()}" not in data


def test_traces(everything: Everything) -> None:
    """Issue 8: frontends get a collector, may reach it through the NetworkPolicy, and none unless one is named."""
    for name in ("monitoring", "ejabberd"):
        objects = everything["helm4", name]
        (data,) = (each["data"] for each in only(objects, "ConfigMap") if "STANZAQ_XMPP_DOMAIN" in each["data"])
        traced = {key: value for key, value in data.items() if key.startswith("OTEL_") or key == "STANZAQ_TRACES"}
        egress = [
            port["port"] for rule in the(objects, "NetworkPolicy", "xmpp")["spec"]["egress"] for port in rule["ports"]
        ]
        assert (4318 in egress) == bool(traced) == (name == "monitoring")
        assert not traced or traced == {
            "STANZAQ_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.observability:4318",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
        }


@pytest.mark.parametrize("version", HELMS)
def test_prosody_ordinals(version: str) -> None:
    """With Prosody each replica has a domain by its ordinal, set after the variable that it is made of."""
    objects = rendered(version, "--values", values("prosody-ordinal"))
    replicas = the(objects, "StatefulSet")
    assert replicas["spec"]["replicas"] == 3
    environment = replicas["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [each["name"] for each in environment]
    assert names.index("ORDINAL") < names.index("STANZAQ_XMPP_DOMAIN")
    domain = environment[names.index("STANZAQ_XMPP_DOMAIN")]["value"]
    assert domain == "queue-$(ORDINAL).example.org"
    headless = next(
        each for each in only(objects, "Service") if each["metadata"]["name"] == replicas["spec"]["serviceName"]
    )
    assert headless["spec"]["clusterIP"] == "None"


def test_prosody_standby(everything: Everything) -> None:
    """With Prosody's standby all replicas use the one domain."""
    objects = everything["helm4", "prosody-standby"]
    pod = the(objects, "Deployment")["spec"]["template"]
    assert "STANZAQ_XMPP_DOMAIN" not in _environment(pod)
    assert the(objects, "ConfigMap")["data"]["STANZAQ_XMPP_DOMAIN"] == "queue.example.org"


def test_redis_over_tls(everything: Everything) -> None:
    """The URL names the certificates at their place in the pod, and redis-py knows every option of it."""
    from broker.redis_url import Topology, read_url  # noqa: PLC0415

    objects = everything["helm4", "cluster-tls"]
    url = base64.b64decode(the(objects, "Secret")["data"]["redis-url"]).decode()
    read = read_url(url)
    assert read.kind is Topology.CLUSTER
    spec = the(objects, "Deployment")["spec"]["template"]["spec"]
    place = next(each["mountPath"] for each in spec["containers"][0]["volumeMounts"] if each["name"] == "redis-tls")
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "tls.crt", "ssl_keyfile": "tls.key"}
    assert {name: read.options[name] for name in files} == {name: f"{place}/{file}" for name, file in files.items()}


@pytest.mark.parametrize("version", MAINLY_4)
@pytest.mark.parametrize(
    "url",
    [
        "redis://[fd00::12]:6379/0",
        "redis://[fd00::12]/0",
        "redis://:p:1@redis",
        "redis+cluster://a:6379,[fd00::12]",
        "redis+sentinel://u:p@[fd00::12]:26379,b/queues/1",
        "redis+sentinel://u:p@a,b/queues/1?sentinel_username=w&sentinel_password=%2F",
    ],
)
def test_ports_of_redis(version: str, url: str) -> None:
    """A URL whose ports the policy allows is accepted, also with addresses in brackets and without a port; it is valid."""
    from broker.redis_url import read_url  # noqa: PLC0415

    ports = "6379,26379" if "sentinel" in url else "6379"
    settings = ("--set-json", f'redis.url="{url}",redis.ports=[{ports}]')
    secret = the(rendered(version, *having("ejabberd"), *settings), "Secret")
    assert base64.b64decode(secret["data"]["redis-url"]).decode() == url
    read_url(url)


def test_development_redis(everything: Everything) -> None:
    """The development Redis is the one of the URL, refuses instead of evicting, and only this release may reach it."""
    objects = everything["helm4", "development"]
    url = base64.b64decode(the(objects, "Secret")["data"]["redis-url"]).decode()
    service = the(objects, "Service", "redis")
    assert url == f"redis://{service['metadata']['name']}:6379/0"
    command = the(objects, "Deployment", "redis")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    (rule,) = the(objects, "NetworkPolicy", "redis")["spec"]["ingress"]
    assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "queues"


def test_network(objects: list[Object]) -> None:
    """Every pod is under a policy with its directions, and may only reach DNS and the ports that it needs."""
    policies = only(objects, "NetworkPolicy")
    for pod in pods(objects):
        labels = pod["metadata"]["labels"]
        (policy,) = [each for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        out = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert set(out) <= {53, 6379, 26379, 5347, 5222, 4318, 8443}
        assert labels["app.kubernetes.io/component"] == "redis" or 53 in out


def test_network_peers(everything: Everything) -> None:
    """Only peers named in the values may connect or be reached."""
    policy = the(everything["helm4", "sentinel"], "NetworkPolicy")["spec"]
    (scrape,) = policy["ingress"]
    _dns, redis, xmpp = policy["egress"]
    names = [
        peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for peer in chain(scrape["from"], redis["to"], xmpp["to"])
    ]
    assert names == ["monitoring", "redis", "xmpp"]
    assert [each["port"] for each in redis["ports"]] == [6379, 26379]


def test_network_to_the_keys_of_tokens(everything: Everything) -> None:
    """Only HTTP and AMQP take tokens, so only their pods may load the keys that verify them."""
    for policy in only(everything["helm4", "openshift"], "NetworkPolicy"):
        ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert (8443 in ports) == (policy["metadata"]["labels"]["app.kubernetes.io/component"] in {"rest", "amqp"})


def test_ingress(everything: Everything) -> None:
    """The Ingress routes its host to the port of the HTTP door."""
    objects = everything["helm4", "doors"]
    ingress = the(objects, "Ingress")["spec"]
    backend = ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = the(objects, "Service", "rest")
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"]["name"] in [each["name"] for each in service["spec"]["ports"]]
    assert ingress["tls"] == [{"hosts": ["queue.example.org"], "secretName": "queue-tls"}]


def test_doors(everything: Everything) -> None:
    """Each enabled door is a Deployment whose command names it, and whose Service selects its pods."""
    objects = everything["helm4", "doors"]
    for door in ("xmpp", "rest", "amqp"):
        workload, service = the(objects, "Deployment", door), the(objects, "Service", door)
        container = workload["spec"]["template"]["spec"]["containers"][0]
        assert container["args"] == ["serve", door]
        assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"]
        assert {each["targetPort"] for each in service["spec"]["ports"]} == {
            each["name"] for each in container["ports"]
        }
        files = {each["name"]: each["value"] for each in container["env"] if each["name"].endswith("_KEYS_FILE")}
        sources = workload["spec"]["template"]["spec"]["volumes"][0]["projected"]["sources"]
        keys = [each["secret"] for each in sources if each["secret"]["name"] == "hubs"]
        if door == "amqp":
            assert files == {"STANZAQ_AMQP_EVENT_HUBS_KEYS_FILE": "/etc/stanzaq/secrets/event-hubs-keys"}
            assert keys == [{"name": "hubs", "items": [{"key": "keys", "path": "event-hubs-keys"}]}]
        else:
            assert not files and not keys


def test_certificates(everything: Everything) -> None:
    """Only the AMQP door has its certificate, and the clients' authority, from the named Secret."""
    objects = everything["helm4", "doors"]
    for door in ("xmpp", "rest", "amqp"):
        spec = the(objects, "Deployment", door)["spec"]["template"]["spec"]
        variables = {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}
        files = [f"{name} {variables.get(f'STANZAQ_AMQP_{name}')}" for name in ("CERTIFICATE", "KEY", "CLIENT_CA")]
        mounted = [each["mountPath"] for each in spec["containers"][0]["volumeMounts"] if each["name"] == "amqp-tls"]
        secrets = [each["secret"]["secretName"] for each in spec["volumes"] if each["name"] == "amqp-tls"]
        if door == "amqp":
            (place,) = mounted
            assert secrets == ["queue-amqp-tls"]
            assert files == [f"CERTIFICATE {place}/tls.crt", f"KEY {place}/tls.key", f"CLIENT_CA {place}/ca.crt"]
        else:
            assert mounted == secrets == [] and files == ["CERTIFICATE None", "KEY None", "CLIENT_CA None"]


def test_queues(everything: Everything, tmp_path: Path) -> None:
    """A job of each installation and upgrade applies the declared queues; the program reads the file, and large numbers in it."""
    job = the(everything["helm4", "doors"], "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["apply", "--file", "/etc/stanzaq/queues/queues.yaml", "--yes"]
    large = tmp_path / "large.yaml"
    large.write_text("queues: {jobs: {max_items: 1000000}}")
    for version in HELMS:
        objects = rendered(version, "--values", values("doors"), "--values", large)
        declared = read("F", the(objects, "ConfigMap", "queues")["data"]["queues.yaml"].encode(), None, NodeConfig())
        (jobs,) = declared.nodes
        assert jobs.options == {"stanzaq#lock_seconds": ("300",), "pubsub#max_items": ("1000000",)}
        assert jobs.schedules and jobs.schedules.keys() == {"cleanup"}
    assert only(everything["helm4", "ejabberd"], "Job") == []


def test_reports(everything: Everything) -> None:
    """Reports are CronJobs that share one claim, or applications of the Spark operator where the cluster knows them."""
    objects = everything["helm4", "report"]
    claim = the(objects, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    jobs = only(objects, "CronJob")
    assert len(jobs) == 2
    for job in jobs:
        volumes = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
        assert {"claimName": claim["metadata"]["name"]} in [each.get("persistentVolumeClaim") for each in volumes]
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
    # A collection continues after a loss, removes old data, and runs before 100 deliveries a second have filled a
    # journal.
    arguments = {
        container["name"]: container["args"]
        for job in jobs
        for container in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    }
    assert arguments["collect"][-3:] == ["--lossy", "--keep", "90d"] and arguments["capacity"][-2:] == ["--from", "7d"]
    minutes = {job["metadata"]["name"].rpartition("-")[2]: job["spec"]["schedule"].split()[0] for job in jobs}
    every = int(minutes["collect"].removeprefix("*/"))
    # Kubernetes keeps only the runs of one CronJob apart.
    assert int(minutes["capacity"]) % every != 0
    every_s = 60 * every
    (records,) = (
        each["data"]["STANZAQ_JOURNAL_RECORDS"]
        for each in only(objects, "ConfigMap")
        if "STANZAQ_JOURNAL_RECORDS" in each["data"]
    )
    assert int(records) > 3 * 100 * every_s
    operated = everything["helm4", "spark-operator"]
    assert len(only(operated, "ScheduledSparkApplication")) == 2
    assert only(operated, "CronJob") == only(operated, "PersistentVolumeClaim") == []
    without = rendered("helm4", "--values", values("spark-operator"))
    assert len(only(without, "CronJob")) == 2 and only(without, "ScheduledSparkApplication") == []


def _spark(*settings: str) -> list[Object]:
    """Return the templates of the Spark operator's applications."""
    objects = rendered("helm4", *having("spark-operator", *settings), *SPARK)
    return [each["spec"]["template"] for each in only(objects, "ScheduledSparkApplication")]


def test_additions_for_spark() -> None:
    """What a cluster adds to pods is in the operator's own fields, for drivers and executors."""
    added = {
        "priorityClassName": "high",
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    }
    settings = [f"{name}={json.dumps(value)}" for name, value in added.items()]
    settings += ['image.pullSecrets=["registry"]', 'podLabels={"cost":"42"}', 'podAnnotations={"team":"sre"}']
    more = [word for setting in settings for word in ("--set-json", setting)]
    objects = rendered("helm4", "--values", values("spark-operator"), *more, *SPARK)
    for each in only(objects, "ScheduledSparkApplication"):
        template = each["spec"]["template"]
        assert template["imagePullSecrets"] == ["registry"]
        for role in ("driver", "executor"):
            spec = template[role]
            assert {name: spec[name] for name in added} == added
            assert spec["labels"]["cost"] == "42" and spec["labels"]["app.kubernetes.io/component"] == "report"
            assert spec["annotations"] == {"team": "sre"}


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ("2Gi", "2048m"),
        ("1.5Gi", "1536m"),
        ("512Mi", "512m"),
        ("1G", "954m"),
        ("1Ti", "1048576m"),
        ("2147483648", "2048m"),
    ],
)
def test_memory_of_spark(memory: str, told: str) -> None:
    """Spark gets its memory in whole MiB, rounded up: it reads no fractions."""
    for template in _spark(f"report.resources.requests.memory={memory}"):
        assert template["driver"]["memory"] == template["executor"]["memory"] == told


def test_no_limits_of_spark() -> None:
    """Without limits and requests there are no empty ones."""
    (limited, _) = _spark()
    assert limited["driver"]["coreLimit"] == "2"
    for template in _spark("report.resources.limits.cpu=null"):
        assert "coreLimit" not in template["driver"]


@pytest.mark.parametrize(
    ("settings", "size", "memory"),
    [
        ([], "10Gi", ("2Gi", "4Gi")),
        (["report.recordsPerDay=20000000", "report.collect.keep=720h"], "57Gi", ("6Gi", "12Gi")),
        (["report.collect.keep=", "report.resources.requests.memory=3Gi"], "35Gi", ("3Gi", "4Gi")),
        (["report.volume.size=7Gi", "report.history=s3a://bucket/history"], "7Gi", ("2Gi", "4Gi")),
        (["report.history=s3a://bucket/history"], "1Gi", ("2Gi", "4Gi")),
    ],
)
def test_sizes_of_reports(settings: list[str], size: str, memory: tuple[str, str]) -> None:
    """Volume and memory follow from the records a day, unless they are set."""
    objects = rendered("helm4", *having("report", *settings))
    assert the(objects, "PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"] == size
    for job in only(objects, "CronJob"):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        resources = container["resources"]
        assert (resources["requests"]["memory"], resources["limits"]["memory"]) == memory
        assert resources["requests"]["cpu"] == "1" and resources["limits"]["cpu"] == "2"


def test_history_in_a_store() -> None:
    """A history elsewhere is named in both jobs, Spark has what it needs for it, and pods reach it."""
    settings = ["report.history=s3a://bucket/history", "report.packages={a:b:1,c:d:2}"]
    settings.append(r"report.conf.spark\.hadoop\.fs\.s3a\.endpoint=https://host")
    objects = rendered("helm4", *having("report", *settings))
    added = ["--packages", "a:b:1,c:d:2", "--conf", "spark.jars.ivy=/tmp/ivy"]
    added += ["--conf", "spark.hadoop.fs.s3a.endpoint=https://host"]
    for job in only(objects, "CronJob"):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert container["args"][3] == "s3a://bucket/history" and container["args"][-6:] == added
    egress = the(objects, "NetworkPolicy", "report")["spec"]["egress"]
    assert {"ports": [{"port": 443, "protocol": "TCP"}]} in egress
    for template in _spark(*settings):
        assert template["deps"] == {"packages": ["a:b:1", "c:d:2"]}
        assert template["sparkConf"] == {"spark.hadoop.fs.s3a.endpoint": "https://host"}
        assert "--packages" not in template["arguments"]


def test_least_privilege(everything: Everything) -> None:
    """Only frontends for XMPP need the component's secret, and only they have it."""
    for door in _doors(everything["helm4", "doors"]):
        pod = door["spec"]["template"]
        mounted = [each["secret"]["name"] for each in pod["spec"]["volumes"][0]["projected"]["sources"]]
        is_xmpp = door["metadata"]["labels"]["app.kubernetes.io/component"] == "xmpp"
        assert ("component" in mounted) == ("STANZAQ_XMPP_SECRET_FILE" in _environment(pod)) == is_xmpp
    for job in only(everything["helm4", "report"], "CronJob"):
        (secrets,) = [
            each
            for each in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
            if each["name"] == "secrets"
        ]
        (source,) = secrets["projected"]["sources"]
        assert source["secret"]["name"] == "redis"


def test_executors_meet(everything: Everything) -> None:
    """Drivers and executors of the Spark operator reach each other and Kubernetes, and CronJobs reach neither."""
    operated = the(everything["helm4", "spark-operator"], "NetworkPolicy", "report")["spec"]
    own = [{"podSelector": operated["podSelector"]}]
    assert operated["ingress"] == [{"from": own}]
    assert {"to": own} in operated["egress"]
    assert {443, 6443} <= {port["port"] for rule in operated["egress"] for port in rule.get("ports", [])}
    alone = the(everything["helm4", "report"], "NetworkPolicy", "report")["spec"]
    assert alone["ingress"] == []
    assert {port["port"] for rule in alone["egress"] for port in rule["ports"]} == {53, 6379}


@pytest.mark.parametrize("version", HELMS)
def test_long_names(version: str) -> None:
    """The longest release name makes no object name that is too long, nor two that are the same."""
    for name in ("report", "doors"):
        done = helm(version, "template", "r" * 53, CHART, "--namespace", "work", "--values", values(name))
        objects = documents(done.stdout)
        names = [(each["kind"], each["metadata"]["name"]) for each in objects]
        assert len(set(names)) == len(names) > 5
        assert all(len(found) <= (52 if kind == "CronJob" else 63) for kind, found in names)

"""Contradicting, missing, unknown or wrongly typed values: Helm refuses and names the value."""

import pytest

from tests.helm.charts import MAINLY_4, having, refusal

CONTRADICTIONS = [
    (
        "two autoscalers",
        "hpa",
        ["xmpp.autoscaling.keda.enabled=true"],
        "xmpp.autoscaling.hpa.enabled and xmpp.autoscaling.keda.enabled are both true: keep one autoscaler",
    ),
    (
        "an autoscaler and a number",
        "hpa",
        ["xmpp.replicas=3"],
        "xmpp.replicas and xmpp.autoscaling.hpa.enabled are both set: an autoscaler decides the number, so remove",
    ),
    (
        "fewest above most",
        "hpa",
        ["xmpp.autoscaling.minReplicas=9"],
        "xmpp.autoscaling.minReplicas is above xmpp.autoscaling.maxReplicas: raise one or lower the other",
    ),
    (
        "hpa from none",
        "hpa",
        ["xmpp.autoscaling.minReplicas=0"],
        "xmpp.autoscaling.minReplicas is 0, from which a HorizontalPodAutoscaler cannot scale up",
    ),
    ("keda alone", "keda", ["rest.enabled=false"], "xmpp.autoscaling.minReplicas is 0 and no other door stays up"),
    ("keda nowhere", "keda", ["xmpp.autoscaling.keda.prometheus="], "xmpp.autoscaling.keda.prometheus is not set"),
    (
        "an autoscaler without metrics",
        "keda",
        ["monitoring.monitor=none"],
        "xmpp.autoscaling.keda.enabled needs metrics with the labels of a monitor",
    ),
    (
        "an autoscaler by nothing",
        "workers",
        ["rest.autoscaling.cpuPercent=0"],
        "rest.autoscaling.waitingPerReplica and rest.autoscaling.cpuPercent are both 0: an autoscaler needs one of them",
    ),
    (
        "none, and nothing that starts one",
        "workers",
        ["rest.autoscaling.minReplicas=0"],
        "rest.autoscaling.minReplicas is 0 but no waiting item would start a pod",
    ),
    (
        "a share of nothing",
        "workers",
        ["rest.resources.requests.cpu=null"],
        "rest.autoscaling.cpuPercent is a share of rest.resources.requests.cpu, which is not set",
    ),
    ("workers, and no Prometheus", "workers", ["workers.prometheus="], "workers.prometheus is not set: write the URL"),
    (
        "fewest workers above most",
        "workers",
        ["workers.scaled[0].minReplicas=21"],
        "workers.scaled: resizers has minReplicas above maxReplicas: raise one or lower the other",
    ),
    (
        "a variable of the chart",
        "workers",
        ["extraEnv[0].name=STANZAQ_XMPP_DOMAIN"],
        "extraEnv names STANZAQ_XMPP_DOMAIN, which the chart sets: use settings or the value that it is made of",
    ),
    (
        "a volume of the chart",
        "workers",
        ["extraVolumes[0].name=secrets"],
        "extraVolumes names secrets, which is the chart's own: choose another name",
    ),
    (
        "a label of the chart",
        "workers",
        ["podLabels.app\\.kubernetes\\.io/component=x"],
        "podLabels has app.kubernetes.io/component, by which the chart selects its pods: choose another label",
    ),
    (
        "an annotation of the chart",
        "workers",
        ["podAnnotations.checksum/secrets=x"],
        "podAnnotations has checksum/secrets, which the chart sets: choose another annotation",
    ),
    (
        "authorities without TLS",
        "workers",
        ["xmpp.tls.enabled=false"],
        "xmpp.tls.existingSecret is set and xmpp.tls.enabled is not: turn TLS on or remove the Secret",
    ),
    ("no Redis", "ejabberd", ["redis.url="], "redis.url is not set: write the URL of a Redis"),
    (
        "two Redis",
        "ejabberd",
        ["redis.development.enabled=true"],
        "redis.url and redis.development.enabled are both set: keep one of them",
    ),
    (
        "a URL inline and existing",
        "ejabberd",
        ["redis.existingSecret.name=redis"],
        "redis.url and redis.existingSecret.name are both set: keep one of them",
    ),
    ("another URL", "ejabberd", ["redis.url=http://redis:6379"], "redis.url is not the URL of a Redis on the network"),
    (
        "a port that the policy shuts",
        "ejabberd",
        ["redis.url=redis://:p:1@redis:6380/0"],
        "redis.url uses port 6380 and redis.ports does not allow it: add it there",
    ),
    (
        "the usual port of sentinels",
        "ejabberd",
        ["redis.url=redis+sentinel://s1\\,s2/mymaster"],
        "redis.url uses port 26379 and redis.ports does not allow it: add it there",
    ),
    (
        "the usual port",
        "ejabberd",
        ["redis.url=rediss://redis/0?a=b@c:6380", "redis.ports={6380}"],
        "redis.url uses port 6379 and redis.ports does not allow it: add it there",
    ),
    (
        "a port after an address in brackets",
        "ejabberd",
        ["redis.url=redis+cluster://[fd00::12]\\,[fd00::13]:6380"],
        "redis.url uses port 6380 and redis.ports does not allow it: add it there",
    ),
    (
        "TLS with a plain URL",
        "ejabberd",
        ["redis.tls.existingSecret=ca"],
        "redis.tls.existingSecret is set but redis.url does not use TLS: write rediss://",
    ),
    (
        "TLS with the development Redis",
        "development",
        ["redis.tls.existingSecret=ca"],
        "redis.tls.existingSecret is set, but redis.development.enabled has no TLS",
    ),
    (
        "a client certificate from nowhere",
        "ejabberd",
        ["redis.tls.clientCertificate=true"],
        "redis.tls.clientCertificate is true but redis.tls.existingSecret is not set",
    ),
    (
        "a secret inline and existing",
        "ejabberd",
        ["xmpp.existingSecret.name=component"],
        "xmpp.secret and xmpp.existingSecret.name are both set: keep one of them",
    ),
    ("no secret", "ejabberd", ["xmpp.secret="], "xmpp.secret is not set"),
    ("no domain", "ejabberd", ["xmpp.domain="], "xmpp.domain is not set"),
    ("no server", "ejabberd", ["xmpp.server="], "xmpp.server is not set"),
    (
        "Prosody and an autoscaler",
        "hpa",
        ["xmpp.profile=prosody"],
        "xmpp.profile prosody and xmpp.autoscaling.hpa.enabled contradict each other",
    ),
    ("no door", "ejabberd", ["xmpp.enabled=false"], "xmpp.enabled, rest.enabled and amqp.enabled are all false"),
    (
        "an Ingress to nothing",
        "doors",
        ["rest.enabled=false"],
        "rest.ingress.enabled is true but rest.enabled is not: turn the door on or its Ingress off",
    ),
    ("nobody may ask", "doors", ["rest.existingSecret.name="], "rest.enabled is true but nobody may send requests"),
    (
        "tokens of any issuer",
        "doors",
        ["settings.jwt_keys=https://login.example.org/keys", "settings.jwt_audience=queue"],
        "settings.jwt_keys needs settings.jwt_issuer and settings.jwt_audience",
    ),
    (
        "tokens for any audience",
        "doors",
        ["settings.jwt_keys=https://login.example.org/keys", "settings.jwt_issuer=https://login.example.org"],
        "settings.jwt_keys needs settings.jwt_issuer and settings.jwt_audience",
    ),
    ("two lists of passwords", "doors", ["rest.passwords=x"], "rest.passwords and rest.existingSecret.name are both"),
    (
        "nobody may connect",
        "doors",
        ["amqp.existingSecret.name=", "amqp.eventHubs.existingSecret.name=", "amqp.tls.clientCertificates=false"],
        "amqp.enabled is true but nobody may connect",
    ),
    (
        "clients' certificates of nobody",
        "doors",
        ["amqp.tls.existingSecret="],
        "amqp.tls.clientCertificates is true but amqp.tls.existingSecret is not set",
    ),
    ("two lists of keys", "doors", ["amqp.eventHubs.keys=x"], "amqp.eventHubs.keys and amqp.eventHubs.existingSecret"),
    (
        "two of ANONYMOUS",
        "doors",
        ["settings.amqp_anonymous=a@b"],
        "amqp.eventHubs and settings.amqp_anonymous both apply",
    ),
    ("two lists of them", "doors", ["amqp.passwords=x"], "amqp.passwords and amqp.existingSecret.name are both"),
    ("an Ingress without a host", "doors", ["rest.ingress.host="], "rest.ingress.host is not set"),
    (
        "a report of nothing",
        "report",
        ["report.collect.enabled=false"],
        "report.capacity.enabled needs a history",
    ),
    (
        "rules without metrics",
        "monitoring",
        ["monitoring.monitor=none"],
        "monitoring.rules.enabled needs metrics with the labels of a monitor",
    ),
    (
        "a test of nothing",
        "monitoring",
        ["xmpp.enabled=false", "rest.enabled=true"],
        "test.jid is set and xmpp.enabled is",
    ),
    ("a test without a password", "monitoring", ["test.existingSecret.name="], "test.existingSecret.name is not set"),
    ("a test of nowhere", "monitoring", ["test.server="], "test.server is not set"),
]

UNREADABLE = [
    ("xmpp.replica=3", ["xmpp", "replica"]),
    ("fullnameOverride=Queue", ["fullnameOverride"]),
    ("extraObjects=1", ["extraObjects"]),
    ("settings.node_qota=3", ["settings", "node_qota"]),
    ("xmpp.replicas=three", ["xmpp", "replicas"]),
    ("xmpp.replicas=0", ["xmpp", "replicas"]),
    ("redis.ports=6379", ["redis", "ports"]),
    ("xmpp.profile=openfire", ["xmpp", "profile"]),
    ("xmpp.server=ejabberd", ["xmpp", "server"]),
    ("xmpp.enabled=yes please", ["xmpp", "enabled"]),
    ("settings.drain_seconds=-1", ["settings", "drain_seconds"]),
    ("settings.drain_seconds=null", ["settings", "drain_seconds"]),
    ("image.digest=sha256:12", ["image", "digest"]),
    ("rest.resources.limits.memory=much", ["rest", "resources", "limits", "memory"]),
    ("monitoring.rules.expiredRatio=2", ["monitoring", "rules", "expiredRatio"]),
    ("monitoring.rules.objective.seconds=20", ["monitoring", "rules", "objective", "seconds"]),
    ("monitoring.rules.objective.ratio=1", ["monitoring", "rules", "objective", "ratio"]),
]


@pytest.mark.parametrize("version", MAINLY_4)
@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [case[1:] for case in CONTRADICTIONS],
    ids=[case[0] for case in CONTRADICTIONS],
)
def test_contradictions(version: str, name: str, settings: list[str], sentence: str) -> None:
    """Helm ends with one sentence that names the values and says what to do."""
    said = refusal(version, *having(name, *settings))
    (line,) = [line for line in said.splitlines() if sentence in line]
    assert line.partition(sentence)[0].startswith("Error: execution error at (stanzaq/templates/")


def test_refused_by_helm3() -> None:
    """Helm 3 refuses both kinds of wrong values, too."""
    (_, name, settings, sentence), (setting, path) = CONTRADICTIONS[0], UNREADABLE[0]
    test_contradictions("helm3", name, settings, sentence)
    test_unreadable("helm3", setting, path)


@pytest.mark.parametrize("version", MAINLY_4)
@pytest.mark.parametrize(("setting", "path"), UNREADABLE, ids=[case[0] for case in UNREADABLE])
def test_unreadable(version: str, setting: str, path: list[str]) -> None:
    """An unknown key, a wrong type and a value out of range are refused by the schema, which names the place."""
    said = refusal(version, *having("ejabberd", setting))
    assert "don't meet the specifications of the schema" in said
    (line,) = [line for line in said.splitlines() if line.startswith("- ")]
    assert all(word in line for word in path)

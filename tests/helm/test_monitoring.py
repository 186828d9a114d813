"""Alerts and dashboard: their metrics are exported by a running frontend, and each alert fires when it should."""

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker.model.nodes.options import NodeConfig
from broker.model.results import Counted
from broker.redis_core.metrics import WAITS, Metrics
from frontends.tools.demo.frontend import Frontend
from tests.helm.charts import CHART, Object, having, only, rendered, the, values
from tests.helm.conftest import Everything

SERIES = 'namespace="work",app_kubernetes_io_instance="queues"'
NODE = f'{SERIES},node="jobs"'
DOOR = f'{SERIES},app_kubernetes_io_component="xmpp"'

# Each alert, with series under which it fires and does not: each twice, as from two frontends.
FIRING = {
    # Of a queue whose workers are all gone.
    "StanzaqBacklog": {
        f"stanzaq_node_waiting{{{NODE}%s}}": ("20001+0x40", "19999+0x40"),
        f"stanzaq_node_delayed{{{NODE}%s}}": ("9000+0x40", "9000+0x40"),
        f"stanzaq_node_dependent{{{NODE}%s}}": ("1000+0x40", "1000+0x40"),
        f"stanzaq_node_subscribers{{{NODE}%s}}": ("0+0x40", "0+0x40"),
    },
    "StanzaqItemsAge": {
        f"stanzaq_node_oldest_seconds{{{NODE}%s}}": ("600.1+0x40", "599.9+0x40"),
        f"stanzaq_node_subscribers{{{NODE}%s}}": ("0+0x40", "0+0x40"),
    },
    "StanzaqPartitionsUnowned": {
        f"stanzaq_node_partitions_unowned{{{NODE}%s}}": ("2+0x40", "2+0x40"),
        f"stanzaq_node_oldest_seconds{{{NODE}%s}}": ("61+0x40", "59+0x40"),
    },
    "StanzaqLocksExpire": {
        f"stanzaq_expired_total{{{SERIES}%s}}": ("0+11x40", "0+9x40"),
        f"stanzaq_delivered_total{{{SERIES}%s}}": ("0+100x40", "0+100x40"),
    },
    "StanzaqDeadLetters": {f"stanzaq_dead_lettered_total{{{SERIES}%s}}": ("0+1x40", "7+0x40")},
    "StanzaqNoReadyFrontend": {f"stanzaq_ready{{{DOOR}%s}}": ("0+0x40", "1+0x40")},
    "StanzaqRedisMemory": {
        f"stanzaq_redis_used_bytes{{{SERIES}%s}}": ("86+0x40", "84+0x40"),
        f"stanzaq_redis_limit_bytes{{{SERIES}%s}}": ("100+0x40", "100+0x40"),
    },
    "StanzaqNodeFull": {f'stanzaq_refused_total{{{NODE},door="xmpp",reason="node-full"%s}}': ("0+1x40", "7+0x40")},
    "StanzaqQuotaUsedUp": {f"stanzaq_quota_refused_total{{{SERIES}%s}}": ("0+1x40", "7+0x40")},
    "StanzaqRedisRefuses": {
        f'stanzaq_refused_total{{{SERIES},door="xmpp",reason="unavailable"%s}}': ("0+1x40", "7+0x40"),
        f'stanzaq_refused_total{{{SERIES},door="xmpp",reason="forbidden"%s}}': ("0+1x40", "0+1x40"),
    },
    "StanzaqRedisSlow": {
        f'stanzaq_command_seconds_bucket{{{SERIES},command="Publish",le="0.25"%s}}': ("0+40x40", "0+60x40"),
        f'stanzaq_command_seconds_count{{{SERIES},command="Publish"%s}}': ("0+100x40", "0+100x40"),
    },
    "StanzaqFailedLogins": {f'stanzaq_failed_logins_total{{{SERIES},door="rest"%s}}': ("0+60x40", "0+20x40")},
    # More than 14.4, and more than three times of what 99.9 % allow, and less than six times, and than that.
    "StanzaqWaitsBurnFast": {
        f'stanzaq_wait_seconds_bucket{{{NODE},le="60.0"%s}}': ("0+985x40", "0+995x40"),
        f"stanzaq_wait_seconds_count{{{NODE}%s}}": ("0+1000x40", "0+1000x40"),
    },
    "StanzaqWaitsBurnSlowly": {
        f'stanzaq_wait_seconds_bucket{{{NODE},le="60.0"%s}}': ("0+996x40", "0+9995x40"),
        f"stanzaq_wait_seconds_count{{{NODE}%s}}": ("0+1000x40", "0+10000x40"),
    },
}
BURNS = [alert for alert in FIRING if alert.startswith("StanzaqWaits")]
"""The alerts on the objective."""


def _groups(objects: list[Object]) -> dict[str, Any]:
    return {"groups": the(objects, "PrometheusRule")["spec"]["groups"]}


def _alerts(objects: list[Object]) -> list[dict[str, Any]]:
    (group,) = _groups(objects)["groups"]
    return [rule for rule in group["rules"] if "alert" in rule]


def _promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def _tested(folder: Path, everything: Everything, tests: list[dict[str, Any]]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(_groups(everything["helm4", "monitoring"])))
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    _promtool("test", "rules", folder / "test.yaml")


def _series(alert: str, which: int) -> list[dict[str, str]]:
    pairs = [(name % f',pod="{pod}"', told[which]) for name, told in FIRING[alert].items() for pod in ("a", "b")]
    return [{"series": name, "values": told} for name, told in pairs]


def test_rules_are_sound(everything: Everything, tmp_path: Path) -> None:
    """Promtool accepts the rules, and each alert of the table exists."""
    groups = _groups(everything["helm4", "monitoring"])
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    _promtool("check", "rules", tmp_path / "rules.yaml")
    assert {rule["alert"] for rule in _alerts(everything["helm4", "monitoring"])} == FIRING.keys()


def test_alerts(everything: Everything, tmp_path: Path) -> None:
    """Each alert fires above its limit and not below it, whatever the number of frontends."""
    _tested(tmp_path, everything, [check for alert in FIRING for check in _checks(alert, everything)])


def _checks(alert: str, everything: Everything) -> list[dict[str, Any]]:
    rule = next(each for each in _alerts(everything["helm4", "monitoring"]) if each["alert"] == alert)
    labels = dict(rule["labels"])
    if alert == "StanzaqFailedLogins":
        labels["door"] = "rest"
    if alert in {"StanzaqBacklog", "StanzaqItemsAge", "StanzaqPartitionsUnowned", "StanzaqNodeFull", *BURNS}:
        labels["node"] = "jobs"
    if alert in BURNS:
        labels |= {"namespace": "work", "app_kubernetes_io_instance": "queues"}
    expected = [{"exp_labels": labels, "exp_annotations": _filled(alert, rule["annotations"])}]
    return [
        {
            "interval": "1m",
            "input_series": _series(alert, which),
            "alert_rule_test": [{"eval_time": "30m", "alertname": alert, "exp_alerts": expected if which == 0 else []}],
        }
        for which in (0, 1)
    ]


def _filled(alert: str, annotations: dict[str, str]) -> dict[str, str]:
    """Return the text of an annotation when the alert fires on the series above."""
    said = {
        "StanzaqBacklog": "10001 items wait in jobs",
        "StanzaqItemsAge": "The oldest item of jobs has waited for 10m 0s",
        "StanzaqPartitionsUnowned": "2 partitions of jobs have no owner, and items wait",
        "StanzaqLocksExpire": "11% of the deliveries end in an expired lock",
        "StanzaqDeadLetters": "30 items became dead letters in 15 minutes",
        "StanzaqNoReadyFrontend": "No frontend of the door xmpp is ready",
        "StanzaqRedisMemory": "A Redis master has used 86% of its maxmemory",
        "StanzaqNodeFull": "jobs is full: publishes are refused",
        "StanzaqQuotaUsedUp": "An owner or a domain has used up its quota, and publishes are refused",
        "StanzaqRedisRefuses": "Redis is away, does not answer in time, or cannot write",
        "StanzaqRedisSlow": "60% of the publishes take longer than 0.25 s",
        "StanzaqFailedLogins": "2 logins a second fail at the door rest",
        "StanzaqWaitsBurnFast": "1.5% of the items of jobs waited longer than 60 s",
        "StanzaqWaitsBurnSlowly": "0.4% of the items of jobs waited longer than 60 s",
    }
    return {**annotations, "summary": said[alert]}


def test_nobody_tells(everything: Everything, tmp_path: Path) -> None:
    """Without a single frontend only the alert for that fires."""
    rules = _alerts(everything["helm4", "monitoring"])
    annotations = next(each["annotations"] for each in rules if each["alert"] == "StanzaqNoReadyFrontend")
    absent = {"exp_labels": {"severity": "critical", "door": "xmpp"}, "exp_annotations": annotations}
    expected = {alert: [absent] if alert == "StanzaqNoReadyFrontend" else [] for alert in FIRING}
    checks = [{"eval_time": "30m", "alertname": alert, "exp_alerts": told} for alert, told in expected.items()]
    _tested(tmp_path, everything, [{"interval": "1m", "input_series": [], "alert_rule_test": checks}])


def test_dead_letters_may_wait(everything: Everything, tmp_path: Path) -> None:
    """Dead letters are nobody's work until they are redriven: no alert says that their workers do not keep up."""
    told = {
        "eligible": "20000+0x40",
        "waiting": "20000+0x40",
        "oldest_seconds": "600000+60x40",
        "subscribers": "0+0x40",
    }
    series = [
        {"series": f'stanzaq_node_{name}{{{SERIES},node="jobs/dead"}}', "values": values}
        for name, values in told.items()
    ]
    checks: list[dict[str, Any]] = [
        {"eval_time": "30m", "alertname": alert, "exp_alerts": []} for alert in ("StanzaqBacklog", "StanzaqItemsAge")
    ]
    _tested(tmp_path, everything, [{"interval": "1m", "input_series": series, "alert_rule_test": checks}])


def test_names_of_dead_letters() -> None:
    """The nodes for dead letters are those that the service makes, unless the values name others."""
    default = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["deadLetters"]
    for name in ("jobs", "jobs" * 255):
        letters = NodeConfig().dead_letters_of(name)
        assert letters and re.fullmatch(default, letters)
    more = ("--set-json", r'monitoring.deadLetters="dead\\..*: #"')
    found = [rule["expr"] for rule in _alerts(rendered("helm4", *having("monitoring"), *more))]
    assert sum(r'node!~"dead\\..*: #"' in expr for expr in found) == 3


def test_no_limit_of_memory(everything: Everything, tmp_path: Path) -> None:
    """A Redis without maxmemory is not full, however much it uses."""
    told = {f"stanzaq_redis_used_bytes{{{SERIES}}}": "86+0x40", f"stanzaq_redis_limit_bytes{{{SERIES}}}": "0+0x40"}
    series = [{"series": name, "values": numbers} for name, numbers in told.items()]
    check = {"eval_time": "30m", "alertname": "StanzaqRedisMemory", "exp_alerts": []}
    _tested(tmp_path, everything, [{"interval": "1m", "input_series": series, "alert_rule_test": [check]}])


def _query(name: str, component: str, *settings: str) -> str:
    """Return what an autoscaler asks Prometheus."""
    scaled = only(rendered("helm4", *having(name, *settings)), "ScaledObject", component)
    query: str = scaled[0]["spec"]["triggers"][0]["metadata"]["query"]
    return query


def _held(nodes: dict[str, dict[str, int]]) -> list[dict[str, str]]:
    """Return the series of nodes, as three frontends report them, and some of another release."""
    other = 'namespace="work",app_kubernetes_io_instance="other"'
    return [
        {"series": f'stanzaq_node_{name}{{{release},node="{node}",pod="{pod}"}}', "values": f"{number}+0x5"}
        for release, pods in ((SERIES, "abc"), (other, "d"))
        for pod in pods
        for node, told in nodes.items()
        for name, number in told.items()
    ]


def _valued(
    everything: Everything, folder: Path, query: str, cases: list[tuple[dict[str, dict[str, int]], int]]
) -> None:
    """Check the answer to a query for each state of the nodes."""
    tests = [
        {
            "interval": "1m",
            "input_series": _held(nodes),
            "promql_expr_test": [{"expr": query, "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": value}]}],
        }
        for nodes, value in cases
    ]
    _tested(folder, everything, tests)


def _node(eligible: int, subscribers: int = 0, in_flight: int = 0) -> dict[str, int]:
    # One item more is delayed, and one waits for it.
    told = {"waiting": eligible + 2, "delayed": 1, "dependent": 1, "eligible": eligible}
    return {**told, "subscribers": subscribers, "in_flight": in_flight}


SERVED = {"jobs": _node(3, 1), "mail": _node(4, 2)}


def test_frontends_are_scaled_by_what_they_can_send(everything: Everything, tmp_path: Path) -> None:
    """Each node counts once, with what may go out to its subscribers; dead letters and others that nobody takes do not."""
    unserved = {"jobs/dead": _node(5000), "new": _node(5)}
    cases = [(SERVED, 7), (SERVED | unserved, 7), (unserved, 0), ({"jobs": _node(0, 1)}, 0)]
    _valued(everything, tmp_path, _query("keda", "xmpp", "xmpp.autoscaling.minReplicas=1"), cases)


def test_a_door_without_frontends_is_opened(everything: Everything, tmp_path: Path) -> None:
    """Nobody can subscribe at a door without a frontend: one is started for a node without subscribers, not for dead letters."""
    dead = {"jobs/dead": _node(5000)}
    cases = [(SERVED | dead, 7), (dead, 0), (dead | {"jobs": _node(0)}, 0), (dead | {"new": _node(5)}, 1)]
    _valued(everything, tmp_path, _query("keda", "xmpp"), cases)


def test_workers_are_scaled_by_what_may_go_out(everything: Everything, tmp_path: Path) -> None:
    """Delayed items start no worker. Items behind others of their key count, and the last worker stays while an item is held."""
    mail = {"mail": _node(100)}
    behind = {"jobs": _node(500, 10, 10) | {"eligible": 0}}
    cases = [({"jobs": _node(0)} | mail, 0), ({"jobs": _node(8)} | mail, 8), ({"jobs": _node(0, 1, 9)} | mail, 1)]
    cases += [(behind | mail, 501)]
    _valued(everything, tmp_path, _query("workers", "worker"), cases)


def test_adapter_asks_the_same() -> None:
    """The query in the README for the Prometheus adapter is that of KEDA."""
    (query,) = re.findall(r"metricsQuery: (.*)", (CHART / "README.md").read_text())
    assert query.replace("<<.LabelMatchers>>", SERIES) == _query("keda", "xmpp", "xmpp.autoscaling.minReplicas=1")


def test_a_door_that_may_be_none() -> None:
    """A door that an autoscaler may scale to zero has no alert for its absence."""
    settings = ["monitoring.rules.enabled=true", "amqp.enabled=true", "amqp.passwords=x"]
    rules = _alerts(rendered("helm4", *having("keda", *settings)))
    doors = [each["labels"]["door"] for each in rules if each["alert"] == "StanzaqNoReadyFrontend"]
    assert doors == ["rest", "amqp"]


@pytest.mark.parametrize("monitor", ["pod", "service"])
def test_monitors_meet_pods(monitor: str) -> None:
    """A monitor selects the frontends and nothing else, at a port that they have, with the configured labels."""
    name = {"pod": "monitoring", "service": "hpa"}[monitor]
    objects = rendered("helm4", *having(name, "test.jid=a@b", "test.server=c:5222", "test.existingSecret.name=d"))
    spec = the(objects, f"{monitor.title()}Monitor")["spec"]
    (expression,) = spec["selector"]["matchExpressions"]
    (place,) = spec[{"pod": "podMetricsEndpoints", "service": "endpoints"}[monitor]]
    carried = spec[{"pod": "podTargetLabels", "service": "targetLabels"}[monitor]]
    assert carried == ["app.kubernetes.io/instance", "app.kubernetes.io/component"]
    assert expression["values"] == ["xmpp"]
    for found in only(objects, "Service", "xmpp"):
        assert spec["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
        assert place["port"] in {each["name"] for each in found["spec"]["ports"]}
    template = the(objects, "Deployment", "xmpp")["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert place["port"] in {each["name"] for each in template["spec"]["containers"][0]["ports"]}


def _dashboard(everything: Everything) -> dict[str, Any]:
    (board,) = [each for each in only(everything["helm4", "monitoring"], "ConfigMap") if "stanzaq.json" in each["data"]]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    found: dict[str, Any] = json.loads(board["data"]["stanzaq.json"])
    return found


def _asked(everything: Everything) -> set[str]:
    """Return every metric in rules, dashboard and autoscalers."""
    objects = everything["helm4", "monitoring"]
    (group,) = _groups(objects)["groups"]
    queries = [rule["expr"] for rule in group["rules"]]
    dashboard = _dashboard(everything)
    queries += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    queries.append(the(everything["helm4", "keda"], "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"])
    return set(re.findall(r"stanzaq_\w+", " ".join(queries)))


def test_metrics_exist(everything: Everything, frontend: Frontend) -> None:
    """Every metric in use is exported by a running frontend."""
    asked = _asked(everything)
    assert len(asked) > 15
    with urllib.request.urlopen(f"http://127.0.0.1:{frontend._port}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    # Series of nodes come with the nodes; their families exist before.
    told = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    # So do those of commands.
    told |= {
        f"{family.name}_{part}" for family in families if family.type == "histogram" for part in ("bucket", "count")
    }
    told |= {sample.name for family in families for sample in family.samples}
    assert asked - told == set()


def test_dashboard_is_whole(everything: Everything) -> None:
    """Panels have ids and places of their own, and units."""
    panels = _dashboard(everything)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels)


def test_dashboard_queries(everything: Everything, tmp_path: Path) -> None:
    """Prometheus can parse every query of the dashboard, and what the rules record is what a panel asks for."""
    queries = [target["expr"] for panel in _dashboard(everything)["panels"] for target in panel["targets"]]
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", tmp_path / "rules.yaml")
    (group,) = _groups(everything["helm4", "monitoring"])["groups"]
    recorded = {rule["record"] for rule in group["rules"] if "record" in rule}
    asked = {name for query in queries for name in re.findall(r"stanzaq:[\w:]+", query)}
    assert asked and asked <= recorded


def test_rules_go_by_values() -> None:
    """The limits of the alerts are those of the values."""
    groups = _groups(rendered("helm4", "--values", values("monitoring"), "--set", "monitoring.rules.backlog=1000000"))
    assert groups["groups"][0]["rules"][0]["expr"].endswith("> 1000000")


def _page() -> bytes:
    """Return the metrics of a frontend that has served a node."""
    metrics = Metrics()
    metrics.gauge("jobs", Counted(1, 1, 0, 0, 0, 5, 1, 1), needs_owners=True)
    metrics.tally.nodes["jobs"].wait(1)
    return generate_latest(metrics.registry)


def test_metrics_of_nodes() -> None:
    """Issue 26: promtool has nothing to complain of, also where there are nodes."""
    page = _page()
    assert b'stanzaq_wait_seconds_bucket{le="+Inf",node="jobs"} 1.0' in page
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def _burning(everything: Everything, folder: Path, late: str, firing: dict[str, list[str]]) -> None:
    """Check at which times which alerts on the objective fire, with 1,000 items a minute of which so many are `late`."""
    series = [
        {"series": f"stanzaq_wait_seconds_count{{{NODE}}}", "values": "0+1000x840"},
        {"series": f'stanzaq_wait_seconds_bucket{{{NODE},le="60.0"}}', "values": late},
    ]
    checks = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
            "eval_time": when,
            "exp_samples": [{"labels": "{}", "value": int(alert in alerts)}],
        }
        for when, alerts in firing.items()
        for alert in BURNS
    ]
    _tested(folder, everything, [{"interval": "1m", "input_series": series, "promql_expr_test": checks}])


def test_budget_burns(everything: Everything, tmp_path: Path) -> None:
    """Issue 26: an alert needs a long and a short window: it ends soon after the trouble, and a short trouble is none."""
    fast, slow = BURNS
    # All is well for half a day, then two of a hundred are late for an hour.
    trouble = "0+1000x720 720980+980x59 779800+1000x60"
    # After five minutes an hour's share is still small; after the trouble, that of five minutes is at once.
    _burning(everything, tmp_path, trouble, {"725m": [], "775m": [fast, slow], "830m": [slow]})
    # Three of two thousand are always late: nobody is woken.
    _burning(everything, tmp_path, "0+998.5x60", {"60m": [slow]})


def test_objectives_are_measured() -> None:
    """The schema allows only objectives for which there is a bucket, and the rules ask for its name."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    rules = schema["properties"]["monitoring"]["properties"]["rules"]["properties"]
    assert set(rules["objective"]["properties"]["seconds"]["enum"]) < set(WAITS)
    page = _page().decode()
    for seconds in rules["objective"]["properties"]["seconds"]["enum"]:
        settings = ("--set-json", f"monitoring.rules.objective.seconds={seconds}")
        (group,) = _groups(rendered("helm4", "--values", values("monitoring"), *settings))["groups"]
        wanted = [rule["expr"] for rule in group["rules"] if "stanzaq_wait_seconds" in rule["expr"]]
        (found,) = {each for asked in wanted for each in re.findall(r'le="([^"]+)"', asked)}
        assert f'stanzaq_wait_seconds_bucket{{le="{found}",node="jobs"}}' in page

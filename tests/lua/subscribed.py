"""Subscriptions in several partitions of one node, made as the core makes them, and credit carried as frontends carry it."""

from collections.abc import Sequence

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue, Report


def subscribed(parts: Sequence[Queue], jid: str, credit: int, selector: str = "", qos: str = "unacknowledged") -> str:
    """Subscribe to a node: at the coordinator, then in every other partition; return the number of the registration."""
    coordinator, *others = parts
    registration = str(coordinator.subscribe(jid, credit, qos, selector=selector).rows[0][3])
    registered(parts, jid, registration, selector, qos)
    assert others
    return registration


def registered(
    parts: Sequence[Queue], jid: str, registration: str, selector: str = "", qos: str = "unacknowledged"
) -> Answer:
    """Register a subscription in all other partitions, and end the registration."""
    coordinator, *others = parts
    told = []
    for queue in others:
        code, held, version = queue.register(jid, registration, qos, selector=selector)
        assert code == "ok"
        told.append(f"{queue.partition.number} {subid(jid)} {version} {held} {registration} 0 1")
    return coordinator.grant_credit(" ".join(told), registered=f"{subid(jid)} {registration}")


def holdings(number: int, report: Report) -> str:
    """Write a partition's holdings as `grant_credit` receives them."""
    return " ".join(
        f"{number} {whose} {report.version} {held} {last} {shut} 0"
        for whose, held, last, _pool, shut in report.holdings
    )


def wants(number: int, report: Report) -> str:
    """Write a partition's demand as `grant_credit` receives it."""
    whom = report.whom if isinstance(report.whom, str) else "W " + " ".join(row[0] for row in report.whom)
    return f"{number} {report.version} {report.wanted} {whom}" if report.wanted else ""


def carried(parts: Sequence[Queue], at: Queue, answer: Answer) -> list[tuple[str, str]]:
    """Carry reports and grants until there are no more; return who was handed what."""
    given: list[tuple[str, str]] = []
    todo = [(at, answer)]
    for _ in range(200):
        if not todo:
            return given
        at, answer = todo.pop(0)
        given += answer.given
        report = answer.report
        if report is None:
            continue
        for grant in report.grants:
            to = parts[grant.number]
            row = {"subid": grant.subid, "grant": grant.grant, "amount": grant.amount, "pool": ""}
            todo.append((to, to.run("hand_out", row)))
        number = at.partition.number
        if number and (report.holdings or report.wanted):
            told = parts[0].grant_credit(holdings(number, report), wants=wants(number, report))
            todo.append((parts[0], told))
    msg = "credit is carried round and round"
    raise AssertionError(msg)

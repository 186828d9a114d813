"""`stanzaq quota`: turns the command line into commands of the model. Must not know how they are executed."""

from typing import Annotated

import typer

from broker.model.commands import ListQuotas, SetQuota
from broker.model.names import bare_jid
from broker.model.nodes.quotas import FIELDS, Quota, QuotaStatus
from broker.model.problems import MalformedRequest
from broker.model.results import Done, QuotaList
from frontends.commands.runner import ADMINISTRATOR, ask, jid, misuse, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="List, set and clear quotas of owners and domains.", no_args_is_help=True)

Subject = Annotated[
    str, typer.Argument(help="A bare JID, a domain (its owners together), or default: each owner without a quota.")
]


@app.command("list")
def quota_list(
    owner: Annotated[str, typer.Option(help="Only those that hold for this bare JID.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List quotas and what is used of them.

    Example: stanzaq quota list --owner romeo@example.org
    """
    command = ListQuotas(ADMINISTRATOR, bare_jid(jid(owner, "--owner")) if owner else None)
    found = run(config, lambda core: ask(core, command, QuotaList)).quotas
    if as_json:
        tell(
            {
                "quotas": [
                    {"subject": each.subject, "limits": each.quota.limits_by_name(), "used": each.used}
                    for each in found
                ]
            }
        )
    else:
        table(("subject", *FIELDS), map(_row, found))


@app.command("set")
def quota_set(
    subject: Subject,
    limits: Annotated[
        list[str], typer.Argument(help="nodes=, partitions=, items=, bytes= and publish_rate=; the others are none.")
    ],
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Set a quota in place of the present one.

    Example: stanzaq quota set example.org nodes=50 items=100000 bytes=1000000000 publish_rate=100/s
    """
    words = [word.partition("=") for word in limits]
    wrong = next((name for name, sign, _value in words if not sign), None)
    if wrong is not None:
        misuse(f"{wrong}: write key=value, e.g. items=1000")
    names = [name for name, _sign, _value in words]
    if len(names) > len(set(names)):
        misuse("a limit is named twice")
    try:
        quota = Quota.read({name: value for name, _sign, value in words})
    except MalformedRequest as fault:
        misuse(fault.detail)
    run(config, lambda core: ask(core, SetQuota(ADMINISTRATOR, subject, quota), Done))
    if as_json:
        tell({"subject": subject, "limits": quota.limits_by_name()})
    else:
        say(f"set the quota of {subject}; it holds everywhere in 5 s")


@app.command("clear")
def quota_clear(subject: Subject, config: Config = None, *, as_json: Json = False) -> None:
    """Clear a quota: for an owner, the default one holds again.

    Example: stanzaq quota clear example.org
    """
    run(config, lambda core: ask(core, SetQuota(ADMINISTRATOR, subject, None), Done))
    tell({"subject": subject}) if as_json else say(f"cleared the quota of {subject}")


def _row(one: QuotaStatus) -> list[str]:
    """Return a quota as cells: what is used, of how much."""
    limits, used = one.quota.limits_by_name(), one.used
    cells = [
        f"{used.get(name, '?')} of {limits[name]}" if name in limits else str(used.get(name, "")) for name in FIELDS
    ]
    if one.subject == "default":
        cells = [str(limits.get(name, "")) for name in FIELDS]
    return [one.subject, *cells[:-1], one.quota.publish_rate]

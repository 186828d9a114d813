"""`stanzaq apply`: a file is compared, shown, applied once, and pruned; what is wrong in it is told before any change."""

from pathlib import Path
from typing import Any

import pytest

from broker.model.commands import Declare, Describe, ListQuotas, ListSchedules, Publish
from broker.model.items.hints import Hints
from broker.model.names import Jid
from broker.model.nodes.options import OPTIONS, NodeConfig
from broker.model.nodes.schedules import CatchUp
from broker.model.problems import Problem
from broker.model.results import Declared, Described, Published, QuotaList, Refused, ScheduleList
from broker.redis_core.core import RedisCore
from frontends.commands import fields
from frontends.commands.stores.declared_file import Unreadable, read
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import MakeCore
from tests.contract.shell import Shell

ALICE = Jid("alice@x")

FILE = """\
queues:
  jobs:
    lock: 30s
    rate: 100/s
    fair: key
    fair_weights: {gold: 3}
    collection: pictures
    affiliations:
      juliet@example.org: member
      robots.example.org: publish-only
    schedules:
      report:
        cron: "0 9 * * 1-5"
        zone: Europe/Berlin
        catchup: all
        payload: {report: daily}
        headers: {a: b}
        key: k
        priority: 7
        paused: yes
  pictures:
    node_type: collection
  history:
    owner: romeo@example.org
    queueing: no
    retention_seconds: 604800
quotas:
  default: {nodes: 20, publish_rate: 10/s}
"""
CHANGED = (
    FILE.replace("lock: 30s", "lock_seconds: 1m")
    .replace("rate: 100/s", "rate: 50/s")
    .replace("juliet@example.org: member", "juliet@example.org: publisher")
    .replace("robots.example.org: publish-only", "group:/robots: publish-only")
    .replace("daily", "weekly")
    .replace("nodes: 20", "nodes: 30")
)


@pytest.fixture
def server(tmp_path: Path) -> Any:  # noqa: ANN401  (a generator's)
    """Run an empty Redis."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


async def described(core: RedisCore, node: str) -> Described:
    """Return a node's record."""
    found = await core.ask(Describe(node, ALICE, as_owner=True))
    assert isinstance(found, Described)
    return found


async def test_applied_twice_changed_and_pruned(server: RedisServer, make_core: MakeCore, tmp_path: Path) -> None:
    """Issue 56: a second apply has nothing to do; a changed file changes what it says, and deletes only with `--prune`."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(FILE)
    second.write_text(CHANGED)
    shell = Shell(server.url)
    asked, made, again = await shell.several(
        ("apply", "-f", str(first)), ("apply", "-f", str(first), "--yes"), ("apply", "-f", str(first))
    )
    # The plan is shown, a collection is made before what is below it, and without a question nothing is changed.
    assert asked.code == 2 and "use --yes" in asked.err
    assert asked.out == made.out and made.out.startswith("about\tchange\npictures\tis created\n")
    assert (made.code, made.err) == (0, "stanzaq: made 7 changes\n")
    assert (again.code, again.out, again.err) == (0, "", "stanzaq: nothing to do\n")
    core, _ = await make_core(server.url, admins="alice@x")
    record = (await described(core, "jobs")).record
    assert (record.config.lock_seconds, record.config.rate, record.config.fair_weights) == (30, "100/s", "gold=3")
    assert record.parent == "pictures" and record.creator == ALICE
    assert not (await described(core, "history")).record.config.queueing
    listed = await core.ask(ListSchedules("jobs", ALICE, 1, id="report"))
    assert isinstance(listed, ScheduleList) and listed.schedules[0].item is not None
    assert listed.schedules[0].schedule.catch_up is CatchUp.ALL
    assert (listed.schedules[0].item.key, listed.schedules[0].item.hints) == ("k", Hints(priority=7))
    # A dead-letter node serves a node of the file, and another's node is not the file's.
    for node, owner in (("jobs/dead", ALICE), ("other", ALICE), ("theirs", Jid("mercutio@x"))):
        assert await core.ask(Declare(node, owner, {})) == Declared(node)
    assert isinstance(await core.ask(Publish("other", ALICE, "a", b"payload", 7)), Published)
    changed, pruned, again = await shell.several(
        ("apply", "-f", str(second), "--json", "--yes"),
        ("apply", "-f", str(second), "--prune", "--yes"),
        ("apply", "-f", str(second), "--prune"),
    )
    assert {(each["kind"], each["change"]) for each in changed.json["changes"]} == {
        ("alter", "lock_seconds changes from 30 to 60, rate changes from 100/s to 50/s"),
        ("alter", "juliet@example.org changes from member to publisher"),
        ("add", "group:/robots becomes publish-only"),
        ("alter", "the schedule report changes"),
        ("alter", "becomes nodes=30 publish_rate=10/s, was nodes=20 publish_rate=10/s"),
    }
    assert changed.json["not_pruned"] == 2 and "2 more would be deleted with --prune" in changed.err
    assert pruned.out.splitlines()[1:] == [
        "jobs\trobots.example.org is no longer publish-only",
        "other\tis deleted, with 1 items",
    ]
    assert again.err == "stanzaq: nothing to do\n"
    assert isinstance(gone := await core.ask(Describe("other", ALICE, as_owner=True)), Refused)
    assert gone.problem is Problem.NODE_NOT_FOUND
    for node in ("jobs/dead", "theirs"):
        await described(core, node)
    quotas = await core.ask(ListQuotas(ALICE))
    assert isinstance(quotas, QuotaList) and quotas.quotas[0].quota.nodes == 30


async def test_nothing_half_done(server: RedisServer, make_core: MakeCore, tmp_path: Path) -> None:
    """Issue 56: what a node that is there cannot become is refused before any change, in one sentence."""
    core, _ = await make_core(server.url, admins="alice@x")
    assert await core.ask(Declare("old", ALICE, {})) == Declared("old")
    assert await core.ask(Declare("above", ALICE, {"pubsub#node_type": ("collection",)})) == Declared("above")
    files = {}
    for name, (old, sentence) in {
        "partitions": ("{partitions: 3}", "old: it has 1 partitions for good"),
        "log": ("{queueing: no}", "old: pubsub#queueing: a queue stays a queue"),
        "together": ("{ordered: yes, fair: publisher}", "old: stanzaq#fair: turns of publishers"),
        "type": ("{}\n  above: {lock: 5m}", "above: stanzaq#lock_seconds is not a field of a collection"),
        "collection": ("{collection: nothing}", "old: the collection nothing is neither there nor in the file"),
    }.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"queues:\n  new: {{}}\n  old: {old}\n")
        files[str(file)] = sentence
    *refused, missing = await Shell(server.url).several(
        *(("apply", "-f", file, "--yes") for file in files), ("apply", "-f", "nothing", "--yes")
    )
    for done, sentence in zip(refused, files.values(), strict=True):
        assert done.code == 1 and sentence in done.err and done.err.count("\n") == 1, done
    assert missing.code == 2 and "nothing cannot be read: No such file" in missing.err
    assert isinstance(await core.ask(Describe("new", ALICE, as_owner=True)), Refused)


def test_names_of_options() -> None:
    """Each option is read by its name in the library and by the service's names without prefix."""
    for option in OPTIONS:
        text = option.show(NodeConfig(node_type=option.on or NodeConfig().node_type)) or '""'
        names = {name for name, wires in fields.SHORTS.items() if option.name in wires}
        for name in names:
            kind = (
                f"node_type: {option.on.value}" if option.on and option.attribute != "node_type" else "owner: alice@x"
            )
            declared = read("F", f"queues: {{n: {{{name}: {text}, {kind}}}}}".encode(), ALICE, NodeConfig())
            assert option.name in declared.nodes[0].options, name


BAD = [
    ("lock: 30s", "lok: 30s", "line 3, queues.jobs.lok: this is no option of a node; did you mean lock"),
    ("lock: 30s", "lock: long", "line 3, queues.jobs.lock: 'long' is no length of time"),
    ("lock: 30s", "lock: 0", "line 3, queues.jobs.lock: stanzaq#lock_seconds must be a whole number from 1"),
    ("lock: 30s", "lock: [1]", "line 3, queues.jobs.lock: write one value"),
    ("lock: 30s", "lock:", "line 3, queues.jobs.lock: write one value"),
    ("lock: 30s", "lock: {", "line 5: expected"),
    ("fair: key", "fair: nobody", "line 5, queues.jobs.fair: stanzaq#fair is one of none, key, publisher"),
    ("rate: 100/s", "lock_seconds: 5", "line 4, queues.jobs.lock_seconds: stanzaq#lock_seconds is given twice"),
    ("rate: 100/s", "lock: 5s", "line 4, queues.jobs.lock: it is given twice"),
    ("rate: 100/s", "children_max: 3", "line 2, queues.jobs: pubsub#children_max is not a field of a leaf"),
    ("rate: 100/s", "owner: rom@eo@x", "line 4, queues.jobs.owner: 'rom@eo@x' is not a bare JID"),
    (
        ": member",
        ": editor",
        "line 9, queues.jobs.affiliations.juliet@example.org: juliet@example.org: editor is none of",
    ),
    ("juliet@", "juliet@@", "line 9, queues.jobs.affiliations.juliet@@example.org: 'juliet@@example.org' is not a JID"),
    ("robots.example.org:", "group::", "line 10, queues.jobs.affiliations.group:: 'group:' names no group: write"),
    ("robots.example.org:", "group:a b:", "line 10, queues.jobs.affiliations.group:a b: 'group:a b' names no group"),
    ("1-5", "1-9", "line 12, queues.jobs.schedules.report: cron cannot be read"),
    ("Europe/Berlin", "Berlin", "line 12, queues.jobs.schedules.report: there is no time zone 'Berlin'"),
    ("zone:", "zon:", "line 14, queues.jobs.schedules.report.zon: this is none of cron, zone"),
    ("priority: 7", "priority: high", "line 12, queues.jobs.schedules.report: a schedule has a payload, and"),
    (
        "headers: {a: b}",
        "headers: {stanzaq-a: b}",
        "line 12, queues.jobs.schedules.report: the header stanzaq-a is reserved",
    ),
    ("payload:", "overlap: queue #", "line 12, queues.jobs.schedules.report: a schedule has a payload, and"),
    ("headers: {a: b}", "headers: [a]", "line 17, queues.jobs.schedules.report.headers: write names and values"),
    ("nodes: 20", "nods: 20", "line 28, quotas.default: nods is not part of a quota"),
    ("default:", "e@x@y:", "line 28, quotas.e@x@y: 'e@x@y' is neither a bare JID nor a domain"),
    ("quotas:", "quotas:\n  Default: {nodes: 1}", "line 29, quotas.default: default is given twice"),
    ("quotas:", "quota:", "line 27, quota: this is none of queues, quotas"),
    ("queues:", "- queues:", "line 1, the file: write names and values"),
    ("  history:", '  "hi\\x07story":', "line 23, queues.hi\x07story: a node's name has"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), BAD)
def test_bad_files(right: str, wrong: str, sentence: str) -> None:
    """Issue 56: a misspelt option, an impossible value, an unknown role: one sentence with file, line and path."""
    text = FILE.replace(right, wrong, 1)
    if wrong.startswith("- "):
        text = "- queues\n"
    with pytest.raises(Unreadable) as refused:
        read("F", text.encode(), ALICE, NodeConfig())
    assert f"F, {sentence}" in str(refused.value)


def test_the_example() -> None:
    """The example on the page can be applied."""
    text = Path("docs/operations.md").read_text("utf-8").partition("## Queues in a file")[2]
    declared = read("F", text.partition("```yaml\n")[2].partition("```")[0].encode(), None, NodeConfig())
    assert [each.node for each in declared.nodes] == ["pictures", "thumbnails"]


def test_subjects_of_quotas() -> None:
    """A subject is that which the service keeps, so what is applied again is what is there."""
    declared = read("F", b"quotas: {Example.org: {nodes: 1}, default: {nodes: 2}}", ALICE, NodeConfig())
    assert declared.quotas is not None and [*declared.quotas] == ["example.org", "default"]


def test_without_an_owner() -> None:
    """A queue belongs to somebody."""
    with pytest.raises(Unreadable, match=r"queues\.jobs: who owns it"):
        read("F", FILE.encode(), None, NodeConfig())

"""The examples of XEP-0254, one test each, through the pure translators.

`tests/golden/xep0254` holds them word for word. Where the project departs from one, the test changes the example first and
names the resolution that says so.
"""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.commands import Command, Publish, Retract, Subscribe, Unlock
from broker.model.items.items import Delivery, Envelope
from broker.model.names import Jid, Partition
from broker.model.problems import Problem
from broker.model.results import Refused, Result, Retracted, Subscribed, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies, requests, stanzas
from frontends.xmpp.messages import deliveries, notifications
from frontends.xmpp.stanzas import Iq, Question

_GOLDEN = Path(__file__).parents[2] / "golden" / "xep0254"
_NODE = "a290fjsl29j19kjb"
_ITEM = "ae890ac52d0df67ed7cfdf51b644e901"
_BEE = Jid("workerbee237@shakespeare.lit")
_FOO = Jid("workerbee237@shakespeare.lit/foo")
_PAYLOAD = b"<example xmlns='urn:xmpp:example'>payload</example>"
_COMMANDS: dict[str, tuple[str, Command]] = {
    "retract": ("06_retract", Retract(_NODE, _FOO, _ITEM, request="delete1")),
    "unlock": ("10_unlock", Unlock(_NODE, _FOO, _ITEM, request="unlock1")),
}


def _example(name: str) -> ET.Element:
    return ET.parse(_GOLDEN / f"{name}.xml").getroot()


def _iq(name: str) -> Iq:
    iq = stanzas.parse_iq(_example(name))
    assert iq is not None
    return iq


def _asked(name: str) -> Question:
    question = requests.read(_iq(name))
    assert isinstance(question, Question)
    return question


def _same(ours: ET.Element, example: ET.Element) -> bool:
    written = [ET.canonicalize(ET.tostring(one), strip_text=True, rewrite_prefixes=True) for one in (ours, example)]
    assert written[0] == written[1]
    return True


def _message(written: bytes, example: ET.Element) -> ET.Element:
    """Give our message without what XEP-0254 does not know: our `<lock/>` (QX14) and hints (X2); its id is ours to choose."""
    message = ET.fromstring(written)
    for child in list(message):
        if child.tag.startswith((f"{{{ns.STANZAQ}}}", f"{{{ns.HINTS}}}")):
            message.remove(child)
    message.set("id", example.get("id", ""))
    return message


def _events(*, legacy_unlock_ns: bool = False) -> notifications.Events:
    return notifications.Events("workflow.shakespeare.lit", "run", legacy_unlock_ns=legacy_unlock_ns)


def test_01_subscribe_without_options() -> None:
    """A subscribe without options is refused with the form that it lacks, as the example has it (Q5, Q6, Q7)."""
    request = ET.fromstring(
        f"<iq xmlns='{ns.COMPONENT}' type='set' id='sub1' from='{_FOO}' to='workflows.shakespeare.lit'>"
        f"<pubsub xmlns='{ns.PUBSUB}'><subscribe jid='{_BEE}' node='{_NODE}'/></pubsub></iq>"
    )
    iq = stanzas.parse_iq(request)
    assert iq is not None
    question = requests.read(iq)
    assert isinstance(question, stanzas.Question) and isinstance(question.command, Subscribe)
    # Only a queue asks for options, so the core refuses.
    reply = replies.answer(question, Refused(Problem.OPTIONS_REQUIRED))
    assert _same(ET.fromstring(reply), _example("01_subscribe_without_options"))


def test_02_subscribe_with_options() -> None:
    """A subscribe with credit is understood, with `jid` and `node` on its options too (Q8, Q10, QX8)."""
    assert _asked("02_subscribe_with_options").command == Subscribe(_NODE, _FOO, _BEE, 5)


def test_03_subscribed() -> None:
    """The result names the subscription and the credit that was granted (Q9)."""
    subscribed = Subscribed(_BEE, "ba49252aaa4f5d320c24d3766f0bdcade78c78d3", 5)
    written = replies.answer(_asked("02_subscribe_with_options"), subscribed)
    assert _same(ET.fromstring(written), _example("03_subscribed"))


def test_04_publish() -> None:
    """A publish is understood; its payload is stored as it came (Q13)."""
    command = _asked("04_publish").command
    assert command == Publish(
        _NODE, Jid("engine.shakespeare.lit"), _ITEM, codec.pack(Envelope(_PAYLOAD)), len(_PAYLOAD)
    )


def test_05_delivery() -> None:
    """A delivery carries the item as it was published (Q16)."""
    delivery = Delivery(
        partition=Partition(_NODE, "1"),
        position="1-1",
        item_id=_ITEM,
        subscriber=_BEE,
        token=1,
        attempt=1,
        of=20,
        deadline_ms=0,
        publisher=Jid("engine.shakespeare.lit"),
        envelope=codec.pack(Envelope(_PAYLOAD)),
        sequence=1,
    )
    example = _example("05_delivery")
    assert _same(_message(deliveries.write_delivery("workflow.shakespeare.lit", delivery), example), example)


@pytest.mark.parametrize("name", ["retract", "unlock"])
def test_06_and_10_ending_a_lock(name: str) -> None:
    """A retract and an unlock are understood, though the examples ask with a get (Q19, Q28, QX1)."""
    file, command = _COMMANDS[name]
    question = _asked(file)
    assert question.command == command
    assert requests.is_get_for_set(question)


def test_07_retract_notice() -> None:
    """The worker is told that its item is deleted (Q20)."""
    example = _example("07_retract_notice")
    written = _events().write_ended((Retract(_NODE, _FOO, _ITEM), Retracted(_BEE)))
    assert _same(_message(written, example), example)


def _registered(example: ET.Element) -> None:
    """QX4: of the two namespaces for one element, only the registered one is right."""
    for unlock in example.iter(f"{{{ns.QUEUEING_TYPO}}}unlock"):
        unlock.tag = f"{{{ns.QUEUEING}}}unlock"


def _as_shown(_: ET.Element) -> None:
    """Leave the example alone: the switch for peers that match the typo sends just that."""


@pytest.mark.parametrize(("legacy", "change"), [(False, _registered), (True, _as_shown)])
def test_11_unlock_notice(legacy: bool, change: Callable[[ET.Element], None]) -> None:  # noqa: FBT001
    """The worker is told that its lock is ended (Q29), in the namespace that is registered, or in the typo if asked (QX4)."""
    example = _example("11_unlock_notice")
    change(example)
    written = _events(legacy_unlock_ns=legacy).write_ended((Unlock(_NODE, _FOO, _ITEM), Unlocked(_BEE)))
    assert _same(_message(written, example), example)


@pytest.mark.parametrize(
    ("name", "file", "problem"),
    [
        ("retract", "08_retract_forbidden", Problem.FORBIDDEN),
        ("retract", "09_retract_lock_lost", Problem.LOCK_LOST),
        ("unlock", "12_unlock_not_found", Problem.ITEM_NOT_FOUND),
        ("unlock", "13_unlock_forbidden", Problem.FORBIDDEN),
        ("unlock", "14_unlock_conflict", Problem.LOCKED_BY_ANOTHER),
        ("unlock", "15_unlock_lock_lost", Problem.LOCK_LOST),
    ],
)
def test_08_09_12_to_15_errors(name: str, file: str, problem: Problem) -> None:
    """Each error of a retract and an unlock has the condition and the echo of its example (Q22 to Q25, Q31, QX3)."""
    question = _asked(_COMMANDS[name][0])
    outcome: Result = Refused(problem)
    example = _example(file)
    # QX2: an IQ with an error is of type error. QX7: it has the id of its request.
    example.set("type", "error")
    example.set("id", question.iq.id)
    assert _same(ET.fromstring(replies.answer(question, outcome)), example)


def test_every_example_has_its_test() -> None:
    """No example lies about unused: each file's number stands in the name of a test here."""
    assert sorted(int(path.name[:2]) for path in _GOLDEN.iterdir()) == list(range(1, 16))

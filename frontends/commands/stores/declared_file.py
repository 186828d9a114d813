"""The file of `stanzaq apply`: YAML, read into declarations. Must not know what is there.

The names of options are those of `stanzaq.Queue`, or the service's without their prefix; both mean the same. What is wrong is
told by its line and its path.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, NoReturn, get_args

import yaml

from broker import codec, payloads
from broker.model.commands import PutSchedule
from broker.model.items.headers import size as header_bytes
from broker.model.items.headers import validate_headers
from broker.model.items.hints import USUAL_PRIORITY, Hints
from broker.model.names import Jid, read_account_or_domain, read_bare_jid
from broker.model.nodes.nodes import Affiliation, change_config
from broker.model.nodes.options import BY_NAME, NodeConfig
from broker.model.nodes.quotas import Quota
from broker.model.nodes.schedules import FIELDS, Schedule
from broker.model.nodes.tree import COLLECTION, NodeType
from broker.model.problems import MalformedRequest
from broker.redis_core.schedules import timetable
from frontends.commands.fields import SHORTS
from frontends.commands.runner import ADMINISTRATOR
from frontends.commands.stores.declarations import Declaration, read_rights
from stanzaq.queue import Queue

_NAMES: Final = {get_args(each.type)[1]: each.name for each in fields(Queue) if each.name != "name"}
"""The name that `Queue` has for each option of the service."""

_WIRES: Final = {name: option for option, name in _NAMES.items()}

_SEVERAL: Final = ("stanzaq#fair_weights", "pubsub#children_association_whitelist")
"""Options that have several values."""

_OWN: Final = ("owner", "collection", "affiliations", "schedules")
"""What a queue has beside its options."""

_ITEM: Final = ("payload", "type", "key", "headers", "priority", "paused")
"""What a schedule has beside its times."""

_Path = tuple[str, ...]


class Unreadable(Exception):  # noqa: N818  (named after the state of the file)
    """The file does not say what queues are to be like: a sentence with its line and its path."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a file declares: nodes, in an order in which they can be made, and quotas by subject, None if it is about none.

    New nodes have these `defaults`.
    """

    nodes: tuple[Declaration, ...]
    quotas: Mapping[str, Quota] | None
    defaults: NodeConfig


class _Reader:
    """Reads one file, and knows on which line each value is."""

    def __init__(self, name: str) -> None:
        """Read the file of this name."""
        self._name = name
        self._lines: dict[_Path, int] = {}

    def values(self, text: bytes) -> Any:  # noqa: ANN401  (what YAML has)
        """Return the values of the file; raises Unreadable, also for a key that is given twice."""
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as wrong:
            line = wrong.problem_mark.line + 1 if wrong.problem_mark else 1
            msg = f"{self._name}, line {line}: {wrong.problem}"
            raise Unreadable(msg) from None
        except (yaml.YAMLError, ValueError, RecursionError) as wrong:
            msg = f"{self._name} is not YAML: {' '.join(str(wrong).split())}"
            raise Unreadable(msg) from None

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, path: _Path) -> Any:  # noqa: ANN401
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, each, (*path, str(number))) for number, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return loader.construct_object(node)
        found = {}
        for key, value in node.value:
            name = str(key.value)
            self._lines[*path, name] = key.start_mark.line + 1
            if name in found:
                self.refuse((*path, name), "it is given twice")
            found[name] = self._value(loader, value, (*path, name))
        return found

    def refuse(self, path: _Path, wrong: str) -> NoReturn:
        """Raise Unreadable for what is at a path."""
        at = path
        while at not in self._lines:
            at = at[:-1]
        msg = f"{self._name}, line {self._lines[at]}, {'.'.join(path) or 'the file'}: {wrong}"
        raise Unreadable(msg)

    @contextmanager
    def at(self, *path: str) -> Iterator[None]:
        """Tell by its path what is found wrong in the block."""
        try:
            yield
        except MalformedRequest as wrong:
            self.refuse(path, wrong.detail)
        except (ValueError, TypeError) as wrong:
            self.refuse(path, str(wrong))

    def mapping(self, value: object, path: _Path, known: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return a mapping of these keys, of any without them; raises Unreadable."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(path, "write names and values, as in `name: value`")
        for name in value:
            if known and name not in known:
                self.refuse((*path, name), f"this is none of {', '.join(known)}")
        return value


def read(name: str, text: bytes, owner: Jid | None, defaults: NodeConfig) -> Declared:
    """Read a file; a queue without an owner belongs to `owner`. Raises Unreadable, for the first thing that is wrong."""
    reader = _Reader(name)
    file = reader.mapping(reader.values(text), (), ("queues", "quotas"))
    queues = reader.mapping(file.get("queues"), ("queues",))
    nodes = {node: _node(reader, node, value, owner) for node, value in queues.items()}
    for node, declared in nodes.items():
        with reader.at("queues", node):
            declared.check(defaults)
    return Declared(
        tuple(sorted(nodes.values(), key=lambda each: _depth(each, nodes))), _quotas(reader, file), defaults
    )


def _quotas(reader: _Reader, file: Mapping[str, Any]) -> dict[str, Quota] | None:
    if "quotas" not in file:
        return None
    found = dict[str, Quota]()
    for name, limits in reader.mapping(file["quotas"], ("quotas",)).items():
        path = ("quotas", name)
        with reader.at(*path):
            subject = read_account_or_domain(name)
            if subject in found:
                reader.refuse(path, f"{subject} is given twice")
            found[subject] = Quota.read({limit: str(value) for limit, value in reader.mapping(limits, path).items()})
    return found


def _depth(node: Declaration, nodes: Mapping[str, Declaration]) -> int:
    """Return how many collections of the file a node is below."""
    depth, above = 0, node
    while depth < len(nodes) and (name := "".join(above.options.get(COLLECTION, ()))) in nodes:
        depth, above = depth + 1, nodes[name]
    return depth


def _node(reader: _Reader, node: str, value: object, owner: Jid | None) -> Declaration:
    path = ("queues", node)
    given = reader.mapping(value, path)
    if "owner" in given:
        with reader.at(*path, "owner"):
            owner = read_bare_jid(str(given["owner"]))
    if owner is None:
        reader.refuse(path, "who owns it? Write `owner: JID`, or set STANZAQ_ADMINS")
    options = _options(reader, path, {name: each for name, each in given.items() if name not in _OWN})
    if "collection" in given:
        options[COLLECTION] = (str(given["collection"] or ""),)
    rights = schedules = None
    if "affiliations" in given:
        rights = {owner: Affiliation.OWNER.value}
        for jid, each in reader.mapping(given["affiliations"], (*path, "affiliations")).items():
            with reader.at(*path, "affiliations", jid):
                rights |= read_rights({jid: str(each)})
    if "schedules" in given:
        schedules = {}
        for name, each in reader.mapping(given["schedules"], (*path, "schedules")).items():
            at = (*path, "schedules", name)
            said = reader.mapping(each, at, (*FIELDS[1:], *_ITEM))
            headers = reader.mapping(said.get("headers"), (*at, "headers"))
            with reader.at(*at):
                schedules[name] = _schedule(node, name, said, headers)
    return Declaration(node, owner, options, rights, schedules)


def _options(reader: _Reader, path: _Path, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return options by the names of the service; each value is checked alone, so that a fault has its line."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        with reader.at(*path, name):
            option, text = _option(name, value)
            if option in found:
                reader.refuse((*path, name), f"{option} is given twice")
            found[option] = (text,)
            # Alone, on a node that has it: what options mean together is checked later.
            change_config(NodeConfig(node_type=BY_NAME[option].on or NodeType.LEAF), {option: found[option]})
    return found


def _option(name: str, value: object) -> tuple[str, str]:
    """Return the service's name of an option, and its value as text; raises ValueError."""
    wires = {_WIRES[name]} if name in _WIRES else SHORTS.get(name, {name}) & _NAMES.keys()
    if not wires:
        near = get_close_matches(name, {*_WIRES, *SHORTS, *_OWN}, 3)
        msg = "this is no option of a node" + (f"; did you mean {' or '.join(near)}?" if near else "")
        raise ValueError(msg)
    (option,) = wires
    if value is None or (isinstance(value, dict | list) and option not in _SEVERAL):
        msg = "write one value"
        raise ValueError(msg)
    return option, Queue("node", **{_NAMES[option]: value}).options[option]  # type: ignore[arg-type]


def _schedule(node: str, name: str, said: Mapping[str, Any], named: Mapping[str, Any]) -> PutSchedule:
    """Return a schedule with its item; raises MalformedRequest and ValueError."""
    times = {field: str(said[field]) for field in FIELDS[1:] if said.get(field) is not None}
    schedule = Schedule.read({"id": name, **times})
    timetable.check(schedule)
    payload, priority = said.get("payload"), said.get("priority", USUAL_PRIORITY)
    if "payload" not in said or not isinstance(priority, int):
        msg = "a schedule has a payload, and its priority is a number"
        raise ValueError(msg)
    text = payload if "type" in said and isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    body = text.encode()
    headers = validate_headers((key, str(text)) for key, text in named.items())
    envelope = codec.pack(payloads.make_envelope(body, str(said.get("type") or payloads.JSON), headers))
    hints, size = Hints.validate(None, priority, None), len(body) + header_bytes(headers)
    key, paused = str(said.get("key") or ""), bool(said.get("paused"))
    return PutSchedule(node, ADMINISTRATOR, schedule, envelope, size, key, hints, paused)

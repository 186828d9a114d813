"""Nearly correct stanzas: those of the corpus with a few changes, as trees and as texts.

Must not know the expected results.
"""

from copy import deepcopy
from typing import Final
from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from frontends.xmpp import namespaces as ns
from tests.fuzz.frontend import DOMAIN
from tests.fuzz.scene import ENGINE, ITEM, NODE, STANZAS, WORKER


def _trees() -> list[ET.Element]:
    found = []
    for data in STANZAS.values():
        try:
            found.append(ET.fromstring(data))
        except ET.ParseError:
            continue
    return found


_TREES: Final = _trees()
_SPACES: Final = (*(value for name, value in vars(ns).items() if name.isupper()), "urn:other", "")
_NAMES: Final = sorted({element.tag.rpartition("}")[2] for tree in _TREES for element in tree.iter()})
_KEYS: Final = sorted({key for tree in _TREES for element in tree.iter() for key in element.attrib})
_WORDS: Final = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "2",
        "5",
        "1000",
        "1000000001",
        "9223372036854775807",
        "9" * 30,
        "1e3",
        "٣",
        "true",
        "max",
    ),
    *(
        NODE,
        f"{NODE}/dead",
        "made",
        ITEM,
        "waiting-1",
        "1700000000000-0",
        "0-1",
        "../x",
        "{x}",
        "a b",
        "a\nb",
        "é" * 600,
    ),
    *(
        WORKER,
        ENGINE,
        DOMAIN,
        "workerbee237@shakespeare.lit",
        "A@B/C",
        "a@b/",
        "@",
        "/",
        "x" * 1100,
        "\U0001f41d\u0301",
    ),
    *("get", "set", "result", "error", "submit", "cancel", "unavailable", "probe", "subscribe", "subscribed"),
    *("owner", "outcast", "none", "publisher", "whitelist", "open", "overwrite", "retract-oldest", "leaf"),
    *sorted({value for tree in _TREES for field in tree.iter() for value in (field.get("var"), field.text) if value}),
)
_TOKENS: Final = (
    *(
        "<",
        ">",
        "/>",
        "&",
        "&amp;",
        "&#0;",
        "&#xD800;",
        "&bomb;",
        "'",
        '"',
        "=",
        ":",
        "xmlns=''",
        "xmlns:p='urn:x'",
        " p:k='1'",
    ),
    *(
        "]]>",
        "<![CDATA[",
        "<!--",
        "-->",
        "<?x?>",
        "<!DOCTYPE x>",
        "</iq>",
        "<iq>",
        "</stream:stream>",
        "\x00",
        "\x0b",
        "\ufffe",
    ),
    *("<p:a/>", "xml:", "<a>" * 300, " k='1'", "\u30fc", "\u0301", "\r\n", "\t"),
)

_texts: Final = st.sampled_from(_WORDS) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=8
)
_tags: Final = st.builds(
    lambda space, name: f"{{{space}}}{name}" if space else name, st.sampled_from(_SPACES), st.sampled_from(_NAMES)
)
_keys: Final = st.sampled_from(_KEYS) | st.builds(
    lambda space, name: f"{{{space}}}{name}", st.sampled_from(_SPACES[:-1]), st.sampled_from(["k", "token", "node"])
)


def _mutate(draw: st.DrawFn, tree: ET.Element) -> None:  # noqa: C901  (a table of cases)
    victim = draw(st.sampled_from(list(tree.iter())))
    match draw(st.integers(0, 9)):
        case 0:
            victim.set(draw(_keys), draw(_texts))
        case 1 if victim.attrib:
            del victim.attrib[draw(st.sampled_from(sorted(victim.attrib)))]
        case 2 if victim.attrib:
            victim.set(draw(st.sampled_from(sorted(victim.attrib))), draw(_texts))
        case 3:
            victim.text = draw(_texts)
        case 4 if victim is not tree:
            victim.tag = draw(_tags)
        case 5 if len(victim):
            del victim[draw(st.integers(0, len(victim) - 1))]
        case 6 if len(victim):
            child = victim[draw(st.integers(0, len(victim) - 1))]
            victim.extend(deepcopy(child) for _ in range(draw(st.sampled_from([1, 2, 30]))))
        case 7:
            donor = draw(st.sampled_from(_TREES))
            victim.insert(0, deepcopy(draw(st.sampled_from(list(donor.iter())))))
        case 8 if len(victim):
            for child in list(victim)[1:]:
                victim.remove(child)
                victim[0].append(child)
        case _:
            inner = victim
            for _level in range(draw(st.sampled_from([1, 40, 400]))):
                inner = ET.SubElement(inner, draw(st.just("{urn:x}a")))


@st.composite
def _mutated_tree(draw: st.DrawFn) -> bytes:
    tree = deepcopy(draw(st.sampled_from(_TREES)))
    for _ in range(draw(st.integers(0, 4))):
        _mutate(draw, tree)
    return ET.tostring(tree)


@st.composite
def _mutated_text(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(sorted(STANZAS.values())))
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, len(text)))
        last = first + draw(st.integers(0, 20))
        put = draw(st.sampled_from(_TOKENS).map(str.encode) | st.binary(max_size=3) | st.just(text[first:last] * 2))
        text = text[:first] + put + text[last if draw(st.booleans()) else first :]
    return text


streams: Final = st.builds(
    lambda sound, last: b"".join(sound) + last,
    st.lists(_mutated_tree(), max_size=3),
    _mutated_tree() | _mutated_text(),
)
"""What a server might send between two stanzas of its own: the text of the last is changed too, so it may end the stream."""

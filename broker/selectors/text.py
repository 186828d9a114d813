"""Parses a selector's text into its tree in linear time. Knows the grammar; must not know values.

The grammar is LALR(1), so lark's parser never goes back. A text that is too long or has too many parts is refused before or
while it is parsed; the tree is at most as deep as it has parts.
"""

from functools import cache, lru_cache
from typing import Any, Final, TypeVar

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from broker.selectors.tree import (
    Among,
    Both,
    Comparison,
    Either,
    Field,
    Like,
    Literal,
    Missing,
    Negation,
    Operand,
    Order,
    Predicate,
    Section,
)

MOST_CHARACTERS: Final = 1_024
MOST_PARTS: Final = 64
"""Fields, constants and operators together."""

MOST_PATTERN: Final = 256
"""Characters of a pattern of LIKE: the cost per character of a value grows with them."""

_GRAMMAR: Final = r"""
?either: both | either _OR both -> either
?both: term | both _AND term -> both
?term: _NOT term -> negation
     | operand COMPARES operand -> comparison
     | field _LIKE TEXT [_ESCAPE TEXT] -> like
     | field _NOT _LIKE TEXT [_ESCAPE TEXT] -> unlike
     | field _IN "(" constant ("," constant)* ")" -> among
     | field _NOT _IN "(" constant ("," constant)* ")" -> outside
     | field _BETWEEN operand _AND operand -> between
     | field _NOT _BETWEEN operand _AND operand -> beyond
     | field _IS _NULL -> missing
     | field _IS _NOT _NULL -> present
     | field
     | truth
     | "(" either ")"
?operand: field | constant
?constant: TEXT -> text | NUMBER -> number | truth
?truth: TRUE -> truth | FALSE -> truth
field: (NAME | QUOTED) ["." (NAME | QUOTED)]

COMPARES: "<>" | "!=" | "<=" | ">=" | "=" | "<" | ">"
TEXT: /'(?:[^']|'')*'/
NUMBER: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])/
QUOTED: /"(?:[^"]|"")+"/
NAME: /[^\W\d][\w$-]*/
_AND.2: /and(?![\w$-])/i
_OR.2: /or(?![\w$-])/i
_NOT.2: /not(?![\w$-])/i
_LIKE.2: /like(?![\w$-])/i
_ESCAPE.2: /escape(?![\w$-])/i
_IN.2: /in(?![\w$-])/i
_BETWEEN.2: /between(?![\w$-])/i
_IS.2: /is(?![\w$-])/i
_NULL.2: /null(?![\w$-])/i
TRUE.2: /true(?![\w$-])/i
FALSE.2: /false(?![\w$-])/i
%ignore /[ \t\r\n]+/
"""

_EXPECTED: Final = {
    "COMPARES": "a comparison",
    "TEXT": "a text in single quotes",
    "NUMBER": "a number",
    "NAME": "a field",
    "QUOTED": "a field",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "DOT": ".",
    "$END": "the end",
}

_SECTIONS: Final = {
    "application_properties": Section.APPLICATION,
    "application-properties": Section.APPLICATION,
    "properties": Section.PROPERTIES,
    "header": Section.HEADER,
    "message_annotations": Section.MESSAGE,
    "message-annotations": Section.MESSAGE,
    "delivery_annotations": Section.DELIVERY,
    "delivery-annotations": Section.DELIVERY,
    **{section.value: section for section in Section},
}


class UnreadableSelector(ValueError):  # noqa: N818  (it says what the text is)
    """A text is not a selector: `position` is that of the first wrong character, from 1."""

    def __init__(self, why: str, text: str, position: int) -> None:
        """Say where, by line and column if there are several lines."""
        before = text[: position - 1]
        line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1)
        where = f"line {line}, column {column}" if "\n" in text else f"character {position}"
        super().__init__(f"{where}: {why}")
        self.position = position


class _Wrong(ValueError):  # noqa: N818  (as above)
    """The grammar allows a token that the subset does not."""

    def __init__(self, why: str, token: Token) -> None:
        super().__init__(why)
        self.position = (token.start_pos or 0) + 1


_Part = TypeVar("_Part", bound=Predicate)


class _TooMany(ValueError):  # noqa: N818  (as above)
    """The text has too many parts."""


class _Builder(Transformer[Token, Any]):
    """Builds each part as soon as it is parsed, without a second pass."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = 0

    def _part(self, made: _Part) -> _Part:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise _TooMany
        return made

    def field(self, names: list[Token]) -> Field:
        first, *later = names
        if later == [None]:
            return self._part(Field(Section.APPLICATION, _read_name(first)))
        section = _SECTIONS.get(first.lower()) if first.type == "NAME" else None
        if section is None:
            why = "before a dot stands a section: a, p, h, m or d; a name with a dot stands in double quotes"
            raise _Wrong(why, first)
        named = _read_name(later[0])
        # Names of AMQP's own fields may have hyphens or underscores.
        ours = section in {Section.PROPERTIES, Section.HEADER}
        return self._part(Field(section, named.lower().replace("_", "-") if ours else named))

    def text(self, tokens: list[Token]) -> Literal:
        return self._part(Literal(_unquote(tokens[0])))

    def number(self, tokens: list[Token]) -> Literal:
        value = float(tokens[0])
        if value in {float("inf"), float("-inf")}:
            why = "the number is too large"
            raise _Wrong(why, tokens[0])
        return self._part(Literal(value))

    def truth(self, tokens: list[Token]) -> Literal:
        return self._part(Literal(tokens[0].lower() == "true"))

    def comparison(self, parts: list[Any]) -> Comparison:
        left, sign, right = parts
        return self._part(Comparison(left, Order("<>" if sign == "!=" else sign), right))

    def both(self, parts: list[Any]) -> Both:
        return self._part(Both(*parts))

    def either(self, parts: list[Any]) -> Either:
        return self._part(Either(*parts))

    def negation(self, parts: list[Any]) -> Negation:
        return self._part(Negation(*parts))

    def like(self, parts: list[Any]) -> Like:
        field, pattern, escape = parts
        return self._part(Like(field, _characters(pattern, escape)))

    def unlike(self, parts: list[Any]) -> Negation:
        return self.negation([self.like(parts)])

    def among(self, parts: list[Any]) -> Among:
        return self._part(Among(parts[0], tuple(parts[1:])))

    def outside(self, parts: list[Any]) -> Negation:
        return self.negation([self.among(parts)])

    def between(self, parts: list[Operand]) -> Both:
        field, least, most = parts
        return self.both(
            [self.comparison([field, Order.AT_LEAST, least]), self.comparison([field, Order.AT_MOST, most])]
        )

    def beyond(self, parts: list[Operand]) -> Negation:
        return self.negation([self.between(parts)])

    def missing(self, parts: list[Field]) -> Missing:
        return self._part(Missing(parts[0]))

    def present(self, parts: list[Field]) -> Negation:
        return self.negation([self.missing(parts)])


def _read_name(token: Token) -> str:
    text = str(token)
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _characters(pattern: Token, escape: Token | None) -> tuple[tuple[str, bool], ...]:
    text, mark = _unquote(pattern), "" if escape is None else _unquote(escape)
    if escape is not None and len(mark) != 1:
        why = "after ESCAPE stands one character"
        raise _Wrong(why, escape)
    if len(text) > MOST_PATTERN:
        why = f"a pattern has at most {MOST_PATTERN} characters"
        raise _Wrong(why, pattern)
    made: list[tuple[str, bool]] = []
    chars = iter(text)
    for char in chars:
        escaped = next(chars, "") if char == mark else None
        if escaped is not None and escaped not in {"%", "_", mark}:
            why = "in a pattern the escape character stands before %, _ or itself"
            raise _Wrong(why, pattern)
        made.append((escaped, False) if escaped else (char, char in {"%", "_"}))
    return tuple(made)


_BUILDER: Final = _Builder()


@cache
def _parser() -> Lark:
    """Make the parser for the first selector: it takes a twelfth of a program's start, and most see no selector."""
    return Lark(_GRAMMAR, start="either", parser="lalr", lexer="basic", maybe_placeholders=True, transformer=_BUILDER)


@lru_cache(maxsize=1_000)
def read(text: str) -> Predicate:
    """Parse a selector; raises UnreadableSelector, which names the position and what was expected."""
    if len(text) > MOST_CHARACTERS:
        why = f"a selector has at most {MOST_CHARACTERS} characters"
        raise UnreadableSelector(why, text, MOST_CHARACTERS + 1)
    _BUILDER.parts = 0
    try:
        tree: Predicate = _parser().parse(text)  # type: ignore[assignment]  # the builder makes it, not lark's tree
    except UnexpectedToken as wrong:
        token = wrong.token
        ended = token.type == "$END"
        found = "the text ends" if ended else f"{token[:40]!r} cannot stand here"
        why, position = f"{found}; expected {_describe_expected(wrong)}", len(text) if ended else token.start_pos or 0
        raise UnreadableSelector(why, text, position + 1) from None
    except UnexpectedCharacters as wrong:
        at: int = wrong.pos_in_stream  # type: ignore[assignment]  # lark says so of its base class alone
        why = "the quote has no end" if text[at] in "'\"" else f"{text[at]!r} cannot stand here"
        raise UnreadableSelector(why, text, at + 1) from None
    except _TooMany:
        why = f"a selector has at most {MOST_PARTS} fields, constants and operators"
        raise UnreadableSelector(why, text, len(text)) from None
    except _Wrong as wrong:
        raise UnreadableSelector(str(wrong), text, wrong.position) from None
    return tree


def _describe_expected(wrong: UnexpectedToken) -> str:
    words = {_EXPECTED.get(name, name.strip("_")) for name in wrong.accepts or wrong.expected}
    *most, last = sorted(words)
    return f"{', '.join(most)} or {last}" if most else last

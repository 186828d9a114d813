"""Data forms (XEP-0004) with a FORM_TYPE (XEP-0068). Must not know what a field means."""

from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.frozen import frozen
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import escape

FORM: Final = f"{{{ns.FORM}}}x"
_FIELD: Final = f"{{{ns.FORM}}}field"
_VALUE: Final = f"{{{ns.FORM}}}value"


@frozen
class Field:
    """One field; an empty `kind` or `label` is omitted."""

    name: str
    values: tuple[str, ...] = ()
    kind: str = ""
    label: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False


def read(form: Element, form_type: str) -> Mapping[str, tuple[str, ...]] | None:
    """Parse a submitted form of this type into fields by name; None for a cancelled form."""
    kind = form.get("type")
    if kind == "cancel":
        return None
    if kind != "submit":
        raise MalformedRequest(Problem.OPTIONS_INVALID, "the type of a submitted form must be submit or cancel")
    fields: dict[str, tuple[str, ...]] = {}
    for field in form.iterfind(_FIELD):
        name = field.get("var")
        if not name or name in fields:
            raise MalformedRequest(Problem.OPTIONS_INVALID, "each field of a form must have its own var")
        fields[name] = tuple(value.text or "" for value in field.iterfind(_VALUE))
    # A form without FORM_TYPE is assumed to be of the expected type; another type is refused.
    if fields.pop("FORM_TYPE", (form_type,)) != (form_type,):
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"the FORM_TYPE here is {form_type}")
    return fields


def refuse(form: Element | None) -> None:
    """Refuse a form inside a get: a submitted form means a change (RFC 6120 §8.2.3)."""
    if form is not None:
        raise MalformedRequest(Problem.BAD_REQUEST, "a form is submitted with a set")


def names(stanza: Element, name: str) -> bool:
    """Tell whether a form inside a stanza has a field of this name."""
    return any(field.get("var") == name for field in stanza.iter(_FIELD))


def write_form(kind: str, form_type: str, fields: Iterable[Field], title: str = "", instructions: str = "") -> str:
    """Write a form of the kind `form` or `result`, with a title and instructions."""
    inside = "".join(map(_field, fields))
    words = "".join(
        f"<{name}>{escape(text)}</{name}>" for name, text in (("title", title), ("instructions", instructions)) if text
    )
    return (
        f"<x xmlns='{ns.FORM}' type='{kind}'>{words}"
        f"<field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>{inside}</x>"
    )


def table(form_type: str, columns: Iterable[Field], rows: Iterable[Mapping[str, str]], title: str) -> str:
    """Write results as rows, each a mapping of columns to values (XEP-0004 §3.4)."""
    items = "".join(f"<item>{''.join(_field(Field(name, (row[name],))) for name in row)}</item>" for row in rows)
    return (
        f"<x xmlns='{ns.FORM}' type='result'><title>{escape(title)}</title>"
        f"<field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>"
        f"<reported>{''.join(map(_field, columns))}</reported>{items}</x>"
    )


def _field(field: Field) -> str:
    kind = f" type='{field.kind}'" if field.kind else ""
    label = f" label='{escape(field.label)}'" if field.label else ""
    values = "".join(f"<value>{escape(value)}</value>" for value in field.values)
    choices = "".join(f"<option><value>{escape(choice)}</value></option>" for choice in field.choices)
    required = "<required/>" if field.required else ""
    return f"<field var='{escape(field.name)}'{kind}{label}>{required}{values}{choices}</field>"

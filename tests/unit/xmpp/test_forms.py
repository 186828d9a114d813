"""Data forms, read strictly and written so that they are read back."""

from xml.etree import ElementTree as ET

import pytest

from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml import forms

_TYPE = "urn:example:form"


def _form(inside: str, kind: str = "submit") -> ET.Element:
    return ET.fromstring(f"<x xmlns='{ns.FORM}' type='{kind}'>{inside}</x>")


def _field(name: str, *values: str) -> str:
    return f"<field var='{name}'>{''.join(f'<value>{value}</value>' for value in values)}</field>"


def test_reads_a_submission() -> None:
    """Fields come by name with all their values; FORM_TYPE is not one of them."""
    form = _form(_field("FORM_TYPE", _TYPE) + _field("a", "1", "2") + _field("b") + _field("c", ""))
    assert forms.read(form, _TYPE) == {"a": ("1", "2"), "b": (), "c": ("",)}


def test_a_form_without_form_type_is_of_its_place() -> None:
    """Peers that leave FORM_TYPE out are understood."""
    assert forms.read(_form(_field("a", "1")), _TYPE) == {"a": ("1",)}


def test_cancel_is_no_form() -> None:
    """A cancelled form has no fields (P23)."""
    assert forms.read(_form(_field("a", "1"), "cancel"), _TYPE) is None


@pytest.mark.parametrize(
    "form",
    [
        _form("", "form"),
        _form("", "result"),
        _form("", "banana"),
        ET.fromstring(f"<x xmlns='{ns.FORM}'/>"),
        _form(_field("FORM_TYPE", "urn:other")),
        _form(_field("FORM_TYPE")),
        _form(_field("a", "1") + _field("a", "2")),
        _form("<field><value>1</value></field>"),
        _form(_field("", "1")),
    ],
)
def test_refuses_other_forms(form: ET.Element) -> None:
    """A form of the wrong type, of another FORM_TYPE, or with fields that nobody could tell apart is refused (Q11)."""
    with pytest.raises(MalformedRequest) as caught:
        forms.read(form, _TYPE)
    assert caught.value.problem is Problem.OPTIONS_INVALID


def test_writes_what_people_need() -> None:
    """Labels, types, options and required fields reach the person who fills the form in, escaped."""
    field = forms.Field("a'", ("<1>",), "list-single", "It's & that", ("<1>", "2"), required=True)
    form = ET.fromstring(forms.write_form("form", _TYPE, [field]))
    written = form[1]
    assert (form.get("type"), form[0].get("var"), form[0][0].text) == ("form", "FORM_TYPE", _TYPE)
    assert (written.get("var"), written.get("type"), written.get("label")) == ("a'", "list-single", "It's & that")
    assert [child.tag.rpartition("}")[2] for child in written] == ["required", "value", "option", "option"]
    assert [text for text in written.itertext() if text] == ["<1>", "<1>", "2"]


def test_reads_back_what_it_wrote() -> None:
    """A form that is sent back as it was shown says what it showed."""
    written = forms.write_form("submit", _TYPE, [forms.Field("a", ("1", "2")), forms.Field("b", ("x\r\ny",))])
    assert forms.read(ET.fromstring(written), _TYPE) == {"a": ("1", "2"), "b": ("x\r\ny",)}

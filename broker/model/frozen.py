"""The decorator of frozen values: commands, results, records. Must not know any of them."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """Make a dataclass with slots that the type checker lets nobody change.

    Python does not check it: a class that is frozen there sets each field by a call, which took seven per cent of a frontend's
    time.
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)

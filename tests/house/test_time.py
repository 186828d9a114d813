"""No test depends on a quiet machine: waits have seconds, and slowness alone is no failure."""

import ast
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

LEAST_SECONDS: Final = 10
"""A machine three times slower, and busy, takes this long for what a quiet one does at once."""

CLOCKS: Final = ("monotonic()", ".time()", "perf_counter()")

WAITS: Final = ("asyncio.timeout", "asyncio.wait_for")

OPERATORS: Final = {ast.Add: operator.add, ast.Mult: operator.mul, ast.Div: operator.truediv}

EXCEPTIONS: Final = {
    "tests/doors/amqp/test_protocol_errors.py": "a peer that hears nothing for so long gives up: the protocol's own bound",
    "tests/faults/test_doors.py": "what Redis forgets may be told to a client for so long",
}
"""Files whose bounds are something else."""

TRY: Final = "TRY_SECONDS"
"""How a constant's name ends if what takes longer is tried again."""


def _constants(tree: ast.Module) -> dict[str, float]:
    """Return the numbers that a file names, but for those of tries."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(int() | float() as value)):
                found[name] = float(value)
            case ast.AnnAssign(ast.Name(name), _, ast.Constant(int() | float() as value)):
                found[name] = float(value)
    return {name: value for name, value in found.items() if not name.endswith(TRY)}


def _value(node: ast.AST, constants: Mapping[str, float]) -> float:
    """Return what a sum or product of numbers and constants is; 0 for anything else."""
    match node:
        case ast.Constant(int() | float() as value):
            return float(value)
        case ast.Name(name):
            return constants.get(name, 0)
        case ast.BinOp(left, ast.Add() | ast.Mult() | ast.Div() as sign, right):
            first, second = _value(left, constants), _value(right, constants)
            return OPERATORS[type(sign)](first, second) if first and second else 0
    return 0


def _faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    constants = _constants(tree)

    def short(node: ast.AST) -> bool:
        return 0 < _value(node, constants) < LEAST_SECONDS

    for node in ast.walk(tree):
        match node:
            case ast.Call(func, args, _) if ast.unparse(func) in WAITS and args and short(args[-1]):
                yield node.lineno, "it is waited too shortly"
            case ast.Compare(left, [ast.Lt() | ast.LtE()], [right]) if short(right):
                if any(clock in ast.unparse(left) for clock in CLOCKS) and isinstance(left, ast.BinOp):
                    yield node.lineno, "a busy machine takes longer"
            case ast.BinOp(ast.Call() as left, ast.Add(), right) if short(right):
                if ast.unparse(left).endswith("monotonic()"):
                    yield node.lineno, "it is waited too shortly"


def test_time() -> None:
    """No wait and no bound is shorter than a busy machine needs; a constant's name says when it is a try."""
    faults = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name not in EXCEPTIONS and any(word in text for word in (*WAITS, *CLOCKS)):
            faults += [f"{name}:{line}: {fault}" for line, fault in _faults(ast.parse(text))]
    assert faults == []


def test_exceptions_are_there() -> None:
    """An excepted file exists, and has something to except."""
    assert all(list(_faults(ast.parse((ROOT / name).read_text()))) for name in EXCEPTIONS)

"""No test depends on a quiet machine: waits have seconds, and slowness alone is no failure."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

LEAST_SECONDS: Final = 10
"""A machine three times slower, and busy, takes this long for what a quiet one does at once."""

CLOCKS: Final = ("monotonic()", ".time()", "perf_counter()")

WAITS: Final = ("asyncio.timeout", "asyncio.wait_for")

EXCEPTIONS: Final = {
    "tests/doors/amqp/test_protocol_errors.py": "a peer that hears nothing for so long gives up: the protocol's own bound",
}
"""Files whose bounds are something else."""


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and 0 < node.value < LEAST_SECONDS


def _faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func, args, _) if ast.unparse(func) in WAITS and args and _number(args[-1]):
                yield node.lineno, "it is waited too shortly"
            case ast.Compare(left, [ast.Lt() | ast.LtE()], [right]) if _number(right):
                if any(clock in ast.unparse(left) for clock in CLOCKS) and isinstance(left, ast.BinOp):
                    yield node.lineno, "a busy machine takes longer"


def test_time() -> None:
    """No wait and no bound is shorter than a busy machine needs; a constant's name says when it is something else."""
    faults = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name not in EXCEPTIONS:
            faults += [f"{name}:{line}: {fault}" for line, fault in _faults(ast.parse(path.read_text()))]
    assert faults == []


def test_exceptions_are_there() -> None:
    """An excepted file exists, and has something to except."""
    assert all(list(_faults(ast.parse((ROOT / name).read_text()))) for name in EXCEPTIONS)

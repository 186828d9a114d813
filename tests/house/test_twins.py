"""The programs in `examples/` that have a twin with another library, in `bench/peers/lines/`, are no longer than it."""

import re
import tokenize
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
TWINS: Final = sorted((ROOT / "bench" / "peers" / "lines").glob("*.py"))

_NO_CODE: Final = {tokenize.COMMENT, tokenize.NL}
_BETWEEN: Final = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count_lines(program: Path) -> int:
    """Count the lines with code: none that are blank, and none with only a comment or a docstring."""
    lines, last = set[int](), tokenize.NEWLINE
    with tokenize.open(program) as text:
        for token in tokenize.generate_tokens(text.readline):
            if token.type in _NO_CODE:
                continue
            # A text at the beginning of a statement is a docstring.
            if token.type not in _BETWEEN and not (token.type == tokenize.STRING and last in _BETWEEN):
                lines |= {*range(token.start[0], token.end[0] + 1)}
            last = token.type
    return len(lines)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.stem)
def test_is_no_longer(twin: Path) -> None:
    """The list of examples tells how long both are; the twin can be compiled, at least."""
    compile(twin.read_text(), twin, "exec")
    ours, theirs = count_lines(EXAMPLES / twin.name), count_lines(twin)
    assert ours <= theirs
    (row,) = re.findall(rf"^\| \[{twin.name}\].*", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert f"| {ours} | [{theirs}, " in row and f"](../bench/peers/lines/{twin.name}) |" in row


def test_counts_code(tmp_path: Path) -> None:
    """A call over three lines counts as three, a docstring as none, another text as its lines."""
    program = tmp_path / "program.py"
    program.write_text(
        '"""A\n\nprogram."""\n\n# One\nf(\n    1,  # two\n)\n\ndef f():\n    """No."""\n    return """\n\n"""\n'
    )
    assert count_lines(program) == 7

"""The results of `make mutants`, as the table of docs/mutation.md. Knows where mutmut keeps them, and no test."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Final

KEPT: Final = Path("mutants")
LEAST: Final = 0.85
"""The share of each module's mutants that tests have to notice."""

_SURVIVED: Final = {0: "survived", 5: "survived", 33: "survived", 2: "not played", None: "not played"}
"""Exit codes of pytest when no test has noticed: all passed, or there were none."""


def main() -> int:
    """Print a row for each module; return 1 when one has too few killed, or mutants were not run."""
    poor: list[str] = []
    print("| module | mutants | killed | survived | |\n|---|---|---|---|---|")  # noqa: T201
    for meta in sorted(KEPT.rglob("*.py.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"].values()
        found = Counter(_SURVIVED.get(code, "killed") for code in codes)
        if not codes:
            continue
        module = meta.relative_to(KEPT).as_posix().removesuffix(".meta")
        share = found["killed"] / len(codes)
        print(f"| {module} | {len(codes)} | {found['killed']} | {found['survived']} | {share:.0%} |")  # noqa: T201
        if share < LEAST:
            poor.append(module)
    if poor:
        print(f"less than {LEAST:.0%} were noticed of {', '.join(poor)}", file=sys.stderr)  # noqa: T201
    return bool(poor)


if __name__ == "__main__":
    raise SystemExit(main())

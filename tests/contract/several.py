"""A program that runs several commands one after another, which is quicker than a process for each, and shows how they ended."""

import json
import sys

from typer.testing import CliRunner

from frontends.cli import app

if __name__ == "__main__":
    done = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[1])]
    print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))  # noqa: T201  (a program)

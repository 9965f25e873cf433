"""``docs/reference/commands.md``: the help of every command, and all exit statuses.

The width of a terminal (``COLUMNS``) is that of the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sotto.exit_status import ExitStatus
from sotto_cli import command_parser

_HEAD = """\
# Commands

Written by `make docs` from the commands themselves; `sotto COMMAND --help` prints the same. `sotto
completion bash` prints a script by which a shell completes commands and options (`pip install
'.[completion]'`).

## Exit statuses

| status | meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    statuses = "".join(f"| {each:d} | {each.meaning} |\n" for each in ExitStatus)
    return _HEAD + statuses + "".join(_sections(command_parser()))


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section for each command below a parser, in the order of its help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                text = "\n".join(line.rstrip() for line in command.format_help().splitlines())
                yield f"\n## {command.prog}\n\n```text\n{text}\n```\n"
                yield from _sections(command)


if __name__ == "__main__":
    print(page(), end="")

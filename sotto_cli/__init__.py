"""Telemetry sotto voce: devices randomize each value before they send it, again and again with less
noise, and keep a ledger of what that cost; an aggregator counts, audits and estimates.

examples:
  sotto plan check plan.yaml              what a plan collects, and what that costs
  sotto plan compile plan.yaml            make the JSON that devices and aggregators read
  sotto COMMAND --help                    more about one command

Errors go to standard error and end with status 2; docs/reference/commands.md lists all statuses.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from sotto.errors import ParameterError, SottoError, did_you_mean, install_hint
from sotto.exit_status import ExitStatus
from sotto.version import __version__

#: Subcommands: modules of this package with a docstring, which is their help, examples last;
#: ``add_arguments(parser)``; and ``run(args)``, which returns the exit status, or None if it is 0.
COMMANDS = (
    "plan",
    "replay",
    "log",
    "aggregate",
    "quarantine",
    "requeue",
    "retain",
    "forget",
    "backup",
    "restore",
    "estimates",
    "export",
    "ledger",
    "preview",
    "audit",
    "design",
    "topics",
    "exporter",
    "stream",
    "sink",
    "collect",
    "serve",
    "report",
    "alerts",
    "completion",
)

#: Those that are in :mod:`sotto_cli.upkeep`.
_UPKEEP = ("quarantine", "requeue", "retain", "forget", "backup", "restore", "topics")

#: The extra that a missing module is part of.
_EXTRAS = {
    "yaml": "plan",
    "pydantic": "plan",
    "kafka": "kafka",
    "prometheus_client": "exporter",
    "matplotlib": "plots",
    "cryptography": "signatures",
    "fastapi": "collector",
    "uvicorn": "collector",
    "jinja2": "web",
    "shtab": "completion",
}

#: Packages that are there wherever the command is.
_OWN_PACKAGES = ("sotto", "sotto_cli", "mechanisms", "clientsdk", "pipelines")

#: Options of the release before, and what they are called now.
_RENAMED = {"--json": "--format json"}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others of this command."""

    def error(self, message: str) -> NoReturn:
        if not message.startswith("argument -"):
            # For a wrong value of an option the error line is enough.
            self.print_usage(sys.stderr)
        wrong = re.fullmatch(r"(.*)invalid choice: '(.*)' \(choose from (.*)\)", message)
        if wrong:
            # Each release of Python lists them in another way.
            known = re.findall(r"[\w-]+", wrong[3])
            near = did_you_mean(wrong[2], known)
            message = f"{wrong[1]}{wrong[2]!r} must be one of {', '.join(known)}{near}"
        raise ParameterError(message.removeprefix("argument "))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, with the process's own arguments by default, and return its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        # Commands load much and leave few cycles: rarer collections spare a tenth of a start.
        gc.set_threshold(10_000)
    # Matrices are small: a thread of numpy's for each core takes more time than it saves.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Streams that were closed before the start lead nowhere, also those of children: the next file
    # would have their number, and get what a library or a child writes to standard error.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.dup(number), "r+", errors="backslashreplace"))
    os.close(number)
    try:
        parsed = _parsed(given)
        status: int = parsed.run(parsed) or ExitStatus.DONE
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has gone; let the interpreter's own flush at exit not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.NO_READER
    except (SottoError, OSError) as error:
        return _failed(_words(error))
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "", "pipelines")
        if (error.name or "").split(".")[0] in _OWN_PACKAGES:
            raise
        return _failed(f"{error.name} is not installed; {install_hint(extra)}")
    return status


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; options that are not Sotto's go to Beam, if the command runs a job."""
    parser = command_parser(given)
    parsed, rest = parser.parse_known_args(given)
    if "beam" in parsed:
        parsed.beam = [each for each in rest if each != "--"]
    elif rest:
        known = {f"--{name.replace('_', '-')}" for name in vars(parsed)}
        now = _RENAMED.get(rest[0])
        hint = f"; it is {now} now" if now else did_you_mean(rest[0].partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return parsed


def command_module(name: str) -> ModuleType:
    """Import the module of a command."""
    folder = "sotto_cli.upkeep" if name in _UPKEEP else "sotto_cli"
    return importlib.import_module(f"{folder}.{name}")


def command_parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of all commands, or of the one alone that the arguments name."""
    parser = _Parser(prog="sotto", **_help_of(__doc__))
    parser.add_argument("--version", action="version", version=f"sotto {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = given[0] if given else ""
    for name in [wanted] if wanted in COMMANDS else COMMANDS:
        module = command_module(name)
        about = _help_of(module.__doc__)
        first = about["description"].partition("\n")[0].rstrip(".")
        command = commands.add_parser(name, help=first[:1].lower() + first[1:], **about)
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    return parser


def _help_of(text: str | None) -> dict[str, Any]:
    """Return the help of a parser from a module's docstring: examples, and what follows, last."""
    description, examples, rest = (text or "").partition("examples:\n")
    layout = argparse.RawDescriptionHelpFormatter
    return {"description": description, "epilog": examples + rest, "formatter_class": layout}


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror}"
    return str(error)


def _failed(message: str) -> int:
    sys.stdout.flush()
    for line in message.splitlines() or [""]:
        print(f"sotto: error: {line}", file=sys.stderr)
    return ExitStatus.FAILED

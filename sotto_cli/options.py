"""The common part of several commands: their options, the plans they read, signals and progress."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sotto.errors import BrokerError, ParameterError
from sotto.exit_status import ExitStatus
from sotto.files import log_folder
from sotto.plan.durations import parse_duration, parse_time
from sotto.plan.files import plans_of
from sotto.wire.reasons import Reason

if TYPE_CHECKING:
    from pipelines.alerts.watch import AlertWatch
    from pipelines.results.reader import ResultsReader
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import ReportTopic
    from sotto.plan.compiled import CompiledPlan

T = TypeVar("T")
N = TypeVar("N", int, float)


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Declare ``--listen`` and ``--port``."""
    add(parser, "--listen ADDRESS", "where to listen", "127.0.0.1")
    add(parser, "--port N", "where to listen; 0 for any free one", port, type=whole(0, 65535))


def add_listen(parser: argparse.ArgumentParser, port: int) -> None:
    """Declare where a server listens: ``--listen``, ``--port``, ``--behind-proxy``."""
    add_address(parser, port)
    proxy = "what --listen opens is reached through a proxy alone, which ends TLS"
    add(parser, "--behind-proxy", proxy)


def duration(text: str) -> int:
    """Return milliseconds: the type of an option such as ``--every 10s``."""
    try:
        return parse_duration(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def typed(read: Callable[[str], T], expected: str) -> Callable[[str], T]:
    """Return the type of an option; ``read`` raises ValueError for what is not as expected."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} must be {expected}") from None

    return checked


def _part(text: str) -> float:
    """Return a number, or a percentage as a part of one."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _compared(text: str) -> tuple[float, float]:
    first, other = map(_part, text.split(":"))
    return first, other


def _within(read: Callable[[str], N], allowed: Callable[[N], bool]) -> Callable[[str], N]:
    def checked(text: str) -> N:
        if allowed(number := read(text)):
            return number
        raise ValueError

    return checked


def _renamed(text: str) -> tuple[str, str]:
    metric, _, column = text.partition("=")
    if metric and column:
        return metric, column
    raise ValueError


#: Types of options: of ``--until 2013-06-01``, in milliseconds since the epoch; of ``--ladder
#: 0.5,1,2``; of ``--experiment 10%:11%``; of finite numbers; of ``--every 10s``, in milliseconds;
#: of ``--confidence 0.95``; of ``--hold 0.01``; of shares such as 0.01 or 1%; of ``--map`` and
#: ``--segment``, a metric or segment and its column; of ``--log build/log``.
moment = typed(parse_time, "a time such as 2013-06-01T12:00Z")
numbers = typed(lambda text: list(map(float, text.split(","))), "numbers with commas between them")
compared = typed(_compared, "two numbers, such as 10%:11% or 410:400")
above_zero = typed(_within(float, lambda number: 0 < number < inf), "a number above 0")
interval = typed(_within(parse_duration, lambda ms: ms > 0), "a duration above 0, such as 10s")
probability = typed(_within(float, lambda number: 0 < number < 1), "a number between 0 and 1")
few_seconds = typed(_within(float, lambda number: 0 < number <= 10), "seconds above 0, at most 10")
share = typed(_within(_part, lambda number: 0 <= number <= 1), "a share, such as 1% or 0.01")
renamed = typed(_renamed, "NAME=COLUMN")
folder = typed(lambda text: Path(log_folder(text)), "a path without ~ and file:, such as build/log")


def several(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return the type of an option such as ``--panels 1,4,13``: whole numbers, each once."""
    return lambda text: tuple(dict.fromkeys(map(whole(1, most), text.split(","))))


def whole(least: int, most: float = inf) -> Callable[[str], int]:
    """Return the type of an option that is a whole number in a range."""

    def read(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or not least <= int(text) <= most:
            allowed = f"at least {least}" if most == inf else f"in [{least}, {most:.0f}]"
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {allowed}")
        return int(text)

    return read


def reason(text: str) -> Reason:
    """Return why something was rejected: the type of an option such as ``--reason late``."""
    known = {each.label: each for each in Reason}
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none: {', '.join(known)}")
    return known[text]


#: Types of options, by the word that stands for their value.
_TYPES: dict[str, Callable[[str], object]] = {
    "DURATION": duration,
    "TIME": moment,
    "DIR": folder,
    "FILE": Path,
    "SHARE": share,
    "N": whole(1),
    "E": above_zero,
    "P": probability,
}


#: Options that mean the same to all commands that have them: value, help, default.
_SHARED: dict[str, tuple[str, str, object]] = {
    "--state": ("DIR", "the state directory of sotto aggregate", None),
    "--database": ("URL", "such as sqlite:///FILE; default: results.db of --state", None),
    "--log": ("DIR", "an embedded log", None),
    "--metric": ("NAME", "only this metric", None),
    "--follow": ("", "go on with what comes, until interrupted", None),
    "--dry-run": ("", "print what would be done, and change nothing", None),
    "--wait": ("DURATION", "how long to wait for a run that is under way", "60s"),
}


def add(
    parser: argparse._ActionsContainer,
    name: str,
    help: str | None = None,
    default: object = None,
    **more: Any,
) -> None:
    """Declare an option such as ``--every DURATION``; without a word for its value it is a flag.

    One without help is one that several commands share.
    """
    flag, _, value = name.partition(" ")
    if help is None:
        value, help, default = _SHARED[flag]
    if not value:
        parser.add_argument(flag, action="store_true", help=help)
        return
    help += "" if default in (None, []) else f" (default: {default})"
    more = {"type": _TYPES.get(value), "metavar": value, "default": default, **more}
    parser.add_argument(flag, help=help, **more)


def add_format(parser: argparse._ActionsContainer, *names: str) -> None:
    """Declare ``--format``; the first is the default."""
    add(parser, "--format NAME", f"one of {', '.join(names)}", names[0], choices=names)


def add_plans(parser: argparse.ArgumentParser, which: str, *, required: bool = True) -> None:
    """Declare ``--plan``; ``which`` says which ones are expected."""
    help = f"a plan (YAML), or a compiled one (.json); {which}"
    add(parser, "--plan FILE", help, [], action="append", required=required)


def add_plan_folder(parser: argparse.ArgumentParser) -> None:
    """Declare ``--plans``."""
    help = "a folder of such files, read again before each run: a new plan needs no restart"
    add(parser, "--plans DIR", help)


def add_broker(
    where: argparse._ActionsContainer,
    plain: str = "brokers, unencrypted, without a user",
    file: str = "how to reach brokers (JSON)",
) -> None:
    """Declare ``--kafka`` and ``--broker``, of which one is given."""
    add(where, "--kafka HOST:PORT", plain)
    add(where, "--broker FILE", file)


def add_reasons(parser: argparse.ArgumentParser, help: str) -> None:
    """Declare ``--reason``: labels of reasons, as :class:`~sotto.wire.reasons.Reason`."""
    add(parser, "--reason REASON", help, [], action="append", type=reason)


def add_source(parser: argparse.ArgumentParser, topics: str) -> None:
    """Declare ``--log``, ``--kafka`` and ``--broker``, of which one is given, and ``--topic``."""
    where = parser.add_mutually_exclusive_group(required=True)
    add(where, "--log")
    add_broker(where)
    add(parser, "--topic NAME", topics, [], action="append")


def check_outside(state: Path, log: Path | None) -> None:
    """Raise ParameterError if a job's folder is within the log that it reads."""
    if log is not None and state.resolve().is_relative_to(log.resolve()):
        raise ParameterError("--state must be outside --log, which is read alone")


def check_watched(args: argparse.Namespace) -> None:
    """Raise ParameterError if what a job reads is named by halves."""
    if bool(args.topic) != bool(args.kafka or args.broker):
        raise ParameterError("--topic goes with --kafka or --broker, and they with it")
    if args.log and not args.state:
        raise ParameterError("--log goes with --state: a streaming job reads --topic")


def broker_of(args: argparse.Namespace) -> Broker:
    """Return how to reach the brokers that ``--kafka`` or ``--broker`` names."""
    from sotto.kafka.brokers import Broker, require_client

    require_client()
    return Broker(args.kafka) if args.broker is None else Broker.from_file(args.broker)


def topics_of(names: Sequence[str] | str | None) -> list[ReportTopic]:
    """Return the topics of reports that ``--topic`` names, one at least."""
    from sotto.kafka.topics import ReportTopic

    names = [names] if isinstance(names, str) else names
    if not names:
        raise ParameterError("--topic is missing: sotto topics list shows what there is")
    return [ReportTopic.parse(name) for name in names]


def add_results(parser: argparse.ArgumentParser) -> None:
    """Declare where results and plans are: ``--state``, ``--database``, ``--plan``."""
    add(parser, "--state")
    add(parser, "--database")
    add_plans(parser, "where no state directory has the plans", required=False)


def reader_of(args: argparse.Namespace) -> ResultsReader:
    """Return the reader of the results that the arguments name."""
    from pipelines.results.reader import ResultsReader
    from pipelines.sinks.sql import of_state

    if args.state is None and args.database is None:
        raise ParameterError("--state or --database must say where the results are")
    if args.state is not None and args.plan:
        raise ParameterError("--plan is for a database without --state, which has the plans")
    plans = plans_of(args.plan)[0]
    return ResultsReader(args.database or of_state(args.state), args.state, plans)


def add_alerts(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--alerts`` and ``--kept``."""
    what += "; without a file it watches all figures and keeps what it finds"
    # argparse would take a text for the name of a file.
    add(parser, "--alerts FILE", what, nargs="?", const=False)
    where = "where alerts are kept (default: alerts.json in the state directory)"
    add(parser, "--kept FILE", where)


def alerts_of(args: argparse.Namespace, reader: ResultsReader) -> AlertWatch:
    """Return what looks for alerts in the results, as ``--alerts`` and ``--kept`` say."""
    from pipelines.alerts.configuration import Configuration, load_configuration
    from pipelines.alerts.watch import AlertWatch

    configuration = load_configuration(args.alerts) if args.alerts else Configuration()
    if args.kept is None and args.state is None:
        raise ParameterError("--kept must say where alerts are kept, such as --kept alerts.json")
    kept = args.kept or Path(args.state) / "alerts.json"
    return AlertWatch(reader, configuration, kept, warn=warn)


def say(text: str) -> None:
    """Print what the command itself says on standard error, unless its disk is full."""
    with suppress(OSError):
        print(f"sotto: {text}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    say(f"warning: {text}")


def error(text: str) -> None:
    """Print an error that does not end the command on standard error."""
    say(f"error: {text}")


def warn_unsigned(plans: Sequence[CompiledPlan]) -> None:
    """Warn of plans without signatures where others of the collector have them."""
    from sotto.plan.registry import Registry

    if unsigned := Registry(plans).unsigned:
        warn(
            f"{', '.join(unsigned)} of {plans[0].collector} has no signatures and other plans "
            "have: a device with both has two pseudonyms and two budgets in a period, and its "
            "unsigned one can be framed"
        )


def quiet_libraries() -> None:
    """Keep log lines of Beam and kafka-python off the terminal; the command prints what fails."""
    import logging

    from sotto.kafka import client_logs

    logging.basicConfig(level=logging.ERROR)
    client_logs.quiet()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Let the first interrupt or SIGTERM set an event and the next of its kind end the process."""
    stopped = threading.Event()
    # The handler does not set it: it may interrupt the event's wait, which holds the lock, and it
    # runs only after a wait that began in the instant of the signal. The socket is told at once.
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def pass_on() -> None:
        with reader:
            while number := reader.recv(1):
                if number[0] in before:
                    stopped.set()

    with writer:
        wakened = signal.set_wakeup_fd(writer.fileno())
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, _let_the_next_end) for number in numbers}
        try:
            threading.Thread(target=pass_on, daemon=True).start()
            yield stopped
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakened)


def _let_the_next_end(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)


def status_line() -> Callable[[str], None]:
    """Return what shows a text on one line of a terminal, if standard error is one."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def stopped_status(stopped: threading.Event) -> ExitStatus:
    """Return how a command ends that an interrupt may have stopped between two steps."""
    return ExitStatus.INTERRUPTED if stopped.is_set() else ExitStatus.DONE


def follow(
    once: Callable[[], object],
    stopped: threading.Event,
    seconds: float,
    at_start: type[Exception] = BrokerError,
) -> None:
    """Do something again and again, so many seconds apart, until ``stopped`` is set.

    A broker or a database that cannot be used, or a full disk, is an error that is printed; one of
    the kind ``at_start``, before it has been done once, is for a person to put right, and raised.
    """
    from pipelines.sinks.base import SinkError
    from pipelines.storage.directory import FullDiskError

    begun = False
    while not stopped.is_set():
        try:
            once()
            begun = True
        except (SinkError, BrokerError, FullDiskError) as problem:
            if not begun and isinstance(problem, at_start):
                raise
            error(f"{problem}; trying again")
        stopped.wait(seconds)


@contextmanager
def progress_bar(unit: str, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on standard error, if that is a terminal, how much of how much is done."""
    from tqdm import tqdm

    with tqdm(
        unit="B" if unit == "bytes" else f" {unit}",
        unit_scale=True,
        desc=what,
        disable=None,
        file=sys.stderr,
        leave=False,
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show

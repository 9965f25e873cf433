"""Runs in processes of their own, which are killed where they are told to, or at any moment."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from benchmarks.soak.schedule import FaultError
from pipelines.bounded.driver import STEPS as COMMIT_STEPS

#: What a run that could not go on ends with; why is in its log.
REFUSED = 3
KILLED = -signal.SIGKILL
#: How long a run may take, in seconds, on a machine that has much else to do: more is a fault.
PATIENCE = 900
_LONG = 20

#: Where a run may be killed: at a step of its commit, or in the middle of writing a file.
STEPS = (*COMMIT_STEPS, "write")


class Orders(NamedTuple):
    """What a run is to do.

    Attributes
    ----------
    client_file, topic, state, log : str
    max_reports : int
    step, occurrence
        Where the system kills it: a step of its commit, or in the middle of writing a file for
        ``write``; nowhere if the step is empty.
    file_bytes : int
        The longest file that it may write; 0 for any.
    """

    client_file: str
    topic: str
    state: str
    log: str
    max_reports: int
    step: str = ""
    occurrence: int = 1
    file_bytes: int = 0


class Run:
    """A run in a process of its own.

    Parameters
    ----------
    context : ForkServerContext
        See :func:`server`.
    orders : Orders
    """

    def __init__(self, context: ForkServerContext, orders: Orders) -> None:
        self._process: ForkServerProcess = context.Process(target=run, args=(orders,))
        self._process.start()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process.is_alive()

    def status(self) -> int:
        """Wait for its end and return its exit status.

        Raises
        ------
        FaultError
            It does not end.
        """
        self._process.join(PATIENCE)
        status = self._process.exitcode
        if status is None:
            self._process.kill()
            self._process.join()
        self._process.close()
        if status is None:
            raise FaultError(f"a run has not ended within {PATIENCE} s")
        return status


def server() -> ForkServerContext:
    """Return where runs start quickly: all that they import is there already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["benchmarks.soak.runs", "pipelines.bounded.run", "pipelines.sources.kafka"]
    )
    return context


def run(orders: Orders) -> None:
    """Aggregate a topic to its end, and die on the way if so ordered."""
    from benchmarks.soak.fleet import plan_of
    from clientsdk import Broker
    from pipelines.bounded.run import aggregate
    from pipelines.sources.kafka import KafkaTopics
    from sotto.errors import AggregationError, BrokerError
    from sotto.kafka.topics import ReportTopic

    # A limit on the length of files is one on the log's too: what has it begins a log of its own.
    own = f"{orders.log}.limited" if orders.file_bytes else orders.log
    begun = os.O_TRUNC if orders.file_bytes else os.O_APPEND
    log = os.open(own, os.O_WRONLY | os.O_CREAT | begun, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # A run that takes long says where it is.
    faulthandler.dump_traceback_later(_LONG, repeat=True, file=log)
    if orders.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (orders.file_bytes, resource.RLIM_INFINITY))
    seen = 0

    def reached(step: str) -> None:
        nonlocal seen
        seen += step == orders.step
        if step == orders.step and seen == orders.occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    if orders.step == "write":
        _die_writing(reached)
    broker = Broker.from_file(orders.client_file)
    source = KafkaTopics(broker, [ReportTopic.parse(orders.topic)])
    try:
        aggregate(
            source,
            Path(orders.state),
            [plan_of()],
            max_reports=orders.max_reports,
            checkpoint=reached,
        )
    except (AggregationError, BrokerError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(REFUSED)


def _die_writing(reached: Callable[[str], None]) -> None:
    """Let every write of a file of the state directory be told of when it is half done."""
    from pipelines.storage import files

    real = os.write

    def write(descriptor: int, data: memoryview) -> int:
        half = real(descriptor, data[: len(data) // 2])
        reached("write")
        return half + real(descriptor, data[half:])

    files.os.write = write  # type: ignore[attr-defined]

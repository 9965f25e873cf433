"""The fault run of the streaming job, as a play."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak import audits, checker, decoded
from benchmarks.soak.audits import Audited
from benchmarks.soak.faults import Windows
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.flinkworld import FlinkWorld
from benchmarks.soak.proxy import Network
from benchmarks.soak.schedule import Injection
from benchmarks.soak.stage import Stage, wait_until
from clientsdk.ledger import read_file
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.bounded.run import aggregate
from pipelines.sinks.documents import PeriodDocument, RejectsDocument, WindowDocument
from pipelines.sources.kafka import KafkaTopics
from pipelines.storage.directory import StateDirectory
from sotto.kafka.brokers import Broker

#: How long the job may take before it has counted more of what was acknowledged, in seconds.
PATIENCE = 240
#: So often is it waited for while it counts more.
_ATTEMPTS = 4


def _part(world: FlinkWorld, fault: Injection) -> bool:
    world.job.kill(fault.what)
    # Flink notices within a moment, and only then is the job not well.
    time.sleep(2)
    world.job.wait_until_well()
    return True


def _worker(world: FlinkWorld, fault: Injection) -> bool:
    killed = world.job.kill_workers()
    # Flink notices within a moment, and only then is the job not well.
    time.sleep(2)
    world.job.wait_until_well()
    return killed > 0


def _job_manager(world: FlinkWorld, fault: Injection) -> bool:
    world.job.wait_for_checkpoint()
    world.job.kill_job_manager()
    return True


def _rescale(world: FlinkWorld, fault: Injection) -> bool:
    world.job.rescale()
    return True


def _broker(world: FlinkWorld, fault: Injection) -> bool:
    world.broker.kill()
    time.sleep(fault.seconds)
    world.start_broker()
    return True


def _sender(world: FlinkWorld, fault: Injection) -> bool:
    world.kill_sender(fault.what)
    world.start_sender(fault.what)
    return True


def _network(world: FlinkWorld, fault: Injection) -> bool:
    world.proxy.become(Network(fault.what))
    time.sleep(fault.seconds)
    world.proxy.become(Network.WHOLE)
    return True


def _disk(world: FlinkWorld, fault: Injection) -> bool:
    """Fill the disk until a checkpoint has failed; with room there must be one again."""
    if world.disk is None:
        return False
    before = world.job.checkpoints("failed")
    world.disk.leave(fault.room)
    failed = wait_until(lambda: world.job.checkpoints("failed") > before, 30)
    world.disk.make_room()
    world.job.wait_for_checkpoint()
    return failed


def _repeated(world: FlinkWorld, fault: Injection) -> bool:
    before = world.books.number("repeated")
    world.repeat()
    return wait_until(lambda: world.books.number("repeated") > before + 200, 30)


def _behind(world: FlinkWorld, fault: Injection) -> bool:
    """Let much be sent while no task runs; then let them run, and kill them on the way."""
    world.job.session.task_manager.kill()
    begun = world.books.number("messages")
    wait_until(lambda: world.books.number("messages") > begun + 2_000 * fault.occurrence, 60)
    world.job.session.start()
    world.job.wait_until_well()
    time.sleep(fault.delay)
    world.job.kill("taskmanager")
    world.job.wait_until_well()
    return True


_KINDS: dict[str, Callable[[FlinkWorld, Injection], bool]] = {
    "part of the session killed": _part,
    "Python workers killed": _worker,
    "job manager killed, restored": _job_manager,
    "savepoint and rescale": _rescale,
    "broker killed": _broker,
    "sender killed": _sender,
    "network": _network,
    "disk full": _disk,
    "repeated and reordered": _repeated,
    "consumer far behind": _behind,
}

#: Their shares of a run.
SHARES = dict(zip(_KINDS, (14, 8, 8, 10, 6, 6, 12, 4, 4, 3), strict=True))

CHOICES: dict[str, tuple[str, ...]] = {
    # The job server is not missed until a job is submitted.
    "part of the session killed": ("taskmanager", "taskmanager", "pool", "pool", "jobserver"),
    "sender killed": ("fleet", "devices"),
    "network": tuple(each.value for each in Network if each is not Network.WHOLE),
}


class Streamed:
    """The job of a world; see :class:`benchmarks.soak.faults.Play`."""

    kinds: Sequence[str] = tuple(_KINDS)

    def __init__(self, world: FlinkWorld) -> None:
        self._world = world
        self._known: dict[tuple[str, int], tuple[WindowDocument, WindowKey, Matrix]] = {}

    @property
    def stage(self) -> Stage:
        """Where reports come from."""
        return self._world

    def inject(self, fault: Injection) -> bool:
        """Bring a fault about; return whether it has hit."""
        time.sleep(fault.delay)
        return _KINDS[fault.kind](self._world, fault)

    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        """Wait until what is published is settled, and return what it counts."""
        self._world.job.wait_until_well()
        estimates = self._world.estimates
        for _ in range(_ATTEMPTS):
            before = estimates.records
            done = estimates.read_until(lambda: settled(self._published()), PATIENCE)
            if done or estimates.records == before:
                break
        return self._published()

    def rejected(self) -> int:
        """Return how many reports the job has rejected."""
        documents = self._world.estimates.of(RejectsDocument)
        return sum(sum(each.rejects.values()) for each in documents)

    def audited(self, counted: NDArray[np.int64]) -> Audited:
        """Compare the audits of budget periods with counts and devices' ledgers."""
        world = self._world
        expected = _expected(world, counted)

        def told() -> dict[int, tuple[int, int, int]]:
            rows = [each.period for each in world.estimates.of(PeriodDocument)]
            return {
                _whole(row, "period_start") // world.fleet.plan.period: (
                    _whole(row, "pseudonyms"),
                    _whole(row, "accepted"),
                    _whole(row, "observed"),
                )
                for row in rows
            }

        world.estimates.read_until(lambda: told() == expected, PATIENCE)
        found = told()
        wrong = sum(
            found.get(period) != expected.get(period) for period in found.keys() | expected.keys()
        )
        pseudonyms = sum(each[0] for each in found.values())
        return Audited(pseudonyms, sum(each[1] for each in found.values()), wrong)

    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Aggregate the same topic, and return how many devices count otherwise there."""
        world, path = self._world, self._world.folder / "aggregated"
        source = KafkaTopics(Broker.from_file(world.broker.client_file), [world.topic])
        aggregate(source, path, [world.fleet.plan])
        windows = list(checker.windows_of(StateDirectory(path)))
        there, stray = checker.spread(windows, world.fleet, counted.shape[1])
        return stray + int(np.count_nonzero((there != counted).any(axis=(0, 2))))

    def _published(self) -> Windows:
        """Return what is counted by what is published; each document is decoded once."""
        for each in self._world.estimates.of(WindowDocument):
            name = str(each.window["metric"]), _whole(each.window, "window_start")
            known = self._known.get(name)
            if known is None or known[0] is not each:
                for key, matrix in decoded.windows_of([each], self._world.fleet):
                    self._known[name] = each, key, matrix
        return [(key, matrix) for _, key, matrix in self._known.values()]


def _whole(row: Mapping[str, object], name: str) -> int:
    return int(str(row[name]))


def _expected(world: FlinkWorld, counted: NDArray[np.int64]) -> dict[int, tuple[int, int, int]]:
    """Return pseudonyms, accepted and observed of every period, by fleet and devices' ledgers."""
    fleet: Fleet = world.fleet
    pseudonyms: Counter[int] = Counter()
    spent: Counter[int] = Counter()
    for each in audits.of_fleet(fleet, counted).values():
        pseudonyms[each.period] += 1
        spent[each.period] += each.accepted
    for path in world.device_files():
        for period in read_file(path).periods:
            if period.spent:
                pseudonyms[period.number] += 1
                spent[period.number] += period.spent
    return {period: (pseudonyms[period], spent[period], spent[period]) for period in pseudonyms}

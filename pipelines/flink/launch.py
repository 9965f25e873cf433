"""Submitting a job: everything is looked at first, then Flink's client is started."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.estimates import Candidates
from pipelines.flink.jobfolder import JobFolder, Known, with_plans
from pipelines.flink.orders import Order, Work
from pipelines.flink.preflight import begin, check_same, check_topics, one_name
from pipelines.flink.rest import ENDED, FlinkError, Job, JobManager
from sotto.brokers import Broker
from sotto.compiled import CompiledPlan
from sotto.errors import SottoError
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic
from sotto.topics import ReportTopic

#: How long Flink's client may take, in seconds.
CLIENT_SECONDS = 600
#: How long slots that are taken are waited for, in seconds.
SLOT_SECONDS = 30.0
#: Says which Python has PyFlink, where that is another one.
PYTHON = "SOTTO_FLINK_PYTHON"
LATEST = "latest"

_FLINK = "2.2"
#: Where a checkout has what make flink makes.
_CHECKOUT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Asked:
    """What a job is to be.

    Parameters
    ----------
    plans : sequence of CompiledPlan
    candidates : mapping
        The strings to look for.
    broker : path
        The file that says how to reach it.
    topics : sequence of ReportTopic
    flink : str
        URL of the job manager.
    parallelism : int
    restore : str or None
        Savepoint or checkpoint to go on from; ``latest`` for the newest in the job's folders.
    backend : {"hashmap", "rocksdb"}
    checkpoints : str or None
        URI of a folder that all of Flink reaches; the job's folder has it if not given.
    checkpoint_every, every : int
        Milliseconds: between checkpoints, and at least between documents about one thing.
    quiet : int
        As of :class:`~pipelines.streaming.deployment.Deployment`.
    python, worker : str or None
        Pythons with PyFlink: of the client here, and of the workers where those are elsewhere.
    environment : mapping, optional
        For the client: ``FLINK_LIB_DIR``, ``FLINK_CONF_DIR`` and the like; those of the session
        that ``make flink`` starts if not given.
    """

    plans: Sequence[CompiledPlan]
    broker: str | os.PathLike[str]
    topics: Sequence[ReportTopic]
    candidates: Candidates
    flink: str = "http://127.0.0.1:8081"
    parallelism: int = 1
    restore: str | None = None
    backend: str = "hashmap"
    checkpoints: str | None = None
    checkpoint_every: int = 10_000
    every: int = 30_000
    quiet: int = 5_000
    python: str | None = None
    worker: str | None = None
    environment: Mapping[str, str] | None = None


def submit(folder: JobFolder, asked: Asked) -> str:
    """Submit a job, or go on with one, and return the id that Flink gives it.

    Raises
    ------
    FlinkError
        It cannot run, or would do harm; nothing has been submitted.
    BrokerError, ParameterError, PlanError
        The same, of topics, arguments and plans.
    """
    before = folder.known
    known, manager = with_plans(before, asked.plans), JobManager(asked.flink)
    python = _python(asked)
    _check_flink(manager, known, asked.parallelism)
    restore = _restore(folder, known, asked.restore)
    registry = Registry(asked.plans)
    broker = Broker.from_file(asked.broker)
    topics = check_topics(broker, asked.topics, registry)
    check_same(known.ids, topics)
    partitions = {name: found.partitions for name, found in topics.items()}
    order = _order(folder, known, asked, partitions, restore)
    begin(broker, known.group, partitions, anew=restore is None)
    known = _noted(known, order, {name: found.id for name, found in topics.items()})
    # Written before: a job that is submitted is never unknown, and counts as one that has run.
    folder.remember(known)
    environment = _session() if asked.environment is None else asked.environment
    try:
        job = _client(python, order, environment)
    except FlinkError:
        if not _has(manager, known.group):
            folder.remember(before)
        raise
    folder.remember(replace(known, id=job))
    return job


def _noted(known: Known, order: Order, ids: Mapping[str, str]) -> Known:
    """Return what is known of a job once it is submitted."""
    places = (order.checkpoints, order.savepoints)
    return replace(
        known,
        topics=order.work.topics,
        places=(*(each for each in known.places if each not in places), *places),
        flink=order.flink,
        ids={**known.ids, **ids},
    )


def _has(manager: JobManager, name: str) -> bool:
    """Return whether a Flink knows of a job of this name, or cannot say."""
    try:
        return any(job.name == name for job in manager.jobs())
    except FlinkError:
        return True


def _order(
    folder: JobFolder,
    known: Known,
    asked: Asked,
    partitions: Mapping[str, int],
    restore: str | None,
) -> Order:
    name = one_name(asked.topics)
    requeue = str(SinkTopic(name, "requeue"))
    # Other jobs may keep theirs in the same folder.
    elsewhere = asked.checkpoints and f"{asked.checkpoints.rstrip('/')}/{known.group}"
    work = Work(
        job=known.job,
        plans=tuple(plan.to_json().decode() for plan in asked.plans),
        topics=tuple(str(topic) for topic in asked.topics),
        requeue=requeue if requeue in partitions else None,
        requeue_partitions=partitions.get(requeue, 1),
        candidates={
            fingerprint.hex(): {metric: tuple(strings) for metric, strings in of_plan.items()}
            for fingerprint, of_plan in asked.candidates.items()
        },
        slots=known.slots,
        quiet=asked.quiet,
        every=asked.every,
    )
    return Order(
        work=work,
        broker=str(Path(asked.broker).resolve()),
        flink=asked.flink,
        checkpoints=elsewhere or folder.place("checkpoints"),
        savepoints=f"{elsewhere}/savepoints" if elsewhere else folder.place("savepoints"),
        name=known.group,
        estimates=str(SinkTopic(name, "estimates")),
        quarantine=str(SinkTopic(name, "quarantine")),
        parallelism=asked.parallelism,
        backend=asked.backend,
        checkpoint_every=asked.checkpoint_every,
        restore=restore,
        worker=asked.worker,
    )


def _check_flink(manager: JobManager, known: Known, parallelism: int) -> None:
    version = manager.version()
    if not version.startswith(f"{_FLINK}."):
        raise FlinkError(
            f"Flink at {manager.url} is {version}; the job is for {_FLINK}: start that one"
        )
    for job in (*manager.jobs(), *_jobs_elsewhere(manager, known)):
        if job.name == known.group and job.state not in ENDED:
            raise FlinkError(
                f"the job runs already ({job.id}, {job.state.lower()}): two would count everything "
                "twice; sotto flink stop ends it with a savepoint"
            )
    free = manager.wait_for_slots(parallelism, SLOT_SECONDS)
    if free < parallelism:
        raise FlinkError(
            f"parallelism {parallelism} needs as many slots, and {free} are free: start more task "
            "managers, or give fewer"
        )


def _jobs_elsewhere(manager: JobManager, known: Known) -> list[Job]:
    """Return the jobs of the Flink that had the job last, if that is another and answers."""
    last = JobManager(known.flink) if known.flink else manager
    if last.url == manager.url:
        return []
    try:
        return last.jobs()
    except FlinkError:
        return []


def _restore(folder: JobFolder, known: Known, given: str | None) -> str | None:
    if given is None:
        if known.flink:
            raise FlinkError(
                f"the job in {folder.path} has run before: without its state it would count "
                "everything again; give --from latest or a savepoint, or another folder"
            )
        return None
    if not known.flink:
        raise FlinkError(
            f"{folder.path} knows of no job, and a savepoint is another's: give the folder of the "
            "job that made it"
        )
    if given != LATEST:
        return given
    found = folder.latest()
    if found is None:
        raise FlinkError(
            f"there is no complete checkpoint or savepoint in {', '.join(known.places)}: if the "
            "job has never made one, start again in another folder; if they are not on this "
            "machine, give --from with the one to take"
        )
    return found


def _python(asked: Asked) -> str:
    """Return the Python that has PyFlink."""
    given = asked.python or os.environ.get(PYTHON)
    if given is not None:
        return given
    if importlib.util.find_spec("pyflink") is not None:
        return sys.executable
    made = _CHECKOUT / ".venv-flink" / "bin" / "python"
    if made.exists():
        return str(made)
    raise FlinkError(
        "PyFlink is not installed: make flink-venv makes an environment with it here; for another "
        f"give --python or set {PYTHON}"
    )


def _session() -> dict[str, str]:
    """Return where Flink's archives are: as the environment says, or those of make flink."""
    made = _CHECKOUT / "build" / "flink"
    if {"FLINK_HOME", "FLINK_LIB_DIR"} & os.environ.keys() or not (made / "lib").is_dir():
        return {}
    archives = str(made / "lib")
    return {
        "FLINK_LIB_DIR": archives,
        "FLINK_OPT_DIR": archives,
        "FLINK_CONF_DIR": str(made / "conf"),
    }


def _client(python: str, order: Order, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [python, "-m", "pipelines.flink"],
            input=order.to_json(),
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise FlinkError(f"Flink's client, {python}, does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SottoError(
            f"Flink's client did not end within {CLIENT_SECONDS} s: sotto flink list shows "
            "whether it submitted the job"
        ) from error
    lines = done.stdout.split()
    if done.returncode or not lines:
        lines = done.stderr.splitlines()
        telling = [line for line in lines if "Exception: " in line or "Error: " in line]
        said = (telling or lines or ["it said nothing"])[-1].strip()
        raise FlinkError(f"Flink's client did not submit the job: {said}")
    return lines[-1]

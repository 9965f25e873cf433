"""A Flink session of our own on loopback, with what Beam pipelines need to run on it.

The job manager takes jobs and restarts them; the task manager has the slots that they run in; the
job server turns Beam pipelines into jobs; the pool starts Beam's Python workers for the task
manager. Killed alone, each can be started again: jobs outlive all but the job manager.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from deploy import jars
from deploy.errors import DeployError
from deploy.flink import settings
from deploy.flink.archives import archives
from deploy.ports import HOST, free_ports, require_free
from deploy.process import Process, wait_until_ready
from pipelines.flink.rest import FlinkError, JobManager

#: How long a start may take, in seconds.
START_SECONDS = 120


@dataclass(frozen=True)
class Ports:
    """Ports at which the job manager, the job server and the pool of workers listen.

    ``rpc`` is for the task manager, ``artifacts`` for the files of a pipeline.
    """

    rest: int
    rpc: int
    job: int
    artifacts: int
    pool: int


class LocalFlink:
    """A session whose files are all in one folder, made if it does not exist.

    ``slots`` tasks run side by side; ``cache`` is megabytes of state that a worker keeps between
    bundles, and ``heap`` those of the task manager, where the state of all keys is.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        slots: int = 2,
        cache: int = 256,
        heap: int = settings.TASK_MANAGER_HEAP,
    ) -> None:
        if not slots >= 1:
            raise DeployError(f"slots {slots} must be at least 1")
        self.folder = Path(folder).resolve()
        self._slots = slots
        self._cache, self._heap = cache, heap
        self._ports_file = self.folder / "ports.json"
        self._configuration = self.folder / "conf"
        # A task manager has another name each time: one that died is not taken for its successor.
        self._name_file = self.folder / "taskmanager.name"
        configured = f"--configDir {self._configuration}"
        marks = {
            "jobmanager": f"{settings.JOB_MANAGER} {configured}",
            "taskmanager": f"{settings.TASK_MANAGER} {configured}",
            "jobserver": f"{settings.JOB_SERVER} --flink-conf-dir={self._configuration}",
            "pool": f"{settings.POOL} --folder={self.folder}",
        }
        self.job_manager, self.task_manager, self.job_server, self.pool = self.parts = tuple(
            Process(self.folder, name, mark) for name, mark in marks.items()
        )

    @property
    def ports(self) -> Ports:
        return Ports(**json.loads(self._ports_file.read_text("ascii")))

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.ports.rest}"

    @property
    def job_endpoint(self) -> str:
        return f"{HOST}:{self.ports.job}"

    @property
    def pool_endpoint(self) -> str:
        return f"{HOST}:{self.ports.pool}"

    @property
    def options(self) -> list[str]:
        """Beam's options of a pipeline that runs here."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.job_endpoint}",
            "--environment_type=EXTERNAL",
            f"--environment_config={self.pool_endpoint}",
        ]

    @property
    def workers(self) -> list[int]:
        """The processes in which pipelines' Python runs."""
        return self.pool.children

    @property
    def running(self) -> bool:
        return any(process.pid is not None for process in self.parts)

    def start(self, ports: Ports | None = None, say: Callable[[str], None] | None = None) -> bool:
        """Start it and return once it takes pipelines; False if all of it ran already.

        A part that runs already goes on; of several callers at once one starts it and the others
        wait. It listens at ``ports``, or where it did at the last start, or at free ones; ``say``
        is told what is done. Raises DeployError if it does not answer within ``START_SECONDS``;
        what was started by this call is not left running.
        """
        say = say or (lambda _: None)
        say("checking Flink and Beam's job server, fetched on the first start")
        folders = archives()
        with jars.locked(self.folder / "starting"):
            missing = [process for process in self.parts if process.pid is None]
            if len(missing) == len(self.parts):
                self._configure(ports)
            self._start(missing, folders, say)
        return bool(missing)

    def stop(self) -> bool:
        """Let it end by itself, jobs with it. False if it was not running."""
        ended = [process.stop() for process in reversed(self.parts)]
        return any(ended)

    def _start(
        self, missing: Collection[Process], folders: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        if self.task_manager in missing:
            self._name_file.write_text(f"taskmanager-{secrets.token_hex(4)}", encoding="ascii")
        try:
            for process in missing:
                say(f"starting {process.name}; log: {process.log_file}")
                process.start(self._command(process, folders), self._environment())
            self._wait()
        except BaseException:
            for process in missing:
                process.kill()
            raise

    def _configure(self, ports: Ports | None) -> None:
        if ports is None:
            ports = self.ports if self._ports_file.exists() else Ports(*free_ports(5))
        for number in astuple(ports):
            require_free(number)
        for name in ("conf", "tmp", "checkpoints", "savepoints"):
            # Pseudonyms are in checkpoints: others than a group that the umask lets in stay out.
            (self.folder / name).mkdir(mode=0o770, parents=True, exist_ok=True)
        says = settings.configuration(self.folder, ports.rest, ports.rpc, self._slots, self._heap)
        text = settings.to_yaml(says)
        (self._configuration / "config.yaml").write_text(text, encoding="utf-8")
        self._ports_file.write_text(json.dumps(asdict(ports)) + "\n", encoding="ascii")

    def _command(self, process: Process, folders: Sequence[Path]) -> list[str]:
        ports, conf = self.ports, self._configuration
        if process is self.job_manager:
            return settings.job_manager(folders, conf)
        if process is self.task_manager:
            name = ["-D", f"taskmanager.resource-id={self._name_file.read_text('ascii')}"]
            return [*settings.task_manager(folders, conf, self._heap), *name]
        if process is self.job_server:
            flink, artifacts = f"{HOST}:{ports.rest}", self.folder / "artifacts"
            listens = HOST, ports.job, ports.artifacts
            return settings.job_server(folders, conf, flink, *listens, artifacts)
        return settings.pool(ports.pool, self._cache, f"--folder={self.folder}")

    def _environment(self) -> dict[str, str]:
        # Elsewhere a Flink's plugins and settings would be found by these.
        return {
            "FLINK_CONF_DIR": str(self._configuration),
            "FLINK_PLUGINS_DIR": str(self.folder / "plugins"),
            # Workers run the code of this tree.
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(jars.ROOT), os.environ.get("PYTHONPATH")])
            ),
        }

    def _wait(self) -> None:
        name, ports = self._name_file.read_text("ascii"), self.ports

        def ready() -> bool:
            return self._has_slots_of(name) and _answers(ports.job, ports.pool)

        wait_until_ready(self.parts, ready, START_SECONDS)

    def _has_slots_of(self, name: str) -> bool:
        """Whether the job manager knows a task manager; it knows dead ones for a while, too."""
        try:
            found = JobManager(self.address).ask("/taskmanagers")["taskmanagers"]
            return any(one["id"] == name and one["slotsNumber"] == self._slots for one in found)
        except (FlinkError, KeyError):
            return False


def _answers(*ports: int) -> bool:
    try:
        for port in ports:
            socket.create_connection((HOST, port), timeout=2).close()
    except OSError:
        return False
    return True

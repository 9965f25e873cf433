"""A Flink session of our own on loopback: one job manager, one task manager.

The job manager takes jobs and restarts them; the task manager has the slots that they run in.
Killed alone, either can be started again: jobs outlive the task manager, not the job manager.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
import urllib.request
from collections.abc import Collection, Iterable
from pathlib import Path

from deploy import jars
from deploy.errors import DeployError
from deploy.flink import settings, workers
from deploy.flink.archives import SOURCE, archives, connector
from deploy.ports import HOST, require_free, two_free
from deploy.process import Process

#: How long a start may take, in seconds.
START_SECONDS = 120

_RUNTIME = "org.apache.flink.runtime"
_JOB_MANAGER = f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = f"{_RUNTIME}.taskexecutor.TaskManagerRunner"


class LocalFlink:
    """A session whose files are all in one folder.

    Parameters
    ----------
    folder : path
        Its configuration, logs, checkpoints and savepoints. Made if it does not exist.
    slots : int, at least 1
        How many tasks run side by side.
    """

    def __init__(self, folder: str | os.PathLike[str], slots: int = 2) -> None:
        if not slots >= 1:
            raise DeployError(f"slots {slots} must be at least 1")
        self.folder = Path(folder).resolve()
        self._slots = slots
        #: All archives, also those that clients need: links into the cache.
        self.library = self.folder / "lib"
        self._endpoint_file = self.folder / "client.json"
        self._configuration = self.folder / "conf"
        # A task manager has another name each time: one that died is not taken for its successor.
        self._name_file = self.folder / "taskmanager.name"
        mark = str(self._configuration)
        self.job_manager = Process(self.folder, "jobmanager", f"{_JOB_MANAGER} --configDir {mark}")
        self.task_manager = Process(
            self.folder, "taskmanager", f"{_TASK_MANAGER} --configDir {mark}"
        )

    @property
    def address(self) -> str:
        """Where clients connect to, a URL."""
        return str(json.loads(self._endpoint_file.read_text("utf-8"))["rest"])

    @property
    def client(self) -> dict[str, str]:
        """What has to be in the environment of who submits jobs."""
        return {
            "FLINK_CONF_DIR": str(self._configuration),
            "FLINK_LIB_DIR": str(self.library),
            "FLINK_OPT_DIR": str(self.library),
            "FLINK_LOG_DIR": str(self.folder),
            "LOG4J_PROPERTIES": str(SOURCE / "log4j2.properties"),
            # It lives for seconds.
            "JVM_ARGS": "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    @property
    def running(self) -> bool:
        """Whether a process of it lives."""
        return any(process.pid is not None for process in self._processes)

    def start(self, port: int = 0) -> bool:
        """Start it and return once its slots are offered; a part that runs already goes on.

        Of several callers at once one starts it and the others wait.

        Parameters
        ----------
        port : int
            Where clients connect to; the next one is the task manager's. 0 keeps those of the
            last start, or takes free ones.

        Returns
        -------
        bool
            Whether anything was started; False if all of it ran already.

        Raises
        ------
        DeployError
            It does not run or offer its slots within ``START_SECONDS``; what was started by this
            call is not left running.
        """
        program, parts = jars.java(), (archives(), connector())
        with jars.locked(self.folder / "starting"):
            missing = [process for process in self._processes if process.pid is None]
            if len(missing) == len(self._processes):
                self._configure(port)
                self._link(parts)
            self._start(missing, program)
        return bool(missing)

    def stop(self) -> bool:
        """Let it end by itself, jobs with it. False if it was not running."""
        ended = [process.stop() for process in reversed(self._processes)]
        workers.end(self._configuration)
        return any(ended)

    @property
    def workers(self) -> list[int]:
        """The processes in which jobs' Python runs."""
        return workers.workers(self._configuration)

    @property
    def _processes(self) -> tuple[Process, Process]:
        return self.job_manager, self.task_manager

    def _start(self, missing: Collection[Process], program: str) -> None:
        if self.task_manager in missing:
            workers.end(self._configuration)
            self._name_file.write_text(f"taskmanager-{secrets.token_hex(4)}", encoding="ascii")
        try:
            for process in missing:
                process.start(self._command(process, program), self._environment())
            self._wait_for_slots(self._name_file.read_text("ascii"))
        except BaseException:
            for process in missing:
                process.kill()
            raise

    def _configure(self, port: int) -> None:
        rest, rpc = self._ports(port)
        for number in (rest, rpc):
            require_free(number)
        for name in ("conf", "tmp", "checkpoints", "savepoints"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        says = settings.configuration(self.folder, rest, rpc, self._slots)
        text = settings.to_yaml(says)
        (self._configuration / "config.yaml").write_text(text, encoding="utf-8")
        endpoint = {"rest": f"http://{HOST}:{rest}", "rpc": rpc}
        self._endpoint_file.write_text(json.dumps(endpoint) + "\n", encoding="ascii")

    def _link(self, parts: Iterable[Path]) -> None:
        shutil.rmtree(self.library, ignore_errors=True)
        self.library.mkdir()
        for part in parts:
            for archive in part.iterdir():
                (self.library / archive.name).symlink_to(archive)

    def _ports(self, port: int) -> tuple[int, int]:
        if port:
            return port, port + 1
        if self._endpoint_file.exists():
            known = json.loads(self._endpoint_file.read_text("utf-8"))
            return int(known["rest"].rpartition(":")[2]), int(known["rpc"])
        return two_free()

    def _command(self, process: Process, program: str) -> list[str]:
        if process is self.job_manager:
            main, heap, limits, named = _JOB_MANAGER, settings.JOB_MANAGER_HEAP, [], []
        else:
            main, heap = _TASK_MANAGER, settings.TASK_MANAGER_HEAP
            limits = settings.TASK_MANAGER_LIMITS
            named = ["-D", f"taskmanager.resource-id={self._name_file.read_text('ascii')}"]
        options = ["-Xms64m", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
        options += [*limits, *settings.REFLECTION]
        options += [f"-Dlog4j2.configurationFile={SOURCE / 'log4j2.properties'}"]
        options += [
            "-cp",
            f"{self.library}{os.sep}*",
            main,
            "--configDir",
            str(self._configuration),
        ]
        return [program, *options, *named]

    def _environment(self) -> dict[str, str]:
        # Elsewhere a Flink's plugins and settings would be found by these.
        return {
            "FLINK_CONF_DIR": str(self._configuration),
            "FLINK_PLUGINS_DIR": str(self.folder / "plugins"),
        }

    def _wait_for_slots(self, name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while name not in self._registered():
            for process in self._processes:
                if process.pid is None:
                    raise DeployError(f"the {process.name} ended: {process.last_words()}")
            if time.monotonic() > deadline:
                words = self.task_manager.last_words()
                raise DeployError(f"no slots are offered within {START_SECONDS} s: {words}")
            time.sleep(0.2)

    def _registered(self) -> set[str]:
        """Return the task managers that the job manager knows; dead ones for a while, too."""
        try:
            with urllib.request.urlopen(f"{self.address}/taskmanagers", timeout=2) as answer:
                found = json.load(answer)["taskmanagers"]
            return {str(one["id"]) for one in found if one["slotsNumber"] == self._slots}
        except (OSError, ValueError, KeyError):
            return set()

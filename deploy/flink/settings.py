"""The contents of Flink's ``config.yaml``, and the command of each process of a session."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy import jars
from deploy.ports import HOST

_RUNTIME = "org.apache.flink.runtime"
JOB_MANAGER = f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = f"{_RUNTIME}.taskexecutor.TaskManagerRunner"
JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
POOL = "pipelines.beam.workers"

#: Keys hash into so many groups, for ever: a savepoint of another number cannot be restored.
MAX_PARALLELISM = 128

#: Megabytes of a task manager. Flink takes them from its start scripts' sums; here they are given.
_MEMORY = {
    "framework.heap.size": 96,
    "task.heap.size": 416,
    "framework.off-heap.size": 64,
    "task.off-heap.size": 96,
    **dict.fromkeys(("network.min", "network.max"), 64),
    **dict.fromkeys(("jvm-overhead.min", "jvm-overhead.max"), 64),
    "managed.size": 128,
    "jvm-metaspace.size": 256,
}
#: Megabytes of a task manager's heap, which holds the state of its jobs.
TASK_MANAGER_HEAP = sum(size for name, size in _MEMORY.items() if name.endswith(".heap.size"))
_DIRECT = ("framework.off-heap.size", "task.off-heap.size", "network.max")
TASK_MANAGER_LIMITS = [
    f"-XX:MaxDirectMemorySize={sum(_MEMORY[name] for name in _DIRECT)}m",
    f"-XX:MaxMetaspaceSize={_MEMORY['jvm-metaspace.size']}m",
]

#: Megabytes of heap of the job manager, and of the job server.
SMALL_HEAP = 256

#: Packages that Flink reaches into by reflection.
_OPENED = """
    java.lang java.lang.reflect java.io java.net java.nio java.text java.time java.util
    java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch
"""
REFLECTION = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED.split()]


def configuration(
    folder: Path, rest: int, rpc: int, slots: int, heap: int = TASK_MANAGER_HEAP
) -> dict[str, object]:
    """Return the settings of a session on loopback, with checkpoints and savepoints in ``folder``.

    ``rest`` and ``rpc`` are the ports of clients, and of the task manager to the job manager;
    ``slots`` tasks run side by side; ``heap`` is that of the task manager, in megabytes.
    """
    memory = {**_MEMORY, "task.heap.size": heap - _MEMORY["framework.heap.size"]}
    return {
        "jobmanager.rpc.address": HOST,
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": HOST,
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": rest,
        # Nobody uploads programs through the port that clients use.
        "web.submit.enable": "false",
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.cpu.cores": float(slots),
        **{f"taskmanager.memory.{name}": f"{size}m" for name, size in memory.items()},
        "pipeline.max-parallelism": MAX_PARALLELISM,
        "state.backend.type": "hashmap",
        # The vendored gRPC of a job that has ended loads classes yet.
        "classloader.check-leaked-classloader": "false",
        "state.checkpoints.dir": (folder / "checkpoints").as_uri(),
        "state.savepoints.dir": (folder / "savepoints").as_uri(),
        # A job whose manager died is restored from these by hand.
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "exponential-delay",
        # A job that fails at once fails for good after some quarter of an hour.
        "restart-strategy.exponential-delay.max-backoff": "10 s",
        "restart-strategy.exponential-delay.reset-backoff-threshold": "5 min",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": 100,
        # Each shuffle of a bounded pipeline needs so many buffers; 512 would be 16 MB.
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        # One that was killed is missed soon.
        "heartbeat.interval": 2_000,
        "heartbeat.timeout": 12_000,
        "io.tmp.dirs": folder / "tmp",
        "env.java.opts.all": " ".join(REFLECTION),
    }


def to_yaml(settings: Mapping[str, object]) -> str:
    """Return settings as ``config.yaml`` holds them: one a line, texts quoted."""
    return "".join(f"{key}: {json.dumps(str(value))}\n" for key, value in settings.items())


def job_manager(folders: Sequence[Path], conf: Path) -> list[str]:
    """Return that of a job manager: archives in the class path's order, Flink's configuration."""
    return [*_java(folders, SMALL_HEAP), JOB_MANAGER, "--configDir", str(conf)]


def task_manager(folders: Sequence[Path], conf: Path, heap: int = TASK_MANAGER_HEAP) -> list[str]:
    java = _java(folders, heap, *TASK_MANAGER_LIMITS)
    return [*java, TASK_MANAGER, "--configDir", str(conf)]


def job_server(
    folders: Sequence[Path],
    conf: Path,
    flink: str,
    host: str,
    port: int,
    artifact_port: int,
    artifacts: Path,
) -> list[str]:
    """Return that of a job server, which listens on all addresses.

    ``flink`` is HOST:PORT of the job manager, and ``host`` where clients are told to send the files
    of a pipeline, which are kept in ``artifacts``.
    """
    given = [f"--flink-conf-dir={conf}", f"--flink-master={flink}", f"--artifacts-dir={artifacts}"]
    ports = [f"--job-host={host}", f"--job-port={port}", f"--artifact-port={artifact_port}"]
    # No service for transforms in Java, which nothing here uses.
    return [*_java(folders, SMALL_HEAP), JOB_SERVER, *given, *ports, "--expansion-port=-1"]


def pool(port: int, cache: int, *options: str) -> list[str]:
    """Return that of a pool of workers on loopback; ``cache`` is in megabytes."""
    return [sys.executable, "-m", POOL, *options, f"--port={port}", f"--cache={cache}"]


def _java(folders: Sequence[Path], heap: int, *limits: str) -> list[str]:
    options = jars.java_options(folders, heap, Path(__file__).parent)
    return [jars.java(), *limits, *REFLECTION, *options]

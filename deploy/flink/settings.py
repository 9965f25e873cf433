"""What Flink's ``config.yaml`` says, and the command of each process of a session."""

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
_HEAP = {"framework.heap.size": 96, "task.heap.size": 416}
_DIRECT = {"framework.off-heap.size": 64, "task.off-heap.size": 96, "network": 64}
_METASPACE = 256
_MANAGED = 128
_OVERHEAD = 64

#: Megabytes of heap of the job manager, and of the job server.
SMALL_HEAP = 256
TASK_MANAGER_HEAP = sum(_HEAP.values())

#: Packages that Flink reaches into by reflection.
_OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
)
REFLECTION = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
TASK_MANAGER_LIMITS = [
    f"-XX:MaxDirectMemorySize={sum(_DIRECT.values())}m",
    f"-XX:MaxMetaspaceSize={_METASPACE}m",
]


def configuration(folder: Path, rest: int, rpc: int, slots: int) -> dict[str, object]:
    """Return the settings of a session on loopback.

    Parameters
    ----------
    folder : Path
        Where checkpoints and savepoints go.
    rest, rpc : int
        Ports: of clients, and of the task manager to the job manager.
    slots : int
        How many tasks run side by side.
    """
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
        **_memory(),
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
        # Of each shuffle of a bounded pipeline; 512 would be 16 MB.
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        # One that was killed is missed soon.
        "heartbeat.interval": 2_000,
        "heartbeat.timeout": 12_000,
        "io.tmp.dirs": folder / "tmp",
        "env.java.opts.all": " ".join(REFLECTION),
    }


def _memory() -> dict[str, object]:
    heaps = {f"taskmanager.memory.{name}": f"{size}m" for name, size in _HEAP.items()}
    direct = {
        f"taskmanager.memory.{name}": f"{size}m"
        for name, size in _DIRECT.items()
        if name != "network"
    }
    ranges = {
        f"taskmanager.memory.{name}.{bound}": f"{size}m"
        for name, size in (("network", _DIRECT["network"]), ("jvm-overhead", _OVERHEAD))
        for bound in ("min", "max")
    }
    return {
        **heaps,
        **direct,
        **ranges,
        "taskmanager.memory.managed.size": f"{_MANAGED}m",
        "taskmanager.memory.jvm-metaspace.size": f"{_METASPACE}m",
    }


def to_yaml(settings: Mapping[str, object]) -> str:
    """Return settings as ``config.yaml`` holds them: one a line, texts quoted."""
    return "".join(f"{key}: {json.dumps(str(value))}\n" for key, value in settings.items())


def job_manager(folders: Sequence[Path], conf: Path) -> list[str]:
    """Return that of a job manager.

    Parameters
    ----------
    folders : sequence of Path
        With archives, in the order of the class path.
    conf : Path
        With Flink's
    """
    return [*_java(folders, SMALL_HEAP), JOB_MANAGER, "--configDir", str(conf)]


def task_manager(folders: Sequence[Path], conf: Path) -> list[str]:
    """Return that of a task manager; parameters as of a job manager."""
    java = _java(folders, TASK_MANAGER_HEAP, *TASK_MANAGER_LIMITS)
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
    """Return that of a job server.

    Parameters
    ----------
    folders, conf
        As of a job manager.
    flink : str
        HOST:PORT of the job manager.
    host : str
        Where clients are told to send the files of a pipeline. It listens on all addresses.
    port, artifact_port : int
        For pipelines, and for their files.
    artifacts : Path
        Where the files are kept.
    """
    return [
        *_java(folders, SMALL_HEAP),
        JOB_SERVER,
        f"--flink-conf-dir={conf}",
        f"--flink-master={flink}",
        f"--job-host={host}",
        f"--job-port={port}",
        f"--artifact-port={artifact_port}",
        # No service for transforms in Java, which nothing here uses.
        "--expansion-port=-1",
        f"--artifacts-dir={artifacts}",
    ]


def pool(port: int, cache: int, *options: str) -> list[str]:
    """Return that of a pool of workers on loopback; ``cache`` is in megabytes."""
    return [sys.executable, "-m", POOL, *options, f"--port={port}", f"--cache={cache}"]


def _java(folders: Sequence[Path], heap: int, *limits: str) -> list[str]:
    options = jars.java_options(folders, heap, Path(__file__).parent)
    return [jars.java(), *limits, *REFLECTION, *options]

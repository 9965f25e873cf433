"""The command of each process of a session."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import jars
from deploy.flink import settings
from deploy.flink.archives import SOURCE

_RUNTIME = "org.apache.flink.runtime"
JOB_MANAGER = f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = f"{_RUNTIME}.taskexecutor.TaskManagerRunner"
JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
POOL = "pipelines.beam.workers"


def job_manager(folders: Sequence[Path], conf: Path) -> list[str]:
    """Return that of a job manager.

    Parameters
    ----------
    folders : sequence of Path
        With archives, in the order of the class path.
    conf : Path
        With Flink's settings.
    """
    return [*_java(folders, settings.SMALL_HEAP), JOB_MANAGER, "--configDir", str(conf)]


def task_manager(folders: Sequence[Path], conf: Path) -> list[str]:
    """Return that of a task manager; parameters as of a job manager."""
    java = _java(folders, settings.TASK_MANAGER_HEAP, *settings.TASK_MANAGER_LIMITS)
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
        *_java(folders, settings.SMALL_HEAP),
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
    options = ["-Xms64m", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    options += [*limits, *settings.REFLECTION]
    options += [f"-Dlog4j2.configurationFile={SOURCE / 'log4j2.properties'}"]
    return [jars.java(), *options, "-cp", ":".join(f"{folder}/*" for folder in folders)]

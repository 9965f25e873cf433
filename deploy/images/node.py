"""One process of Flink in a container: ``python -m deploy.images.node jobmanager``.

Settings and commands are those of the session that ``python -m deploy.flink`` starts on loopback;
only the addresses are others, since each process has a machine of its own. ``healthy`` asks
whether the job manager answers.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from deploy import jars
from deploy.flink import settings
from deploy.flink.archives import SOURCE, archives, connector
from pipelines.flink.rest import FlinkError, JobManager
from sotto.errors import SottoError

#: Ports of clients, and of task managers, at the job manager.
REST, RPC = 8081, 6123
#: Where all processes keep checkpoints and savepoints, and what each has for itself.
SHARED, OWN = Path("/var/lib/flink"), Path("/tmp/flink")
MANAGER = "jobmanager"
ROLES = (MANAGER, "taskmanager")
_ANYWHERE = "0.0.0.0"
_RUNTIME = "org.apache.flink.runtime"
_MAIN = {
    MANAGER: f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": f"{_RUNTIME}.taskexecutor.TaskManagerRunner",
}


def configuration(host: str, slots: int) -> dict[str, object]:
    """Return the settings of a process.

    Parameters
    ----------
    host : str
        Address at which others reach its machine.
    slots : int
        How many tasks a task manager runs side by side.
    """
    return settings.configuration(SHARED, REST, RPC, slots) | {
        "jobmanager.rpc.address": MANAGER,
        "jobmanager.bind-host": _ANYWHERE,
        "rest.address": MANAGER,
        "rest.bind-address": _ANYWHERE,
        "taskmanager.host": host,
        "taskmanager.bind-host": _ANYWHERE,
        "io.tmp.dirs": OWN / "tmp",
    }


def command(role: str) -> list[str]:
    """Return the command of a process.

    Raises
    ------
    DeployError
        There is no Java that is new enough.
    """
    manager = role == MANAGER
    heap = settings.JOB_MANAGER_HEAP if manager else settings.TASK_MANAGER_HEAP
    options = ["-Xms64m", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    options += [*([] if manager else settings.TASK_MANAGER_LIMITS), *settings.REFLECTION]
    options += [f"-Dlog4j2.configurationFile={SOURCE / 'log4j2.properties'}"]
    parts = f"{OWN / 'lib'}{os.sep}*"
    return [jars.java(), *options, "-cp", parts, _MAIN[role], "--configDir", str(OWN / "conf")]


def environment() -> dict[str, str]:
    """Return what a process, or who submits jobs, has in its environment."""
    return {
        "FLINK_CONF_DIR": str(OWN / "conf"),
        "FLINK_LIB_DIR": str(OWN / "lib"),
        "FLINK_OPT_DIR": str(OWN / "lib"),
        "FLINK_LOG_DIR": str(OWN),
        "FLINK_PLUGINS_DIR": str(OWN / "plugins"),
        "LOG4J_PROPERTIES": str(SOURCE / "log4j2.properties"),
        # Of the client, which lives for seconds.
        "JVM_ARGS": "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


def prepare(slots: int = 1) -> None:
    """Write the settings and link the archives, checked, where a process looks for them."""
    for folder in (OWN / "conf", OWN / "tmp", OWN / "lib"):
        folder.mkdir(parents=True, exist_ok=True)
    for part in (archives(), connector()):
        for archive in part.iterdir():
            link = OWN / "lib" / archive.name
            link.unlink(missing_ok=True)
            link.symlink_to(archive)
    says = configuration(socket.gethostbyname(socket.gethostname()), slots)
    (OWN / "conf" / "config.yaml").write_text(settings.to_yaml(says), encoding="utf-8")


def slots_of(manager: JobManager) -> int:
    """Return how many slots are free; 0 too if the job manager does not answer."""
    try:
        return manager.slots()
    except FlinkError:
        return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m deploy.images.node", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser(MANAGER, help="become a job manager")
    worker = commands.add_parser("taskmanager", help="become a task manager")
    worker.add_argument("--slots", type=int, default=2, help="default: 2")
    commands.add_parser("healthy", help="status 0 if the job manager answers")
    return made


def main() -> int:
    """Become the process, or answer for it."""
    args = parser().parse_args()
    try:
        if args.command == "healthy":
            print(JobManager(f"http://{MANAGER}:{REST}").version())
        else:
            prepare(getattr(args, "slots", 1))
            words = command(args.command)
            os.execve(words[0], words, os.environ | environment())
    except (SottoError, OSError) as error:
        print(f"flink: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

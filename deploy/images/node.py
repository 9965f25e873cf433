"""One process of Flink in a container: ``python -m deploy.images.node jobmanager``.

Settings and commands are those of the session that ``python -m deploy.flink`` starts on loopback;
only the addresses are others, since each process has a machine of its own. ``fetch`` brings the
archives while an image is built; ``healthy`` asks whether the job manager has slots to offer.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import urllib.request
from pathlib import Path

from deploy import jars
from deploy.flink import settings
from deploy.flink.archives import SOURCE, archives, connector
from sotto.errors import SottoError

#: Ports of clients, and of task managers, at the job manager.
REST, RPC = 8081, 6123
#: Where all processes keep checkpoints and savepoints, and what each has for itself.
SHARED, OWN = Path("/var/lib/flink"), Path("/tmp/flink")
ROLES = ("jobmanager", "taskmanager")
_ANYWHERE = "0.0.0.0"
_RUNTIME = "org.apache.flink.runtime"
_MAIN = {
    "jobmanager": f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": f"{_RUNTIME}.taskexecutor.TaskManagerRunner",
}


def configuration(
    manager: str, host: str, slots: int, shared: Path = SHARED, own: Path = OWN
) -> dict[str, object]:
    """Return the settings of a process.

    Parameters
    ----------
    manager : str
        Name of the job manager's machine.
    host : str
        Address at which others reach this one.
    slots : int
        How many tasks a task manager runs side by side.
    shared, own : Path
        Folders that all processes see, and that this one alone does.
    """
    return settings.configuration(shared, REST, RPC, slots) | {
        "jobmanager.rpc.address": manager,
        "jobmanager.bind-host": _ANYWHERE,
        "rest.address": manager,
        "rest.bind-address": _ANYWHERE,
        "taskmanager.host": host,
        "taskmanager.bind-host": _ANYWHERE,
        "io.tmp.dirs": own / "tmp",
    }


def command(role: str, conf: Path) -> list[str]:
    """Return the command of a process whose ``config.yaml`` is in a folder.

    Raises
    ------
    DeployError
        Java or an archive is missing.
    """
    manager = role == "jobmanager"
    heap = settings.JOB_MANAGER_HEAP if manager else settings.TASK_MANAGER_HEAP
    options = ["-Xms64m", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    options += [*([] if manager else settings.TASK_MANAGER_LIMITS), *settings.REFLECTION]
    options += [f"-Dlog4j2.configurationFile={SOURCE / 'log4j2.properties'}"]
    parts = f"{archives()}/*:{connector()}/*"
    return [jars.java(), *options, "-cp", parts, _MAIN[role], "--configDir", str(conf)]


def main() -> int:
    """Become the process, or answer for it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.images.node", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for role in ROLES:
        begin = commands.add_parser(role, help=f"become a {role}")
        begin.add_argument("--manager", default="jobmanager", help="default: jobmanager")
        begin.add_argument("--slots", type=int, default=2, help="default: 2")
    healthy = commands.add_parser("healthy", help="status 0 if slots are offered")
    healthy.add_argument("--manager", default="jobmanager", help="default: jobmanager")
    commands.add_parser("fetch", help="bring the archives")
    args = parser.parse_args()
    try:
        if args.command == "fetch":
            archives(), connector()
            return 0
        if args.command == "healthy":
            return 0 if slots_of(args.manager) else 1
        _become(args.command, args.manager, args.slots)
    except (SottoError, OSError) as error:
        print(f"flink: error: {error}", file=sys.stderr)
        return 2
    return 0


def slots_of(manager: str) -> int:
    """Return how many slots there are, free or not; 0 if the job manager does not answer."""
    try:
        with urllib.request.urlopen(f"http://{manager}:{REST}/overview", timeout=5) as answer:
            return int(json.load(answer)["slots-total"])
    except (OSError, ValueError, KeyError):
        return 0


def _become(role: str, manager: str, slots: int) -> None:
    host = manager if role == "jobmanager" else socket.gethostbyname(socket.gethostname())
    conf = OWN / "conf"
    for folder in (conf, OWN / "tmp", SHARED / "checkpoints", SHARED / "savepoints"):
        folder.mkdir(parents=True, exist_ok=True)
    says = configuration(manager, host, slots)
    (conf / "config.yaml").write_text(settings.to_yaml(says), encoding="utf-8")
    environment = {"FLINK_CONF_DIR": str(conf), "FLINK_PLUGINS_DIR": str(OWN / "plugins")}
    words = command(role, conf)
    os.execve(words[0], words, os.environ | environment)


if __name__ == "__main__":
    raise SystemExit(main())

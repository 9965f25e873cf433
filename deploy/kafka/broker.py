"""One broker of our own in KRaft mode, on loopback.

``plain`` speaks without encryption or names, to whoever is on this machine; ``tls`` speaks TLS
alone and admits who proves by SCRAM-SHA-512 that he knows a password made at the first start. It
lets the administrator do everything, and others what ``sotto topics create`` allows them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from pathlib import Path

from deploy import certificates, jars
from deploy.errors import DeployError
from deploy.kafka.probe import answers
from deploy.kafka.settings import MECHANISM, ROLES, USER, common, plain, tls
from deploy.ports import HOST, free_ports, require_free
from deploy.process import Process, start_seconds, wait_until_ready

SOURCE = Path(__file__).parent
PROFILES = ("plain", "tls")

#: How long a start may take, in seconds.
START_SECONDS = 60


class LocalBroker:
    """A broker whose files are all in one folder, made if it does not exist.

    ``heap`` is in megabytes. ``advertised`` is the port on loopback that clients are told to
    connect to: that of whoever stands between, or 0 for the broker's own.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        profile: str = "plain",
        heap: int = 256,
        advertised: int = 0,
    ) -> None:
        if profile not in PROFILES:
            raise DeployError(f"profile {profile!r} must be one of {', '.join(PROFILES)}")
        self.folder = Path(folder).resolve()
        self.profile = profile
        self.client_file = self.folder / "client.json"
        self._heap = heap
        self._advertised = advertised
        self._properties = self.folder / "server.properties"
        self._process = Process(self.folder, "broker", str(self._properties))

    def client_file_of(self, role: str) -> Path:
        """Return the file that says how to reach the broker as one of the other roles."""
        return self.folder / f"{role}.json"

    @property
    def servers(self) -> str:
        """The address that clients connect to, ``host:port``."""
        return str(json.loads(self.client_file.read_text("utf-8"))["servers"])

    @property
    def port(self) -> int:
        """The port at which it listens, once it has been started."""
        return self._ports(0)[0]

    @property
    def log_file(self) -> Path:
        return self._process.log_file

    @property
    def running(self) -> bool:
        return self._process.pid is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def start(self, port: int = 0) -> None:
        """Start it and return once it answers; after a DeployError nothing is left running.

        Clients connect to ``port`` and the next one is the controller's. 0 keeps those of the last
        start, or takes free ones.
        """
        if not str(self.folder).isascii() or set(str(self.folder)) & set(",\\"):
            raise DeployError(f"Kafka takes no such path: {self.folder}; give it another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        with jars.locked(self.folder / "starting"):
            if self.running:
                raise DeployError(f"a broker is running already in {self.folder}")
            self._start(self._ports(port))

    def stop(self) -> bool:
        """Let it end by itself; or else make it. False if none was running."""
        return self._process.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal: ``SIGSTOP`` makes it as slow as a broker can be."""
        if not self._process.signal(number):
            raise DeployError(f"no broker is running in {self.folder}")

    def _start(self, ports: tuple[int, int]) -> None:
        program, parts = jars.java(), jars.jars("kafka", SOURCE)
        for number in ports:
            require_free(number)
        self._write_configuration(ports, self._passwords())
        options = jars.java_options([parts], self._heap, SOURCE, self.profile == "tls")
        if not self._formatted:
            self._format(program, ["-Xmx128m", *options[-2:], "kafka.tools.StorageTool"])
        command = [program, *options, "kafka.Kafka", str(self._properties)]
        self._process.start(command, {})
        try:
            self._wait_until_it_answers(ports[0])
        except BaseException:
            self.kill()
            raise

    def _ports(self, port: int) -> tuple[int, int]:
        if port:
            return port, port + 1
        if self._properties.exists():
            lines = self._properties.read_text("ascii").splitlines()
            (listeners,) = (line for line in lines if line.startswith("listeners="))
            client, controller = (int(each.rpartition(":")[2]) for each in listeners.split(","))
            return client, controller
        client, controller = free_ports(2)
        return client, controller

    def _passwords(self) -> dict[str, str]:
        """Return the passwords by user, made before the storage is; none without TLS."""
        if self.profile == "plain":
            return {}
        files = {USER: self.client_file} | {role: self.client_file_of(role) for role in ROLES}
        if self._formatted:
            # A storage knows who it was made with.
            files = {user: path for user, path in files.items() if path.exists()}
        return {
            user: str(json.loads(path.read_text("utf-8"))["password"])
            if path.exists()
            else secrets.token_urlsafe(24)
            for user, path in files.items()
        }

    @property
    def _formatted(self) -> bool:
        return (self.folder / "data" / "meta.properties").exists()

    def _write_configuration(self, ports: tuple[int, int], passwords: dict[str, str]) -> None:
        client, controller = ports
        advertised = self._advertised or client
        settings = common(self.folder / "data", client, controller)
        settings["advertised.listeners"] = f"CLIENT://{HOST}:{advertised}"
        says: dict[str, object] = {"servers": f"{HOST}:{advertised}"}
        if passwords:
            keys = certificates.make(self.folder / "keys")
            settings |= tls(keys, passwords[USER])
            says |= {"ca": str(keys.authority)}
        else:
            settings |= plain()
        _write_private(self._properties, "".join(f"{k}={v}\n" for k, v in settings.items()))
        for user, password in passwords.items():
            path = self.client_file if user == USER else self.client_file_of(user)
            _write_json(path, says | {"user": user, "password": password})
        if not passwords:
            _write_json(self.client_file, says)

    def _format(self, program: str, tool: list[str]) -> None:
        command = [*tool, "format", "--standalone", "--ignore-formatted"]
        command += ["--cluster-id", secrets.token_urlsafe(16).replace("-", "A")]
        command += ["--config", str(self._properties)]
        for user, password in self._passwords().items():
            command += ["--add-scram", f"{MECHANISM}=[name={user},password={password}]"]
        # Command lines are for all to see; Java takes one from a file as well.
        arguments = self.folder / "format.arguments"
        quoted = (argument.replace("\\", r"\\").replace('"', r"\"") for argument in command)
        _write_private(arguments, "".join(f'"{argument}"\n' for argument in quoted))
        try:
            done = subprocess.run(
                [program, f"@{arguments}"],
                capture_output=True,
                text=True,
                timeout=start_seconds(START_SECONDS),
                check=False,
            )
        finally:
            arguments.unlink()
        if done.returncode:
            raise DeployError(f"the storage was not formatted: {done.stderr.strip()[-500:]}")

    def _wait_until_it_answers(self, port: int) -> None:
        authority = None if self.profile == "plain" else self.folder / "keys" / "authority.pem"
        wait_until_ready([self._process], lambda: answers(HOST, port, authority), START_SECONDS)


def _write_json(path: Path, says: dict[str, object]) -> None:
    _write_private(path, json.dumps(says, indent=1) + "\n")


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)

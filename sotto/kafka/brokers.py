"""How to reach a Kafka cluster: addresses, TLS, and who one is.

Devices, aggregators and ``sotto topics`` share this; it has the options of kafka-python's clients,
and is needed before kafka-python is. Names and passwords go over TLS or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotto.errors import BrokerError, ParameterError, install_hint, wrong_type
from sotto.kafka.client_logs import Secret, restrain

if TYPE_CHECKING:
    import ssl

#: Older brokers are refused, and so is a kafka-python that was not written for these.
OLDEST_BROKER = (4, 0)
OLDEST_CLIENT = 3

#: OpenSSL's codes for certificates of another host or address.
_ANOTHER_NAME = (62, 64)
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")


@dataclass(frozen=True)
class Broker:
    """A cluster, and how to speak to it.

    Raises ParameterError if something of that is missing or does not go together.

    Parameters
    ----------
    servers : str
        ``host:port``, several separated by commas.
    tls : bool
        Whether to encrypt; given any of the following, that goes without saying.
    ca : str, optional
        File with the certificates that the brokers' must be signed with; the system's if not given.
    certificate, key : str, optional
        Files with one's own certificate and its key, for brokers that ask for them.
    user, password : str, optional
        Who one is, proved by SCRAM.
    mechanism : {"SCRAM-SHA-512", "SCRAM-SHA-256"}
    api_version : (int, int), optional
        Takes this version for the broker's, instead of asking and refusing old ones.

    Examples
    --------
    >>> Broker("kafka1:9093,kafka2:9093", user="fleet", password="secret").addresses
    (('kafka1', 9093), ('kafka2', 9093))
    """

    servers: str
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = _MECHANISMS[0]
    api_version: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        texts = (self.ca, self.certificate, self.key, self.user, self.password, self.mechanism)
        for text in (self.servers, *(each for each in texts if each is not None)):
            if not isinstance(text, str):
                raise wrong_type("what describes a broker", "text", text)
        if not isinstance(self.tls, bool):
            raise wrong_type("tls", "True or False", self.tls)
        if not self.addresses:
            raise ParameterError("servers must be host:port, several separated by commas")
        if (self.user is None) != (self.password is None):
            raise ParameterError("user and password go together")
        if (self.certificate is None) != (self.key is None):
            raise ParameterError("certificate and key go together")
        if self.mechanism not in _MECHANISMS:
            raise ParameterError(f"mechanism must be one of {', '.join(_MECHANISMS)}")

    @classmethod
    def from_url(cls, url: str) -> tuple[Broker, str]:
        """Return the cluster and the topic of ``kafka://host:port,host:port/topic``, in the clear.

        Raises ParameterError if the URL has no topic, or a name, a password or a query.
        """
        servers, _, topic = url.partition("//")[2].partition("/")
        if not servers or not topic or "@" in url or "?" in url:
            raise ParameterError(
                "a topic's URL must be such as kafka://broker:9092/reports-e1-p8; a cluster with "
                "TLS or names takes a Broker in place of a URL"
            )
        return cls(servers), topic

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Broker:
        """Read the fields from a JSON file, where ``password_file`` may stand for ``password``.

        Raises ParameterError if it is not such a file.
        """
        try:
            content = json.loads(Path(path).read_bytes())
        except ValueError as error:
            raise ParameterError(f"{path} is not JSON") from error
        if not isinstance(content, dict):
            raise ParameterError(f"{path} must be a JSON object with at least servers")
        if "password_file" in content:
            file = Path(path).parent / str(content.pop("password_file"))
            content["password"] = file.read_text("utf-8").rstrip("\r\n")
        made = cls(**_checked(content, path))
        object.__setattr__(made, "_file", Path(path).absolute())
        return made

    def __reduce__(self) -> tuple[Callable[..., Broker], tuple[object, ...]]:
        """Cross to other processes as the file that was read, so that no password does."""
        file = getattr(self, "_file", None)
        if file is not None:
            return Broker.from_file, (file,)
        return Broker, tuple(getattr(self, each.name) for each in fields(self))

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports."""
        found = []
        for server in self.servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 65536):
                raise ParameterError(f"server {server.strip()!r} must be host:port")
            found.append((host.strip("[]"), int(port)))
        return tuple(found)

    @property
    def encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self.tls or any((self.ca, self.certificate, self.user))

    def options(self, seconds: float) -> dict[str, object]:
        """Return what a client of kafka-python is made with; it has so many seconds to connect."""
        options: dict[str, object] = {
            "bootstrap_servers": [server.strip() for server in self.servers.split(",")],
            "bootstrap_timeout_ms": max(1, int(seconds * 1000)),
            "reconnect_backoff_max_ms": 1000,
        }
        if self.api_version is not None:
            options["api_version"] = self.api_version
        if self.encrypted:
            options["security_protocol"] = "SSL" if self.user is None else "SASL_SSL"
            options["ssl_context"] = self._context()
        if self.password is not None:
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.user
            options["sasl_plain_password"] = Secret(self.password)
        return options

    def reach(self, seconds: float) -> None:
        """Raise BrokerError if no server takes a connection: what each answered, and what to do."""
        import ssl

        failures: list[str] = []
        for host, port in self.addresses:
            try:
                self._connect(host, port, seconds / len(self.addresses))
                return
            except ssl.SSLCertVerificationError as error:
                remedy = "give the authority that signed it as ca"
                if error.verify_code in _ANOTHER_NAME:
                    remedy = "reach it by a name that is in it"
                failures.append(
                    f"the certificate of {host}:{port} is not trusted ({error.verify_message}): "
                    f"{remedy}"
                )
            except ssl.SSLError as error:
                failures.append(f"{host}:{port} does not speak TLS with us ({error.reason})")
            except TimeoutError:
                failures.append(f"{host}:{port} does not answer")
            except OSError as error:
                failures.append(f"{host}:{port}: {error.strerror or error}")
            except UnicodeError:
                failures.append(f"{host!r} is no name of a host")
        raise BrokerError(f"{'; '.join(failures)}; is the broker running, and is this its address?")

    def _connect(self, host: str, port: int, seconds: float) -> None:
        import socket

        with socket.create_connection((host, port), timeout=seconds) as connection:
            if self.encrypted:
                self._context().wrap_socket(connection, server_hostname=host).close()

    def _context(self) -> ssl.SSLContext:
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                # Without one, OpenSSL would ask the terminal for an encrypted key's password.
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            given = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
            files = ", ".join(f"{name} {path}" for name, path in given.items() if path)
            why = getattr(error, "reason", None) or error.strerror
            raise BrokerError(
                f"the files {files} cannot be used ({why}): give them in PEM"
            ) from error
        return context


def make_client(kind: Any, broker: Broker, seconds: float, **options: object) -> Any:
    """Return a client of kafka-python that is connected; if it cannot be, nothing stays open.

    The kind is ``KafkaProducer``, ``KafkaConsumer`` or ``KafkaAdminClient``; the options are its
    own, beside those that ``broker`` gives. Each of connecting and being let in may take so many
    seconds; if no server does, BrokerError says what to do.
    """
    from kafka.errors import KafkaError

    broker.reach(seconds)
    connect = kind.DEFAULT_CONFIG["kafka_client"]
    connections = []

    def remembered(**given: object) -> object:
        connections.append(connect(**given))
        return connections[-1]

    try:
        return kind(kafka_client=remembered, **broker.options(seconds), **options)
    except (KafkaError, OSError) as error:
        for connection in connections:
            connection.close()
        raise BrokerError(
            f"{broker.servers} takes connections but does not let us in: check user, password and "
            "mechanism, whether it wants TLS, and that this is the port of a Kafka broker"
        ) from error


def require_client() -> None:
    """Raise ModuleNotFoundError unless kafka-python is installed and new enough.

    It logs no message from then on.
    """
    fault = ""
    try:
        import kafka

        if int(kafka.__version__.split(".")[0]) < OLDEST_CLIENT:
            fault = f"{kafka.__version__} is older than {OLDEST_CLIENT}"
    except ModuleNotFoundError as error:
        fault = f"lacks {error.name} (PyInstaller needs --collect-data kafka to pack it)"
        if error.name == "kafka":
            fault = "is not installed"
    if fault:
        raise ModuleNotFoundError(f"kafka-python {fault}: {install_hint('kafka')}", name="kafka")
    restrain()


def require_version(version: tuple[int, ...]) -> None:
    """Raise BrokerError if a broker of this version is too old.

    >>> require_version((4, 3))
    >>> require_version((3, 9))
    Traceback (most recent call last):
    sotto.errors.BrokerError: the broker is of Kafka 3.9; Sotto needs 4.0 or newer: upgrade it
    """
    if version < OLDEST_BROKER:
        oldest = ".".join(map(str, OLDEST_BROKER))
        raise BrokerError(
            f"the broker is of Kafka {'.'.join(map(str, version))}; Sotto needs {oldest} or newer: "
            "upgrade it"
        )


def _checked(content: Mapping[str, object], path: object) -> dict[str, Any]:
    names = {known.name: known.type for known in fields(Broker) if known.name != "api_version"}
    for name, value in content.items():
        if name not in names:
            raise ParameterError(f"{path}: {name!r} must be one of {', '.join(names)}")
        if not isinstance(value, bool if name == "tls" else str):
            raise ParameterError(
                f"{path}: {name} must be {'true or false' if name == 'tls' else 'text'}"
            )
    if "servers" not in content:
        raise ParameterError(f"{path}: servers is missing")
    return dict(content)

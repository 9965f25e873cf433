"""Makes passwords and keys of a deployment in containers: ``python -m deploy.images.passwords``.

They are made once and kept in ``build/compose``, in a file or a folder for each container that
needs one, and are in no file that is committed. Containers run as users of their own: what they
read in their folders is readable by all, and ``build/compose`` only by its owner.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy import certificates

FOLDER = Path(__file__).parent.parent.parent / "build" / "compose"
#: Whom the broker knows by their certificates, and where it is reached from which of them.
INSIDE, OUTSIDE = "kafka:19092", "127.0.0.1:9092"
CLIENTS = {"admin": INSIDE, "aggregator": INSIDE, "reader": INSIDE, "devices": OUTSIDE}
#: The path at which a container finds its folder.
MOUNTED = Path("/keys")
_HOSTS = ("DNS:kafka", "DNS:localhost", "IP:127.0.0.1")


def make(folder: Path = FOLDER) -> None:
    """Make the files that are not there; those that are stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _make_keys(folder / "keys")
    _make_password(folder / "postgres.env", "POSTGRES_PASSWORD")
    # Clients of the database get the same password under the name that their library reads.
    password = (folder / "postgres.env").read_text("ascii").partition("=")[2].strip()
    _write(folder / "client.env", {"PGPASSWORD": password})
    # Grafana reads results as a role that can change nothing.
    _make_password(folder / "reader.env", "SOTTO_READER_PASSWORD")
    _make_password(folder / "grafana.env", "GF_SECURITY_ADMIN_PASSWORD")
    token = folder / "token"
    if not token.exists():
        token.write_text(f"{secrets.token_urlsafe(24)}\n", encoding="ascii")
        # Mounted as a file, which the container's user reads.
        token.chmod(0o644)


def _make_password(path: Path, variable: str) -> None:
    if not path.exists():
        _write(path, {variable: secrets.token_urlsafe(24)})


def _make_keys(folder: Path) -> None:
    """Make certificates, and a folder for each container with all that it needs of them."""
    made = certificates.make(folder, "kafka", _HOSTS, tuple(CLIENTS))
    authority = made.authority.read_bytes()
    broker = folder / "kafka"
    broker.mkdir(exist_ok=True)
    (broker / "server.pem").write_bytes(made.server.read_bytes())
    (broker / "client.properties").write_text(_PROPERTIES, encoding="ascii")
    for own, servers in zip(made.clients, CLIENTS.values(), strict=True):
        there = MOUNTED if servers == INSIDE else own.resolve()
        files = {"ca": "authority.pem", "certificate": "certificate.pem", "key": "key.pem"}
        says = {"servers": servers} | {name: str(there / file) for name, file in files.items()}
        (own / "client.json").write_text(json.dumps(says, indent=1) + "\n", encoding="utf-8")
    for own in (broker, *made.clients):
        (own / "authority.pem").write_bytes(authority)
        own.chmod(0o755)
        for file in own.iterdir():
            file.chmod(0o644)


#: With which the broker's own tools reach it.
_PROPERTIES = """\
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location=/keys/authority.pem
ssl.keystore.type=PEM
ssl.keystore.location=/keys/server.pem
"""


def _write(path: Path, said: Mapping[str, str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{name}={value}\n" for name, value in said.items())


if __name__ == "__main__":
    make()

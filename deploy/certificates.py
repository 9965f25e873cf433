"""An authority, a server's certificate and those of clients, made where they are used.

The authority's key is thrown away as soon as the certificate is signed. All certificates are
renewed when one of them is about to expire.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.errors import DeployError, MissingToolError

DAYS = 365
#: Certificates that end within so many days are made anew.
RENEWED = 30
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Keys(NamedTuple):
    """Files in PEM: the certificate that clients trust, the server's key and chain of certificates.

    For each client there is a folder with ``certificate.pem`` and ``key.pem``.
    """

    authority: Path
    server: Path
    clients: tuple[Path, ...] = ()


def make(
    folder: Path,
    name: str = "localhost",
    hosts: Sequence[str] = ("IP:127.0.0.1", "DNS:localhost"),
    clients: Sequence[str] = (),
) -> Keys:
    """Return the keys in ``folder``, made if they are not there or end soon.

    To be called before the server starts: clients trust the new authority once they read its file.
    The server is reached at ``hosts``; ``clients`` prove by a certificate who they are. Raises
    DeployError if OpenSSL is not installed, or refuses.
    """
    folders = tuple(folder / client for client in clients)
    keys = Keys(folder / "authority.pem", folder / "server.pem", folders)
    certified = [keys.authority, keys.server, *(each / "certificate.pem" for each in folders)]
    if all(path.exists() and _lasts(path) for path in certified):
        return keys
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = _make(Path(temporary), name, hosts, clients)
        # Without an authority a server's certificate is made anew: never are two of different ones.
        keys.authority.unlink(missing_ok=True)
        for new, old in zip(made.clients, folders, strict=True):
            old.mkdir(exist_ok=True)
            for path in new.iterdir():
                path.replace(old / path.name)
        made.server.rename(keys.server)
        made.authority.rename(keys.authority)
    return keys


def _make(folder: Path, name: str, hosts: Sequence[str], clients: Sequence[str]) -> Keys:
    authority = folder / "authority.pem"
    signing: list[str | Path] = ["-subj", "/CN=Sotto local authority"]
    signing += ["-keyout", folder / "authority.key", "-out", authority]
    _openssl("req", "-x509", *_CURVE, *signing, "-days", str(DAYS))
    _sign(folder, folder / "own", name, hosts)
    server = folder / "server.pem"
    descriptor = os.open(server, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "wb") as file:
        for part in (folder / "own" / "key.pem", folder / "own" / "certificate.pem", authority):
            file.write(part.read_bytes())
    folders = tuple(folder / "clients" / client for client in clients)
    for client, own in zip(clients, folders, strict=True):
        _sign(folder, own, client, ())
    return Keys(authority, server, folders)


def _sign(folder: Path, own: Path, name: str, hosts: Sequence[str]) -> None:
    """Make a key and a certificate of that name in a folder of their own."""
    own.mkdir(parents=True)
    request = folder / "request.pem"
    _openssl("req", *_CURVE, "-subj", f"/CN={name}", "-keyout", own / "key.pem", "-out", request)
    signed: list[str | Path] = ["-CA", folder / "authority.pem", "-CAkey", folder / "authority.key"]
    if hosts:
        names = folder / "names.cnf"
        names.write_text(f"subjectAltName={','.join(hosts)}\n", encoding="ascii")
        signed += ["-extfile", names]
    made: list[str | Path] = ["-days", str(DAYS), "-out", own / "certificate.pem"]
    # A file of serial numbers beside the authority could not have a long path.
    number = f"0x{secrets.token_hex(16)}"
    _openssl("x509", "-req", "-in", request, *signed, "-set_serial", number, *made)


def _lasts(certificate: Path) -> bool:
    """Tell whether a file has a certificate, and it does not end soon."""
    seconds = str(RENEWED * 86_400)
    return not _run("x509", "-in", certificate, "-noout", "-checkend", seconds).returncode


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("openssl")
    if program is None:
        raise MissingToolError(
            "OpenSSL is not installed, which makes certificates: apt-get install openssl, or "
            "brew install openssl"
        )
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def _openssl(*arguments: str | Path) -> None:
    done = _run(*arguments)
    if done.returncode:
        raise DeployError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-300:]}")

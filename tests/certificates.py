"""Certificate authorities and certificates for servers on loopback."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority, whose own certificate is in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        limits = x509.BasicConstraints(ca=True, path_length=None)
        made = _builder(self._name, self._name, self._key, days=2).add_extension(limits, True)
        self.file = folder / "authority.pem"
        signed = made.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str = "127.0.0.1", *, days: int = 1) -> tuple[Path, Path]:
        """Write a certificate for an address or a host, and its key; return both files.

        Parameters
        ----------
        days : int
            From now until it expires; below 0 it has.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            names: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            names = x509.DNSName(name)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")])
        made = _builder(subject, self._name, key, days).add_extension(
            x509.SubjectAlternativeName([names]), False
        )
        signed = made.sign(self._key, hashes.SHA256())
        files = self._folder / f"{name}{days}.pem", self._folder / f"{name}{days}.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 5 * _DAY)
        .not_valid_after(now + days * _DAY)
    )

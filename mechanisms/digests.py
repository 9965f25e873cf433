"""SHA-256, without OpenSSL where the interpreter brings its own.

The module ``hashlib`` loads all of OpenSSL, which takes a device 3 ms and 4 MB; what it then
computes is the same.
"""

from __future__ import annotations

import sys

try:
    if sys.version_info >= (3, 12):
        from _sha2 import sha256 as _sha256  # type: ignore[import-not-found]
    else:
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256 as _sha256


def sha256(content: bytes) -> bytes:
    """Return the digest: 32 bytes."""
    digest: bytes = _sha256(content).digest()
    return digest

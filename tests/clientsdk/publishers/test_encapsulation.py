"""Encapsulation: the RFC's vector to the byte, and answers and keys that are something else."""

from __future__ import annotations

import subprocess
import sys

import pytest
from oblivious import Gateway
from pyhpke import AEADId, CipherSuite, KEMId, KEMKeyPair
from scripts import ROOT

from clientsdk.publishers.ohttp import Exchange, KeyConfiguration
from sotto.errors import FormatError, ParameterError

#: RFC 9458, appendix A.
PRIVATE = bytes.fromhex("3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a")
CONFIGURATION = bytes.fromhex(
    "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
)
EPHEMERAL = bytes.fromhex("bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73")
REQUEST = bytes.fromhex("00034745540568747470730b6578616d706c652e636f6d012f")
SENT = bytes.fromhex(
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472"
    "6374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
ANSWER = bytes.fromhex("0140c8")
NONCE = bytes.fromhex("c789e7151fcba46158ca84b04464910d")
ANSWERED = bytes.fromhex("c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd")


def test_the_vector_of_the_rfc(monkeypatch):
    configuration = KeyConfiguration.parse(CONFIGURATION)
    assert configuration == (1, CONFIGURATION[3:35], AEADId.AES128_GCM)
    original = CipherSuite.create_sender_context

    def with_ephemeral_key(suite, public, **options):
        private = suite.kem.deserialize_private_key(EPHEMERAL)
        pair = KEMKeyPair(private, suite.kem.deserialize_public_key(SENT[7:39]))
        return original(suite, public, **{**options, "eks": pair})

    monkeypatch.setattr(CipherSuite, "create_sender_context", with_ephemeral_key)
    sent, exchange = configuration.encapsulate(REQUEST)
    assert sent == SENT
    assert exchange.decapsulate(ANSWERED) == ANSWER


def test_the_tests_own_gateway_agrees_with_the_vector():
    request, encapsulate = Gateway(private=PRIVATE).decapsulate(SENT)
    assert request == REQUEST
    assert encapsulate(ANSWER, NONCE) == ANSWERED


def exchanged(gateway: Gateway) -> tuple[bytes, Exchange, bytes]:
    sent, exchange = KeyConfiguration.parse(gateway.configuration).encapsulate(b"request")
    request, encapsulate = gateway.decapsulate(sent)
    assert request == b"request"
    return sent, exchange, encapsulate(b"answer")


FORKS = """\
import os, sys
from clientsdk.publishers.ohttp import KeyConfiguration
configuration = KeyConfiguration.parse(bytes.fromhex(sys.argv[1]))
configuration.encapsulate(b"request")
os.fork(), os.fork()
os.write(1, configuration.encapsulate(b"request")[0][7:39].hex().encode() + b"\\n")
"""


@pytest.mark.real_randomness
def test_forked_processes_share_no_key():
    command = [sys.executable, "-c", FORKS, CONFIGURATION.hex()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        keys = process.stdout.read().split()
    assert len(keys) == len(set(keys)) == 4


def test_nothing_is_the_same_in_two_encapsulations_of_one_request():
    configuration = KeyConfiguration.parse(Gateway().configuration)
    many = [configuration.encapsulate(bytes(64))[0] for _ in range(50)]
    assert len({sent[:7] for sent in many}) == 1
    assert len({sent[7:39] for sent in many}) == 50
    parts = [sent[at : at + 16] for sent in many for at in range(7, len(sent) - 15)]
    assert len(set(parts)) == len(parts)


@pytest.mark.parametrize("aead", [AEADId.AES128_GCM, AEADId.CHACHA20_POLY1305])
def test_an_answer_that_was_changed_or_cut_is_refused(aead):
    _, exchange, answer = exchanged(Gateway(aead=aead))
    assert exchange.decapsulate(answer) == b"answer"
    for at in range(len(answer)):
        changed = bytearray(answer)
        changed[at] ^= 1
        with pytest.raises(FormatError, match="gateway"):
            exchange.decapsulate(bytes(changed))
        with pytest.raises(FormatError):
            exchange.decapsulate(answer[:at])
    with pytest.raises(FormatError):
        exchange.decapsulate(answer + b"\0")


def test_another_gateway_cannot_read_it_nor_answer():
    sent, exchange = KeyConfiguration.parse(Gateway().configuration).encapsulate(b"request")
    other = Gateway()
    with pytest.raises(Exception, match="Failed to open"):
        other.decapsulate(sent)
    _, _, answer = exchanged(other)
    with pytest.raises(FormatError):
        exchange.decapsulate(answer)


def listed(*configurations: bytes) -> bytes:
    return b"".join(len(each).to_bytes(2, "big") + each for each in configurations)


def of_kem(kem: KEMId, size: int) -> bytes:
    return b"\x05" + kem.value.to_bytes(2, "big") + bytes(size) + bytes.fromhex("000400010001")


#: X25519Kyber768Draft00, which gateways offer beside X25519.
HYBRID = bytes([9, 0, 0x30]) + bytes(1216) + bytes.fromhex("000400010001")


def test_the_first_usable_configuration_is_taken():
    first, second = Gateway(1), Gateway(2, AEADId.CHACHA20_POLY1305)
    unusable = (HYBRID, of_kem(KEMId.DHKEM_P256_HKDF_SHA256, 65))
    for data in (
        first.configuration,
        listed(first.configuration),
        listed(*unusable, first.configuration, second.configuration),
    ):
        assert KeyConfiguration.parse(data).key_id == 1
    assert KeyConfiguration.parse(listed(second.configuration, first.configuration)).key_id == 2


def test_the_first_usable_algorithms_are_taken():
    head = Gateway().configuration[:35]
    # AES-256-GCM, HKDF-SHA512, and then what is usable.
    algorithms = bytes.fromhex("0010 0001 0002 0003 0001 0001 0003 0001 0001".replace(" ", ""))
    assert KeyConfiguration.parse(head + algorithms).aead == AEADId.CHACHA20_POLY1305


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        CONFIGURATION[:-1],
        CONFIGURATION + b"\0",
        CONFIGURATION[:35],
        CONFIGURATION[:35] + b"\0\0",
        CONFIGURATION[:35] + bytes.fromhex("0004 0001 0002".replace(" ", "")),
        CONFIGURATION[:35] + bytes.fromhex("0004 0002 0001".replace(" ", "")),
        listed(CONFIGURATION)[:-1],
        listed(CONFIGURATION) + b"\0",
        listed(b"", b""),
        listed(HYBRID),
        of_kem(KEMId.DHKEM_X448_HKDF_SHA512, 56),
        CONFIGURATION.hex(),
        None,
    ],
)
def test_other_keys_are_refused(data):
    with pytest.raises(ParameterError, match="keys must"):
        KeyConfiguration.parse(data)

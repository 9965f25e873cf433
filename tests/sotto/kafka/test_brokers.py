"""How a broker is reached: fields, files, and what is said where it cannot be."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import ssl
import threading

import pytest

from deploy import certificates
from sotto.errors import BrokerError, ParameterError
from sotto.kafka.brokers import Broker, require_version


def test_in_the_clear_or_over_tls():
    assert not Broker("a:1").encrypted
    assert Broker("a:1").options(2) == {
        "bootstrap_servers": ["a:1"],
        "bootstrap_timeout_ms": 2000,
        "reconnect_backoff_max_ms": 1000,
    }
    assert Broker("a:1", tls=True).options(1)["security_protocol"] == "SSL"
    named = Broker("a:1, b:2", user="me", password="secret", api_version=(2, 3)).options(1)
    assert named["bootstrap_servers"] == ["a:1", "b:2"]
    assert named["security_protocol"] == "SASL_SSL"
    assert named["sasl_mechanism"] == "SCRAM-SHA-512"
    assert named["sasl_plain_password"] == "secret"
    assert named["api_version"] == (2, 3)


def test_a_password_is_not_shown():
    broker = Broker("a:1", user="me", password="secret")
    assert "secret" not in f"{broker!r} {broker} {broker.options(1)}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"servers": ""}, "host:port"),
        ({"servers": "host"}, "host:port"),
        ({"servers": "host:0"}, "host:port"),
        ({"servers": "a:1,"}, "host:port"),
        ({"servers": "a:99999"}, "host:port"),
        ({"servers": "a:1", "user": "me"}, "go together"),
        ({"servers": "a:1", "password": "secret"}, "go together"),
        ({"servers": "a:1", "certificate": "c"}, "go together"),
        ({"servers": "a:1", "mechanism": "PLAIN"}, "SCRAM-SHA-512, SCRAM-SHA-256"),
    ],
)
def test_what_does_not_go_together_is_refused(fields, message):
    with pytest.raises(ParameterError, match=message) as raised:
        Broker(**fields)
    assert "secret" not in str(raised.value)


def test_a_file_says_the_fields(tmp_path):
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")
    path = tmp_path / "client.json"
    says = {"servers": "a:1", "ca": "ca.pem", "user": "me", "password_file": "password"}
    path.write_text(json.dumps(says), encoding="utf-8")
    assert Broker.from_file(path) == Broker("a:1", ca="ca.pem", user="me", password="secret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ("{}", "servers is missing"),
        ('{"servers": 1}', "servers must be text"),
        ('{"servers": "a:1", "tls": "yes"}', "true or false"),
        ('{"servers": "a:1", "topic": "x"}', "'topic' must be one of servers"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "client.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=message):
        Broker.from_file(path)


def test_one_server_that_takes_connections_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        Broker(f"127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}").reach(60)


def test_what_each_server_said_is_told():
    with pytest.raises(
        BrokerError, match=r"127.0.0.1:1: .*refused; 127.0.0.1:2: .*refused; is the"
    ):
        Broker("127.0.0.1:1,127.0.0.1:2").reach(60)


def test_a_server_without_tls_costs_its_time_alone():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match="answer"):
            Broker(f"127.0.0.1:{port}", tls=True).reach(0.2)


@pytest.mark.parametrize("version", [(4, 0), (4, 3), (5, 0)])
def test_new_brokers_will_do(version):
    require_version(version)


@pytest.mark.parametrize("version", [(0, 11), (2, 3), (3, 9)])
def test_old_brokers_are_refused(version):
    with pytest.raises(BrokerError, match=r"4\.0"):
        require_version(version)


@pytest.mark.parametrize("host", ["kafka..example", "k" * 70])
def test_what_cannot_be_a_name_is_told(host):
    with pytest.raises(BrokerError, match="name"):
        Broker(f"{host}:9092").reach(60)


def test_files_that_cannot_be_used_are_told(tmp_path):
    (tmp_path / "empty.pem").write_text("", encoding="ascii")
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        for name, why in (("missing.pem", "No such file"), ("empty.pem", "NO_CERTIFICATE")):
            with pytest.raises(BrokerError, match=f"{name} cannot be used .{why}"):
                Broker(where, ca=str(tmp_path / name)).reach(60)


def test_a_certificate_of_another_host_is_told(tmp_path):
    keys = certificates.make(tmp_path / "keys")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys.server)
    with socket.create_server(("127.0.0.2", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):
                context.wrap_socket(server.accept()[0], server_side=True).close()

        thread = threading.Thread(target=answer)
        thread.start()
        where = f"127.0.0.2:{server.getsockname()[1]}"
        with pytest.raises(BrokerError, match=r"mismatch.*reach it by a name that is in it"):
            Broker(where, ca=str(keys.authority)).reach(60)
        thread.join()


def test_it_crosses_to_other_processes_without_its_password(tmp_path):
    """As the file that was read, which is to be there too; one that came of no file as it is."""
    path = tmp_path / "client.json"
    (tmp_path / "password").write_text("deep secret\n")
    path.write_text('{"servers": "a:1", "user": "me", "password_file": "password"}')
    made = Broker.from_file(path)
    crossing = pickle.dumps(made)
    assert b"deep secret" not in crossing
    assert pickle.loads(crossing) == made  # noqa: S301
    assert pickle.loads(pickle.dumps(Broker("b:1", tls=True))) == Broker("b:1", tls=True)  # noqa: S301

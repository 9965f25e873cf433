"""The contract of notifiers, held by each that is registered, and what each of them posts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
from certificates import Authority
from pydantic import ValidationError
from receiver import NOW, alert, receiving

from pipelines.alerts.configuration import load_configuration
from pipelines.alerts.notifiers import NOTIFIERS, base
from pipelines.alerts.notifiers.base import NotificationError
from sotto.errors import ParameterError

SECRET = bytes(range(32))
PATH = "/hook?key=hidden-key"


def webhook(url, folder):
    (folder / "secret").write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    return {"url": url, "secret_file": "secret"}


def slack(url, folder):
    (folder / "url").write_text(f"{url}\n")
    return {"url_file": "url"}


#: Keys of a notifier that sends to a URL; files are written into a folder. A new one is a line.
CONFIGURED = {"webhook": webhook, "slack": slack}


@pytest.fixture(params=NOTIFIERS)
def made(request, tmp_path):
    """Makes the notifier that posts to a port of this machine."""

    def make(port, scheme="http", context=None):
        url = f"{scheme}://localhost:{port}{PATH}"
        keys = CONFIGURED[request.param](url, tmp_path)
        file = tmp_path / "alerts.yaml"
        file.write_text(json.dumps({"notify": {request.param: keys}}))
        found = load_configuration(file).notify
        assert list(found) == [request.param]
        found[request.param]._context = context
        return found[request.param]

    return make


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """TLS contexts: a server's on this machine, and a client's that trusts its certificate."""
    certified = Authority(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certified.certify("localhost"))
    trusting = ssl.create_default_context(cafile=str(certified.file))
    return SimpleNamespace(server=server, client=trusting)


def test_an_alert_is_posted_once_and_again_with_the_same_bytes(made):
    with receiving() as server:
        notifier = made(server.server_port)
        notifier.send(alert(), NOW)
        assert len(server.requests) == 1
        notifier.send(alert(), NOW)
    first, second = server.requests
    assert first == second
    assert (first.method, first.path) == ("POST", PATH)
    assert first.headers["Content-Type"] == "application/json"
    assert "colour red rose from 20 % by 10 points" in json.loads(first.body)["text"]


@pytest.mark.parametrize(("status", "why"), [(302, "redirects are not followed"), (500, "500")])
def test_an_answer_that_is_no_success_is_an_error_without_secrets(made, status, why):
    with receiving(status) as server:
        notifier = made(server.server_port)
        with pytest.raises(NotificationError, match=why) as refused:
            notifier.send(alert(), NOW)
    assert [each.path for each in server.requests] == [PATH]
    with pytest.raises(NotificationError, match="localhost: Connection refused") as away:
        notifier.send(alert(), NOW)
    for error in (refused, away):
        assert "hidden-key" not in str(error.value)


def test_a_certificate_is_checked(made, authority):
    with receiving(context=authority.server) as server:
        with pytest.raises(NotificationError, match="CERTIFICATE_VERIFY"):
            made(server.server_port, "https").send(alert(), NOW)
        made(server.server_port, "https", authority.client).send(alert(), NOW)
    assert len(server.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_answer_that_drips_is_given_up_after_a_time(made, monkeypatch, scheme, authority):
    """A byte at a time, instead of a status or of a TLS handshake."""
    monkeypatch.setattr(base, "TIMEOUT", 0.5)
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 2" if scheme == "http" else b"\x16\x03\x03")
                while not stopped.wait(0.05):
                    connection.sendall(b"x" if scheme == "http" else b"\x40")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        notifier = made(server.getsockname()[1], scheme, authority.client)
        with pytest.raises(NotificationError, match="no answer"):
            notifier.send(alert(), NOW)
        stopped.set()
        thread.join()


def test_keys_that_a_notifier_has_not_are_refused(made):
    notifier = made(9)
    with pytest.raises(ValidationError, match="Extra inputs"):
        type(notifier).model_validate({**notifier.model_dump(), "colour": "red"})


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost:hidden-key/",
        "https://localhost:99999/hidden-key",
        "https://a..b/hidden-key",
        "https://localhost/hidden-key\N{LATIN SMALL LETTER E WITH ACUTE}",
        "https://localhost/hidden key",
        "https://\N{ACCOUNT OF}:hidden-key@localhost/",
    ],
)
@pytest.mark.parametrize("name", NOTIFIERS)
def test_a_url_to_which_nothing_can_be_posted_is_refused_at_once_and_not_repeated(
    name, url, tmp_path
):
    """An error while alerts are sent would keep them from the other notifiers too."""
    file = tmp_path / "alerts.yaml"
    file.write_text(json.dumps({"notify": {name: CONFIGURED[name](url, tmp_path)}}))
    with pytest.raises(ParameterError, match="must be such as") as refused:
        load_configuration(file)
    assert "hidden" not in str(refused.value)


def test_a_webhook_is_signed_as_the_standard_has_it(tmp_path):
    with receiving() as server:
        keys = webhook(f"http://localhost:{server.server_port}{PATH}", tmp_path)
        notifier = NOTIFIERS["webhook"].model_validate(keys, context={"folder": tmp_path})
        notifier.send(alert(), NOW)
        unsigned = NOTIFIERS["webhook"].model_validate({"url": keys["url"]})
        unsigned.send(alert(), NOW)
    first, second = server.requests
    headers, body = first.headers, first.body
    assert json.loads(body)["type"] == "estimate.moved"
    assert json.loads(body)["data"] == alert().data()
    assert json.loads(body)["data"]["change"] == 0.1
    assert headers["webhook-id"] == "a1"
    assert headers["webhook-timestamp"] == "1767323040"
    signed = hmac.digest(SECRET, b"a1.1767323040." + body, hashlib.sha256)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
    assert "webhook-signature" not in second.headers
    assert second.body == body


def test_what_slack_would_read_as_markup_is_text(tmp_path):
    with receiving() as server:
        keys = slack(f"http://localhost:{server.server_port}{PATH}", tmp_path)
        notifier = NOTIFIERS["slack"].model_validate(keys, context={"folder": tmp_path})
        notifier.send(alert("<!channel> & co"), NOW)
    (sent,) = server.requests
    assert "colour &lt;!channel&gt; &amp; co rose" in json.loads(sent.body)["text"]

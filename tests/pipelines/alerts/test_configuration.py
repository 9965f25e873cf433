"""A configuration is checked as a whole before anything is sent."""

from __future__ import annotations

import pytest

from pipelines.alerts.configuration import Configuration, load_configuration
from pipelines.alerts.notifiers.slack import Slack
from pipelines.alerts.notifiers.webhook import Webhook
from sotto.errors import ParameterError

WHOLE = """
false_alarms_per_year: 2
metrics:
  - {metric: carrier, plan: departures, kinds: [share], items: [AA], segments: true, drift: 0.01}
settle: 7d
notify:
  webhook: {url: "https://hooks.example/sotto", secret_file: webhook.secret}
  slack: {url_file: slack.url}
"""


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "alerts.yaml"
    path.write_text(WHOLE)
    (tmp_path / "webhook.secret").write_text("A" * 44)
    (tmp_path / "slack.url").write_text("https://hooks.example/a")
    found = load_configuration(path)
    assert (found.false_alarms_per_year, found.settle) == (2.0, 7 * 86_400_000)
    assert (found.metrics[0].items, found.metrics[0].drift) == (("AA",), 0.01)
    assert isinstance(found.notify["webhook"], Webhook)
    assert found.notify["webhook"].secret_file == tmp_path / "webhook.secret"
    assert isinstance(found.notify["slack"], Slack)
    path.write_text("{}")
    assert load_configuration(path) == Configuration()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "the file must be a mapping"),
        ("a: [", "cannot be read as YAML: line 1"),
        ("# \udcff", "cannot be read as YAML: it is not UTF-8"),
        pytest.param("[" * 9999, "cannot be read as YAML: maximum recursion", id="deep"),
        ("false_alarms_per_year: 0", "false_alarms_per_year: input should be greater than 0"),
        ("metrics: []", "metrics must be a list of one or more"),
        ("holidays: a", "holidays must be a list, such as"),
        ("ruls: []", "unknown key ruls; its keys are false_alarms_per_year, metrics, settle, "),
        ("metrics: [{metric: a, kinds: [cdf]}]", r"metrics.1.kinds.1: input should be 'share'"),
        ("metrics: [{kinds: [mean]}]", r"metrics.1.metric is missing$"),
        ("notify: {webhook: {uri: a}}", "unknown key notify.webhook.uri; its keys are url, "),
        ("notify: {webhook: {url: 'http://hooks.example'}}", "must begin with https://"),
        ("notify: {webhook: {url: 'https://u:p@hooks.example'}}", "no user, password or fragment"),
        ("notify: {webhook: {url: 'hooks.example'}}", "such as https://hooks.example/sotto"),
        ("notify: {email: {host: h}}", "unknown key notify.email; its keys are webhook, "),
        ("{metric: a, metrics: [{metric: a}]}", "unknown key metric; did you mean 'metrics'"),
        ("settle: soon", "must be a duration"),
        ("holidays: [{name: a, first: 2026-13-01}]", "cannot be read as YAML: month must be"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, why):
    path = tmp_path / "alerts.yaml"
    path.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(ParameterError, match=why):
        load_configuration(path)


@pytest.mark.parametrize(
    ("notify", "secret", "why"),
    [
        ("webhook: {url: 'https://a.example', secret_file: f}", b"c2hvcnQ=", "24 to 64 random"),
        ("webhook: {url: 'https://a.example', secret_file: f}", b"no base 64", "openssl rand"),
        ("webhook: {url: 'https://a.example', secret_file: f}", b"\xff", "text in UTF-8"),
        ("slack: {url_file: f}", b"http://hidden.example", "must begin with https://"),
        ("slack: {url_file: f}", b"\xff", "text in UTF-8"),
        ("slack: {url_file: f}", None, "cannot be read: No such file"),
    ],
)
def test_secrets_in_files_are_read_first_and_never_shown(tmp_path, notify, secret, why):
    path = tmp_path / "alerts.yaml"
    path.write_text(f"notify: {{{notify}}}")
    if secret is not None:
        (tmp_path / "f").write_bytes(secret)
    with pytest.raises(ParameterError, match=why) as found:
        load_configuration(path)
    assert str(tmp_path / "f") in str(found.value)
    assert "hidden" not in str(found.value)

"""A configuration is checked as a whole before anything is sent."""

from __future__ import annotations

import pytest

from pipelines.alerts.configuration import Configuration, load_configuration, secret_in
from sotto.errors import ParameterError

WHOLE = """
false_alarms_per_year: 2
metrics:
  - {metric: carrier, plan: departures, kinds: [share], items: [AA], segments: true, drift: 0.01}
settle: 7d
notify:
  webhook: {url: "https://hooks.example/sotto", secret_file: webhook.secret}
"""


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "alerts.yaml"
    path.write_text(WHOLE)
    found = load_configuration(path)
    assert (found.false_alarms_per_year, found.settle) == (2.0, 7 * 86_400_000)
    assert found.metrics is not None
    assert (found.metrics[0].items, found.metrics[0].drift) == (("AA",), 0.01)
    webhook = found.notify.webhook
    assert webhook is not None
    assert webhook.secret_file == tmp_path / "webhook.secret"
    path.write_text("{}")
    assert load_configuration(path) == Configuration()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "must be a YAML mapping with keys of false_alarms_per_year, metrics"),
        ("a: [", "cannot be read as YAML: line 1"),
        ("false_alarms_per_year: 0", "false_alarms_per_year: input should be greater than 0"),
        ("metrics: []", "metrics: "),
        ("metrics: [{metric: a, kinds: [cdf]}]", r"metrics.1.kinds.1: input should be 'share'"),
        ("metrics: [{kinds: [mean]}]", "metrics.1.metric is missing"),
        ("notify: {webhook: {uri: a}}", "unknown key notify.webhook.uri"),
        ("notify: {webhook: {url: 'http://hooks.example'}}", "must begin with https://"),
        ("notify: {webhook: {url: 'https://u:p@hooks.example'}}", "no user, password or fragment"),
        ("notify: {webhook: {url: 'hooks.example'}}", "such as https://hooks.example/sotto"),
        ("notify: {email: {host: h}}", "unknown key notify.email"),
        ("settle: soon", "must be a duration"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, why):
    path = tmp_path / "alerts.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=why):
        load_configuration(path)


def test_secrets_are_read_from_files(tmp_path):
    path = tmp_path / "secret"
    path.write_text("c2hvcnQ=")
    with pytest.raises(ParameterError, match="24 to 64 random bytes in base 64"):
        secret_in(path)
    path.write_text("no base 64")
    with pytest.raises(ParameterError, match="openssl rand"):
        secret_in(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ParameterError, match="openssl rand"):
        secret_in(path)

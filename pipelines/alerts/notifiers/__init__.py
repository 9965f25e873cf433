"""The notifiers, which send alerts, each by its key in the configuration's ``notify``."""

from __future__ import annotations

from pipelines.alerts.notifiers.base import Notifier
from pipelines.alerts.notifiers.slack import Slack
from pipelines.alerts.notifiers.webhook import Webhook

#: By key. A new notifier is a module of this folder and a line here.
NOTIFIERS: dict[str, type[Notifier]] = {"webhook": Webhook, "slack": Slack}

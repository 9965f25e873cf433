"""The configuration of alerts: a YAML file, checked before anything is read or sent."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
)

from sotto.errors import ParameterError
from sotto.plan.document import yaml_reason
from sotto.plan.scalars import Duration

#: Kinds of estimates that can be watched, and those that are unless others are named.
Kind = Literal["share", "group", "mean", "missing", "bit", "string"]
KINDS: tuple[Kind, ...] = ("share", "group", "mean", "missing")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Bytes of a secret, as the Standard Webhooks specification has it.
_LEAST_SECRET, _MOST_SECRET = 24, 64


class _Model(BaseModel):
    """A mapping of the file: unknown keys are refused, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricWatched(_Model):
    """A metric whose figures are watched."""

    metric: StrictStr
    #: Of one plan; of every plan that has the metric if not given.
    plan: StrictStr | None = None
    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1)
    #: All if not given.
    items: tuple[StrictStr, ...] | None = Field(default=None, min_length=1)
    #: Whether each segment is watched by itself, instead of all reports together.
    segments: StrictBool = False
    #: Standard deviation of a change from one window to the next, in the figure's unit; learned if
    #: not given.
    drift: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.username is not None or parts.fragment:
        raise ValueError("must have no user, password or fragment")
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError("must be such as https://hooks.example/sotto")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("must begin with https://, but on this machine alone")
    return url


class WebhookFile(_Model):
    """Where alerts are posted, as the Standard Webhooks specification has it."""

    url: Annotated[StrictStr, AfterValidator(_https)]
    #: With which messages are signed, in base 64; not signed if not given.
    secret_file: Path | None = None


class NotifyFile(_Model):
    """Who is told."""

    webhook: WebhookFile | None = None


class Configuration(_Model):
    """What is watched, how often an alert may be false, and who is told of it."""

    #: Expected number of false alarms of all watched figures together.
    false_alarms_per_year: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    #: All metrics if not given.
    metrics: tuple[MetricWatched, ...] | None = Field(default=None, min_length=1)
    #: How long after its end a window is judged; if not given, when its last level is due.
    settle: Duration | None = None
    notify: NotifyFile = NotifyFile()


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in a file; paths in it are relative to its folder.

    Raises ParameterError, with all that is wrong and what is expected, if it is none.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ParameterError(f"{path} cannot be read as YAML: {yaml_reason(error)}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path} cannot be read as YAML: it is not UTF-8") from None
    if not isinstance(document, dict):
        names = ", ".join(Configuration.model_fields)
        raise ParameterError(f"{path} must be a YAML mapping with keys of {names}")
    try:
        found = Configuration.model_validate(document)
    except ValidationError as error:
        raise ParameterError("\n".join(f"{path}: {line}" for line in _lines(error))) from None
    return _beside(found, path.parent)


def _beside(found: Configuration, folder: Path) -> Configuration:
    """Return a configuration whose files are named from this folder."""
    webhook = found.notify.webhook
    if webhook is None or webhook.secret_file is None:
        return found
    webhook = webhook.model_copy(update={"secret_file": folder / webhook.secret_file})
    return found.model_copy(update={"notify": NotifyFile.model_construct(webhook=webhook)})


def _lines(error: ValidationError) -> list[str]:
    """Return a line a problem: where it is, and what is expected."""
    found = []
    for each in error.errors(include_url=False):
        place = ".".join(f"{part + 1}" if isinstance(part, int) else part for part in each["loc"])
        if each["type"] == "missing":
            found.append(f"{place} is missing")
        elif each["type"] == "extra_forbidden":
            found.append(f"unknown key {place}")
        else:
            message = each["msg"].removeprefix("Value error, ")
            found.append(f"{place}: {message[:1].lower()}{message[1:]}" if place else message)
    return found


def secret_in(path: Path) -> bytes:
    """Return the secret in a file, which has it in base 64, with ``whsec_`` before it or not."""
    try:
        text = path.read_text(encoding="utf-8").strip().removeprefix("whsec_")
        secret = base64.b64decode(text, validate=True)
    except ValueError:
        secret = b""
    if not _LEAST_SECRET <= len(secret) <= _MOST_SECRET:
        raise ParameterError(
            f"{path} must have {_LEAST_SECRET} to {_MOST_SECRET} random bytes in base 64; "
            f"'openssl rand -base64 32' prints such"
        )
    return secret

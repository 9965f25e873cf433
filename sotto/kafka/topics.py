"""Topics: their names, the settings that they need, and what is wrong with one.

A topic of reports has its epoch and its number of partitions in its name, ``reports-e1-p8``:
whoever has the name sends every message to the same partition. The number never changes; another
number needs a new epoch, once the old topic is read to its end.

Beside them, and outliving their epochs, are ``reports-estimates``, ``reports-quarantine`` and
``reports-requeue``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sotto.errors import ParameterError
from sotto.plan.durations import duration_text
from sotto.wire.format import MAX_MESSAGE

MAX_PARTITIONS = 65536
#: Bytes that surround a message in a batch of one, generously.
MAX_BATCH = MAX_MESSAGE + 4096

#: A document about a string metric of some ten thousand candidates fits.
MAX_DOCUMENT = 8 << 20
KINDS = ("estimates", "quarantine", "requeue")

_DAY = 86_400_000
_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,199})-e(?P<epoch>\d+)-p(?P<partitions>\d+)"
)
#: Compressions that aggregators can read. With ``producer`` whoever may write could stop them by
#: one batch.
_COMPRESSED = ("zstd", "gzip")


@dataclass(frozen=True)
class ReportTopic:
    """A topic of reports: its name without epoch and partitions, its epoch, their number.

    Examples
    --------
    >>> topic = ReportTopic("fleet", epoch=2, partitions=8)
    >>> print(topic, topic.partition(61), ReportTopic.parse("fleet-e2-p8") == topic)
    fleet-e2-p8 5 True
    """

    name: str
    epoch: int
    partitions: int

    def __post_init__(self) -> None:
        if not self.epoch >= 1:
            raise ParameterError(f"epoch {self.epoch} must be at least 1")
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise ParameterError(f"partitions {self.partitions} must be in [1, {MAX_PARTITIONS}]")
        if not _NAME.fullmatch(str(self)):
            raise ParameterError(
                f"topic name {self.name!r} must be 1 to 200 letters, digits, '.', '_' and '-', "
                "a letter or digit first"
            )

    @classmethod
    def parse(cls, text: str) -> ReportTopic:
        """Return the topic of this full name; raises ParameterError if it is none."""
        match = _NAME.fullmatch(text)
        topic = match and cls(match["name"], int(match["epoch"]), int(match["partitions"]))
        if topic is None or str(topic) != text:
            raise ParameterError(
                f"topic {text!r} must be a full name, with epoch and partitions, such as "
                "'reports-e1-p8'; sotto topics create makes one and says its name"
            )
        return topic

    def __str__(self) -> str:
        return f"{self.name}-e{self.epoch}-p{self.partitions}"

    def partition(self, shard: int) -> int:
        """Return the partition of a shard."""
        return shard % self.partitions

    def settings(self, retention: int) -> dict[str, str]:
        """Return the settings that the topic is made with; records stay so many ms."""
        return {
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
            "compression.type": "zstd",
            "retention.ms": str(retention),
            "retention.bytes": "-1",
            "max.message.bytes": str(2 * MAX_MESSAGE),
            "unclean.leader.election.enable": "false",
        }

    def faults(self, found: FoundTopic, horizon: int, *, reading: bool = False) -> list[str]:
        """Return what keeps the topic from being used, each with what to do.

        Records must stay for the horizon, the milliseconds for which plans accept reports of an
        event. To a topic that is only read partitions may have been added: nobody sends to them,
        and those in its name must be counted all the same.
        """
        settings, needs = found.settings, self.settings(horizon)
        wrong = []
        added = found.partitions > self.partitions
        if found.partitions != self.partitions and not (reading and added):
            wrong.append(
                f"it has {found.partitions} partitions, not {self.partitions}: reports of one "
                "device would be in two; leave it and create the next epoch"
            )
        for fault in _unequal(found, needs, "message.timestamp.type"):
            much = "what it holds has the senders' times: create the next epoch if that is much"
            wrong.append(f"{fault}; {much}")
        wrong += _unequal(found, needs, "cleanup.policy")
        retention = int(settings.get("retention.ms", "0"))
        if 0 <= retention < horizon:
            wrong.append(
                f"records stay for {duration_text(retention)}, plans accept reports for "
                f"{duration_text(horizon)}: set retention.ms to at least {horizon}"
            )
        wrong += _unequal(found, needs, "retention.bytes")
        return wrong + _common_faults(found, MAX_BATCH)


@dataclass(frozen=True)
class FoundTopic:
    """A topic as a broker has it."""

    partitions: int
    #: The least of any partition.
    replicas: int
    #: By the names that Kafka gives them.
    settings: Mapping[str, str]
    #: Another one for every topic that there ever was, whatever it is called.
    id: str = ""


@dataclass(frozen=True)
class Stay:
    """How long plans have things stay, in milliseconds."""

    #: For how long they accept reports of an event.
    horizon: int
    #: For how long what was rejected is kept.
    retention: int

    @property
    def given_back(self) -> int:
        """How old a record that is given back may be until it has been counted."""
        return self.horizon + self.retention


@dataclass(frozen=True)
class SinkTopic:
    """A topic beside the reports of a name, of one of the :data:`KINDS`.

    Examples
    --------
    >>> print(SinkTopic("fleet", "estimates"), SinkTopic.parse("fleet-requeue").kind)
    fleet-estimates requeue
    """

    name: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"kind {self.kind!r} must be one of {', '.join(KINDS)}")
        ReportTopic(self.name, epoch=1, partitions=1)

    @classmethod
    def parse(cls, text: str) -> SinkTopic:
        """Return the topic of this full name; raises ParameterError if it is none."""
        name, dash, kind = text.rpartition("-")
        if not dash or kind not in KINDS:
            # A database's URL, given in its place, can hold a password.
            shown = re.sub("//.*@", "//...@", text)
            raise ParameterError(
                f"topic {shown!r} must be the name of the reports' topics followed by "
                f"{', '.join('-' + kind for kind in KINDS)}, such as 'reports-estimates'; "
                "sotto topics create --sinks makes them"
            )
        return cls(name, kind)

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"

    def settings(self, stay: Stay) -> dict[str, str]:
        """Return the settings that the topic is made with."""
        settings = {
            "compression.type": "zstd",
            "retention.bytes": "-1",
            "unclean.leader.election.enable": "false",
        }
        if self.kind == "estimates":
            return settings | {
                "cleanup.policy": "compact",
                "message.timestamp.type": "LogAppendTime",
                "max.message.bytes": str(MAX_DOCUMENT),
            }
        settings |= {"cleanup.policy": "delete", "max.message.bytes": str(2 * MAX_MESSAGE)}
        if self.kind == "quarantine":
            # A segment is deleted whole: without this the oldest record would stay a week longer.
            roll = str(max(60_000, min(_DAY, stay.retention // 8)))
            return settings | {
                "message.timestamp.type": "LogAppendTime",
                "retention.ms": str(stay.retention),
                "segment.ms": roll,
            }
        return settings | {
            "message.timestamp.type": "CreateTime",
            "retention.ms": str(stay.given_back),
        }

    def faults(self, found: FoundTopic, stay: Stay) -> list[str]:
        """Return what keeps the topic from being used, each with what to do."""
        names = ["cleanup.policy", "message.timestamp.type"]
        names += ["retention.bytes"] if self.kind != "estimates" else []
        wrong = _unequal(found, self.settings(stay), *names)
        wrong += _common_faults(found, MAX_DOCUMENT if self.kind == "estimates" else MAX_BATCH)
        if self.kind == "quarantine":
            wrong += _not_kept_for(found, stay.retention)
        if self.kind == "requeue":
            wrong += _deleted_uncounted(found, stay.given_back)
        return wrong


def _common_faults(found: FoundTopic, largest: int) -> list[str]:
    """Return what keeps any topic from being used: its size, who reads it, what it confirms."""
    settings = found.settings
    wrong = []
    if int(settings.get("max.message.bytes", "0")) < largest:
        wrong.append(_set("max.message.bytes", settings, f"at least {largest}"))
    if settings.get("compression.type") not in _COMPRESSED:
        wrong.append(_set("compression.type", settings, "zstd"))
    confirming, enough = int(settings.get("min.insync.replicas", "1")), found.replicas // 2 + 1
    if not enough <= confirming <= found.replicas:
        wrong.append(
            f"min.insync.replicas is {confirming} of {found.replicas}: set it to {enough}, so that "
            "what was acknowledged outlives a broker"
        )
    election = "unclean.leader.election.enable"
    return wrong + _unequal(found, {election: "false"}, election)


def _unequal(found: FoundTopic, needs: Mapping[str, str], *names: str) -> list[str]:
    """Return which of these settings are not as they must be."""
    settings = found.settings
    return [
        _set(name, settings, needs[name]) for name in names if settings.get(name) != needs[name]
    ]


def _set(name: str, settings: Mapping[str, str], wanted: str) -> str:
    return f"{name} is {settings.get(name, 'not known')}: set it to {wanted}"


def _not_kept_for(found: FoundTopic, retention: int) -> list[str]:
    stays = int(found.settings.get("retention.ms", "0"))
    if stays == retention:
        return []
    text = "for ever" if stays < 0 else f"for {duration_text(stays)}"
    return [
        f"rejected reports stay {text}, plans want {duration_text(retention)}: "
        f"set retention.ms to {retention}"
    ]


def _deleted_uncounted(found: FoundTopic, longest: int) -> list[str]:
    """Records bear the times at which they were first appended, by which retention counts."""
    wrong = []
    if 0 <= (stays := int(found.settings.get("retention.ms", "0"))) < longest:
        wrong.append(
            f"records stay for {duration_text(stays)}, and may be {duration_text(longest)} old "
            f"when they are given back: set retention.ms to at least {longest}"
        )
    before = "message.timestamp.before.max.ms"
    if int(found.settings.get(before, str(longest))) < longest:
        wrong.append(f"{before} is {found.settings[before]}: set it to at least {longest}")
    return wrong

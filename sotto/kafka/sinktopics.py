"""Topics beside those of reports: estimates, what was rejected, and what is given back.

They belong to the name of the reports' topics and outlive its epochs: ``reports-estimates``,
``reports-quarantine`` and ``reports-requeue`` of ``reports-e1-p8``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sotto.errors import ParameterError
from sotto.kafka.topics import MAX_BATCH, FoundTopic, ReportTopic, common_faults
from sotto.plan.durations import duration_text
from sotto.wire.format import MAX_MESSAGE

#: A document about a string metric of some ten thousand candidates fits.
MAX_DOCUMENT = 8 << 20
KINDS = ("estimates", "quarantine", "requeue")
_DAY = 86_400_000


@dataclass(frozen=True)
class SinkTopic:
    """A topic beside the reports of a name.

    Parameters
    ----------
    name : str
        That of the reports' topics, without epoch and partitions.
    kind : str
        ``estimates``, ``quarantine`` or ``requeue``.

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
        """Return the topic of this full name.

        Raises
        ------
        ParameterError
            It is no full name.
        """
        name, dash, kind = text.rpartition("-")
        if not dash or kind not in KINDS:
            raise ParameterError(
                f"topic {text!r} must be the name of the reports' topics followed by "
                f"{', '.join('-' + kind for kind in KINDS)}, such as 'reports-estimates'; "
                "sotto topics create --sinks makes them"
            )
        return cls(name, kind)

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"


@dataclass(frozen=True)
class Stay:
    """How long plans have things stay, in milliseconds.

    Parameters
    ----------
    horizon : int
        For how long they accept reports of an event.
    retention : int
        For how long what was rejected is kept.
    """

    horizon: int
    retention: int

    @property
    def given_back(self) -> int:
        """How old a record that is given back may be until it has been counted."""
        return self.horizon + self.retention


def settings_for(topic: SinkTopic, stay: Stay) -> dict[str, str]:
    """Return the settings that a topic is made with."""
    settings = {
        "compression.type": "zstd",
        "retention.bytes": "-1",
        "unclean.leader.election.enable": "false",
    }
    if topic.kind == "estimates":
        return settings | {
            "cleanup.policy": "compact",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MAX_DOCUMENT),
        }
    settings |= {"cleanup.policy": "delete", "max.message.bytes": str(2 * MAX_MESSAGE)}
    if topic.kind == "quarantine":
        # A segment is deleted as a whole: without this the oldest record would stay a week longer.
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


def faults(topic: SinkTopic, found: FoundTopic, stay: Stay) -> list[str]:
    """Return what keeps a topic from being used, each with what to do; empty if nothing does."""
    says, needs = found.settings, settings_for(topic, stay)
    exact = ["cleanup.policy", "message.timestamp.type"]
    if topic.kind != "estimates":
        exact.append("retention.bytes")
    wrong = [
        f"{name} is {says.get(name, 'not known')}: set it to {needs[name]}"
        for name in exact
        if says.get(name) != needs[name]
    ]
    least = MAX_DOCUMENT if topic.kind == "estimates" else MAX_BATCH
    if int(says.get("max.message.bytes", "0")) < least:
        wrong.append(
            f"max.message.bytes is {says.get('max.message.bytes', 'not known')}: "
            f"set it to at least {least}"
        )
    if topic.kind == "quarantine":
        wrong += _not_kept_for(found, stay.retention)
    if topic.kind == "requeue":
        wrong += _deleted_uncounted(found, stay.given_back)
    return wrong + common_faults(found)


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

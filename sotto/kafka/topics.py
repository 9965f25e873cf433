"""Topics of reports: what they are called, which settings they need, and what is wrong with one.

A topic's name says its epoch and its number of partitions, ``reports-e1-p8``: whoever has the name
sends every message to the partition that all others mean. The number never changes; a new one
comes with a new epoch, once the old topic is aggregated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sotto.errors import ParameterError
from sotto.plan.durations import duration_text
from sotto.wire.format import MAX_MESSAGE

MAX_PARTITIONS = 65536
#: What surrounds a message in a batch of one, generously.
MAX_BATCH = MAX_MESSAGE + 4096

_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,199})-e(?P<epoch>\d+)-p(?P<partitions>\d+)"
)
#: What aggregators can read. With ``producer`` whoever may write could stop them by one batch.
_COMPRESSED = ("zstd", "gzip")


@dataclass(frozen=True)
class ReportTopic:
    """A topic of reports.

    Parameters
    ----------
    name : str
        At most 200 letters, digits, ``.``, ``_`` and ``-``, the first a letter or digit.
    epoch : int, at least 1
    partitions : int in [1, 65536]

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
        """Return the topic of this full name.

        Raises
        ------
        ParameterError
            It is no full name.
        """
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


@dataclass(frozen=True)
class FoundTopic:
    """What a broker says of a topic.

    Attributes
    ----------
    partitions, replicas : int
        ``replicas`` is the least of any partition.
    settings : mapping of str to str
        By the names that Kafka gives them.
    id : str
        Another one for every topic that there ever was, whatever it is called.
    """

    partitions: int
    replicas: int
    settings: Mapping[str, str]
    id: str = ""


def settings_for(retention: int) -> dict[str, str]:
    """Return the settings that a topic of reports is made with.

    Parameters
    ----------
    retention : int
        Milliseconds for which a record stays after it was appended.
    """
    return {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "compression.type": "zstd",
        "retention.ms": str(retention),
        "retention.bytes": "-1",
        "max.message.bytes": str(2 * MAX_MESSAGE),
        "unclean.leader.election.enable": "false",
    }


def faults(
    topic: ReportTopic, found: FoundTopic, horizon: int, *, reading: bool = False
) -> list[str]:
    """Return what keeps a topic from being used, each with what to do; empty if nothing does.

    Parameters
    ----------
    topic : ReportTopic
    found : FoundTopic
    horizon : int
        Milliseconds for which plans accept reports of an event: records must stay as long.
    reading : bool
        Whether the topic is only read. Nobody sends to partitions that were added to it, and what
        is in the others must be counted all the same.
    """
    says = found.settings
    wrong = []
    added = found.partitions > topic.partitions
    if found.partitions != topic.partitions and not (reading and added):
        wrong.append(
            f"it has {found.partitions} partitions, not {topic.partitions}: reports of one device "
            "would be in two; let it be and create the next epoch"
        )
    if says.get("message.timestamp.type") != "LogAppendTime":
        wrong.append(
            _set("message.timestamp.type", says, "LogAppendTime")
            + "; what it holds has the senders' times: create the next epoch if that is much"
        )
    if says.get("cleanup.policy") != "delete":
        wrong.append(_set("cleanup.policy", says, "delete"))
    retention = int(says.get("retention.ms", "0"))
    if 0 <= retention < horizon:
        wrong.append(
            f"records stay for {duration_text(retention)}, plans accept reports for "
            f"{duration_text(horizon)}: set retention.ms to at least {horizon}"
        )
    if says.get("retention.bytes") != "-1":
        wrong.append(_set("retention.bytes", says, "-1"))
    if int(says.get("max.message.bytes", "0")) < MAX_BATCH:
        wrong.append(_set("max.message.bytes", says, f"at least {MAX_BATCH}"))
    return wrong + common_faults(found)


def common_faults(found: FoundTopic) -> list[str]:
    """Return what keeps any topic from being used: who reads it, and what it confirms."""
    says = found.settings
    wrong = []
    if says.get("compression.type") not in _COMPRESSED:
        wrong.append(_set("compression.type", says, "zstd"))
    confirming, enough = int(says.get("min.insync.replicas", "1")), found.replicas // 2 + 1
    if not enough <= confirming <= found.replicas:
        wrong.append(
            f"min.insync.replicas is {confirming} of {found.replicas}: set it to {enough}, so that "
            "what was acknowledged outlives a broker"
        )
    if says.get("unclean.leader.election.enable") != "false":
        wrong.append(_set("unclean.leader.election.enable", says, "false"))
    return wrong


def _set(name: str, says: Mapping[str, str], wanted: str) -> str:
    return f"{name} is {says.get(name, 'not known')}: set it to {wanted}"

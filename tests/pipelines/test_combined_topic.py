"""The sum of shares in a topic of estimates: what is published when, and what the topic knows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drain_logs import faulty, honest
from fake_kafka import FakeCluster, install
from step_plans import plans
from test_combine import NAME, chain, publish, share_of, states

from pipelines.combine import Combined, combine
from pipelines.combinedtopic import CombinedTopic
from pipelines.commit import StateDirectory
from pipelines.drain import drain
from pipelines.estimates import Candidates
from pipelines.publication import documents_of
from pipelines.published import HealthDocument, WindowDocument, parse
from pipelines.publishing import EstimatesTopic
from pipelines.results import Projection
from sotto.brokers import Broker
from sotto.cli import main
from sotto.cli.combine import _follow
from sotto.errors import BrokerError
from sotto.sinktopics import SinkTopic
from sotto.topics import FoundTopic


class KeptTopic(EstimatesTopic):
    """A topic of estimates in memory, not compacted; ``fails`` is what its broker says."""

    def __init__(self) -> None:
        super().__init__(Broker("fake:9092"), SinkTopic("reports", "estimates"))
        self.kept: list[SimpleNamespace] = []
        self.id = "one"
        self.fails = ""
        self.read = 0

    def found(self) -> FoundTopic:
        if self.fails:
            raise BrokerError(self.fails)
        return FoundTopic(1, 1, {}, self.id)

    def records(self, partitions: int, begin: Mapping[str, int]) -> Iterator[Any]:  # type: ignore[override]
        for record in self.kept[begin.get("0", 0) :]:
            self.read += 1
            yield record

    def send(
        self,
        changed: Projection,
        collector: str,
        before: int | None,
        health: tuple[bytes, bytes],
        stamps: list[tuple[str, bytes]],
    ) -> dict[str, int]:
        for key, value in [*documents_of(changed, collector, before), health]:
            at = len(self.kept)
            self.kept.append(
                SimpleNamespace(key=key, value=value, headers=stamps, partition=0, offset=at)
            )
        return {"0": len(self.kept)}

    def told(self) -> dict[bytes, Any]:
        """Return what a reader has: of each key the document of the highest revision."""
        found: dict[bytes, Any] = {}
        for record in self.kept:
            document = parse(record.key, record.value)
            if record.key not in found or found[record.key].revision < document.revision:
                found[record.key] = document
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster(NAME)
    install(monkeypatch, made)
    return made


class Shares:
    """Two shares, and what combines them."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.database = f"sqlite:///{folder / 'all.db'}"
        self.topic = KeptTopic()
        self.start()

    def start(self) -> None:
        """Begin a process that combines, which remembers nothing."""
        self.publish = CombinedTopic(self.topic)

    def send(self, *seeds: int) -> None:
        publish(self.cluster, [chain(seed, shard=seed % 2) for seed in seeds])

    def take(self, *seeds: int) -> None:
        """Let both take some more reports."""
        self.send(*seeds)
        self.drain()

    def drain(self) -> None:
        for share in ("1/2", "2/2"):
            share_of(self.cluster, share, self.folder)

    def combine(self, candidates: Candidates | None = None) -> Combined:
        given = states(self.folder, 2)
        return combine(given, plans(), self.database, candidates, self.publish)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two shares that have taken a report each."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        cluster = FakeCluster(NAME)
        install(patch, cluster)
        Shares(cluster, folder).take(0, 1)
    return folder


@pytest.fixture
def shares(cluster: FakeCluster, begun: Path, tmp_path: Path) -> Shares:
    """Shares that have taken a report each."""
    for state in states(begun, 2):
        shutil.copytree(state, tmp_path / state.name)
    made = Shares(cluster, tmp_path)
    made.send(0, 1)
    return made


def content(topic: KeptTopic) -> dict[bytes, object]:
    """Return what a reader has, but names and numbers of generations."""
    found: dict[bytes, object] = {}
    for key, document in topic.told().items():
        said = dict(vars(document))
        del said["job"], said["revision"]
        if isinstance(document, WindowDocument):
            said["window"] = {**document.window, "revision": None}
            said["estimates"] = [{**row, "revision": None} for row in document.estimates]
            del said["pane"]
        if isinstance(document, HealthDocument):
            # A share that is behind another keeps states that one process would have dropped.
            states = dict.fromkeys(("chains", "pseudonyms", "state_bytes"))
            said["health"] = {**document.health, **states}
        found[key] = said
    return found


@pytest.mark.slow
def test_the_topic_has_what_one_process_would_have_published(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    shares = Shares(cluster, tmp_path)
    sent = sorted(honest(8, 3, 31) + faulty(32))
    half = len(sent) // 2
    for part in (sent[:half], sent[half:]):
        publish(shares.cluster, part)
        shares.drain()
        assert shares.combine().unpublished == ""
    whole = KeptTopic()
    drain(shares.cluster.source(), shares.folder / "one", plans(), publish=whole)
    assert content(shares.topic) == content(whole)
    jobs = {document.job for document in shares.topic.told().values()}
    assert len(jobs) == 1
    assert jobs != {document.job for document in whole.told().values()}


@pytest.mark.slow
def test_only_what_has_changed_is_published_also_after_a_restart(shares: Shares) -> None:
    shares.combine()
    first = len(shares.topic.kept)
    assert first >= 4
    for restarted in (False, True):
        if restarted:
            shares.start()
        shares.combine()
        assert len(shares.topic.kept) == first
    publish(shares.cluster, [chain(2, shard=1)])
    share_of(shares.cluster, "2/2", shares.folder)
    shares.start()
    shares.combine()
    new = [parse(record.key, record.value) for record in shares.topic.kept[first:]]
    assert {document.revision for document in new if not isinstance(document, WindowDocument)} == {
        3
    }
    (health,) = [document for document in new if isinstance(document, HealthDocument)]
    assert health.health["counted"] == 3
    # One that goes on has no need to read what it has sent.
    read = shares.topic.read
    shares.take(3)
    shares.combine()
    assert shares.topic.read == read


def test_what_was_published_in_part_is_published_again(shares: Shares) -> None:
    """The document about health comes last: without it nothing is known to be there."""
    shares.combine()
    whole = list(shares.topic.kept)
    del shares.topic.kept[-1]
    shares.start()
    shares.combine()
    again = shares.topic.kept[len(whole) - 1 :]
    assert [(each.key, each.value) for each in again] == [(each.key, each.value) for each in whole]


def test_a_topic_that_was_made_again_is_given_everything(shares: Shares) -> None:
    shares.combine()
    before = content(shares.topic)
    shares.topic.kept, shares.topic.id = [], "two"
    shares.combine()
    assert content(shares.topic) == before


def test_a_database_that_was_lost_changes_nothing_in_the_topic(shares: Shares) -> None:
    shares.combine()
    number = len(shares.topic.kept)
    (shares.folder / "all.db").unlink()
    assert shares.combine().changed
    assert len(shares.topic.kept) == number


def test_a_topic_out_of_reach_holds_nothing_up(
    shares: Shares, capsys: pytest.CaptureFixture[str]
) -> None:
    shares.topic.fails = "no broker"
    found = shares.combine()
    assert (found.changed, found.windows, found.unpublished) == (True, 1, "no broker")
    shares.topic.fails = ""
    assert shares.combine() == Combined((1, 1))
    assert shares.topic.kept

    def once() -> Combined:
        stopped.up = True
        return found

    stopped = SimpleNamespace(up=False)
    stopped.is_set, stopped.wait = lambda: stopped.up, lambda seconds: None
    _follow(once, stopped, 0)  # type: ignore[arg-type]
    said = "generation 2 is committed, but not published: no broker; it is tried again"
    assert capsys.readouterr().err == f"sotto: error: {said}\n"


@pytest.mark.slow
def test_a_share_restored_from_a_copy_publishes_nothing(shares: Shares) -> None:
    """Also where it has gone on, another way, as far as the one that it was copied from."""
    state, copy = shares.folder / "state-2-2", shares.folder / "copy"
    shutil.copytree(state, copy)
    shares.take(3)
    shares.combine()
    before = content(shares.topic)
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    (shares.folder / "all.db").unlink()
    told = "state directory of share 2/2, at its generation 1, does not know"
    shares.start()
    assert told in shares.combine().unpublished
    publish(shares.cluster, [chain(5, shard=1)])
    shares.drain()
    assert StateDirectory(state).manifest().generation == 2
    assert "at its generation 2, does not know" in shares.combine().unpublished
    assert content(shares.topic) == before


@pytest.mark.slow
def test_a_commit_while_it_is_published_is_read_again(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shares.topic.found
    meanwhile = iter([True])

    def later() -> FoundTopic:
        if next(meanwhile, False):
            shares.take(2, 3)
        return found()

    monkeypatch.setattr(shares.topic, "found", later)
    done = shares.combine()
    assert (done.generations, done.changed, done.unpublished) == ((2, 2), True, "")
    (health,) = [each for each in shares.topic.told().values() if isinstance(each, HealthDocument)]
    assert (health.revision, health.health["counted"]) == (4, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--publish", "reports-estimates"], "--publish-broker is missing"),
        (["--publish-broker", "client.json"], "--publish-broker goes with --publish"),
        (["--publish", "reports-quarantine", "--publish-broker", "BROKER"], "one of estimates"),
    ],
)
def test_what_is_missing_is_told(
    tmp_path: Path, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "client.json").write_text('{"servers": "127.0.0.1:1"}')
    (tmp_path / "plan.json").write_bytes(plans()[0].to_json())
    given = [word.replace("BROKER", str(tmp_path / "client.json")) for word in given]
    where = ["--state", str(tmp_path), "--database", "sqlite:///x.db"]
    assert main(["combine", "--plan", str(tmp_path / "plan.json"), *where, *given]) == 2
    assert message in capsys.readouterr().err

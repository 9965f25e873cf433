"""Shares of a topic in several state directories, and their results in one database."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from drain_logs import START, Device, Sent, faulty, honest
from drain_states import projected
from fake_kafka import FakeCluster, install
from requeued import BOTH, FIRST_PLAN, reports
from step_plans import DAY, plans

from pipelines import files, quarantine
from pipelines.combine import Combined, combine
from pipelines.commit import StateDirectory
from pipelines.drain import DrainResult, drain
from pipelines.manifest import Manifest
from pipelines.requeue import requeue
from pipelines.results import QUARANTINE, ProjectionError, Results
from pipelines.shares import Share
from sotto.cli import main
from sotto.cli.combine import _follow
from sotto.decode import Reject
from sotto.errors import DrainError, ParameterError
from sotto.reasons import Reason
from sotto.topics import ReportTopic
from sotto.wire import HEADER, MAGIC

NAME = "reports-e1-p4"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster(NAME)
    install(monkeypatch, made)
    return made


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'all.db'}"


def publish(cluster: FakeCluster, sent: list[Sent], name: str = NAME) -> None:
    """Append messages as publishers do: each to the partition of its shard."""
    topic = ReportTopic.parse(name)
    for one in sorted(sent):
        header = one.message[: HEADER.size]
        shard = HEADER.unpack(header)[3] if header.startswith(MAGIC) else 1
        cluster.partition(topic.partition(shard), name).append(one.append, one.message)


def share_of(cluster: FakeCluster, text: str, folder: Path, **options: object) -> DrainResult:
    """Drain one share of all topics."""
    share = Share.parse(text)
    state = folder / f"state-{share.number}-{share.of}"
    return drain(cluster.source(share=share), state, plans(), **options)  # type: ignore[arg-type]


def states(folder: Path, of: int) -> list[Path]:
    return [folder / f"state-{number}-{of}" for number in range(of, 0, -1)]


def rejects(state: Path) -> list[Reject]:
    directory = StateDirectory(state)
    return [
        reject
        for entry in directory.manifest().quarantine
        for reject in quarantine.unpack(
            files.load(directory.quarantine(entry.generation), quarantine.KIND)
        )
    ]


def results(where: str | Path) -> dict[str, object]:
    """Return all that a database holds but numbers of generations."""
    tables = projected(where, without=("revision", "projected_generation", "lineage", "state"))
    rows: Counter[object] = Counter()
    for row in tables.pop("quarantine"):
        rows[row["reason"]] += int(str(row["rows"]))
    return {**tables, "quarantine": rows}


@pytest.mark.parametrize(
    ("of", "limit"), [(2, 100_000), pytest.param(4, 90, marks=pytest.mark.slow)]
)
def test_shares_add_up_to_what_one_process_has(
    cluster: FakeCluster, tmp_path: Path, database: str, of: int, limit: int
) -> None:
    """Byte for byte, whatever the number of drains, and however often they were combined."""
    sent = sorted(honest(12, 3, 31) + faulty(32))
    half = len(sent) // 2
    for part in (sent[:half], sent[half:]):
        publish(cluster, part)
        for number in range(1, of + 1):
            share_of(cluster, f"{number}/{of}", tmp_path, max_reports=limit)
        assert combine(states(tmp_path, of), plans(), database).changed
    one = drain(cluster.source(), tmp_path / "one", plans())
    assert one.rejects
    assert results(database) == results(tmp_path / "one")
    together = [reject for state in states(tmp_path, of) for reject in rejects(state)]
    assert sorted(together) == sorted(rejects(tmp_path / "one"))
    again = combine(states(tmp_path, of), plans(), database)
    assert (again.changed, again.windows) == (False, 0)


def test_shares_requeue_each_its_own_and_add_up_to_what_one_process_has(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    publish(cluster, reports(12, 41))
    for number in (1, 2):
        share = cluster.source(share=Share(number, 2))
        drain(share, tmp_path / f"state-{number}-2", [FIRST_PLAN])
    one = tmp_path / "one"
    drain(cluster.source(), one, [FIRST_PLAN])
    combine(states(tmp_path, 2), [FIRST_PLAN], database)
    taken = requeue(tmp_path / "state-1-2", BOTH)
    with pytest.raises(DrainError, match="under plans that are missing"):
        combine(states(tmp_path, 2), [FIRST_PLAN], database)
    combine(states(tmp_path, 2), BOTH, database)
    rest = requeue(tmp_path / "state-2-2", BOTH)
    whole = requeue(one, BOTH)
    assert min(taken.size, rest.size) > 0
    assert taken.size + rest.size == whole.size
    assert combine(states(tmp_path, 2), BOTH, database).changed
    assert results(database) == results(one)
    assert taken_again(database) == taken_again(f"sqlite:///{one / 'results.db'}")
    assert not requeue(tmp_path / "state-1-2", BOTH).drains


def taken_again(database: str) -> int:
    """Return how many reports a database says have been requeued."""
    with Results(database, create=False) as found:
        return sum(int(str(row["requeued"])) for row in found.table(QUARANTINE))


def chain(seed: int, shard: int) -> Sent:
    """Return a report of a pseudonym of a shard."""
    source = random.Random(seed)
    while True:
        device = Device(plans()[0], source)
        sent = device.chain(device.plan.metric("colour"), START + DAY, 1)[0]
        if HEADER.unpack(sent.message[: HEADER.size])[3] == shard:
            return sent


def test_a_message_in_a_foreign_partition_counts_in_no_share(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    """Who sends a report to all partitions would have it counted once in every share."""
    sent = chain(1, shard=0)
    for number in range(4):
        cluster.partition(number).append(sent.append, sent.message)
    drained = [share_of(cluster, f"{number}/2", tmp_path) for number in (1, 2)]
    assert [result.tally.counted for result in drained] == [1, 0]
    assert [result.rejects for result in drained] == [
        {"wrong_partition": 1},
        {"wrong_partition": 2},
    ]
    found = rejects(tmp_path / "state-2-2")
    assert {(each.reason, each.message) for each in found} == {
        (Reason.WRONG_PARTITION, sent.message)
    }
    combine(states(tmp_path, 2), plans(), database)
    assert [row["n"] for row in projected(database)["windows"]] == [1]
    assert drain(cluster.source(), tmp_path / "one", plans()).tally.duplicates == 3


def test_a_shard_is_in_one_share_in_all_epochs(cluster: FakeCluster, tmp_path: Path) -> None:
    sent = chain(2, shard=1)
    newer = "reports-e2-p6"
    cluster.topics[newer] = ReportTopic.parse(newer)
    cluster.ids[newer] = "two"
    for key, partition in FakeCluster(newer).partitions.items():
        cluster.partitions[key] = partition
    publish(cluster, [sent])
    publish(cluster, [sent], newer)
    drained = [share_of(cluster, f"{number}/2", tmp_path) for number in (1, 2)]
    assert [result.tally.reports for result in drained] == [0, 2]
    assert drained[1].tally.duplicates == 1
    with pytest.raises(ParameterError, match=r"share 1/4 must divide the 6 partitions of .*-e2-p6"):
        share_of(cluster, "1/4", tmp_path)


def test_a_share_that_is_killed_goes_on_where_it_was(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    publish(cluster, [chain(seed, shard=seed % 2) for seed in range(12)])

    class StoppedError(Exception):
        pass

    for step in ("begun", "written", "committed"):

        def stop(at: str, step: str = step) -> None:
            if at == step:
                raise StoppedError

        with pytest.raises(StoppedError):
            share_of(cluster, "2/2", tmp_path, checkpoint=stop, max_reports=2)
    share_of(cluster, "1/2", tmp_path)
    share_of(cluster, "2/2", tmp_path)
    combine(states(tmp_path, 2), plans(), database)
    drain(cluster.source(), tmp_path / "one", plans())
    assert results(database) == results(tmp_path / "one")
    lanes = StateDirectory(tmp_path / "state-2-2").manifest().lanes
    assert sorted(lanes) == [f"{NAME}@one/1"]


def test_a_state_directory_stays_of_its_share(cluster: FakeCluster, tmp_path: Path) -> None:
    share_of(cluster, "1/2", tmp_path)
    state = tmp_path / "state-1-2"
    for share in (Share(2, 2), Share(1, 4), None):
        with pytest.raises(DrainError, match=r"made for share 1/2, .* give --share 1/2, or"):
            drain(cluster.source(share=share), state, plans())
    assert not (state / "results.db").exists()
    drain(cluster.source(), tmp_path / "whole", plans())
    with pytest.raises(DrainError, match=r"made for all partitions, .* give no --share, or"):
        drain(cluster.source(share=Share(1, 2)), tmp_path / "whole", plans())
    with pytest.raises(DrainError, match="a share has no database of its own"):
        share_of(cluster, "1/2", tmp_path, database="sqlite:///x.db")


def test_only_all_shares_of_one_topic_are_combined(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    for share in ("1/2", "2/2", "1/4", "1/1"):
        share_of(cluster, share, tmp_path / "a")
    share_of(cluster, "2/2", tmp_path / "b")
    drain(cluster.source(), tmp_path / "one", plans())
    first, second = tmp_path / "a" / "state-1-2", tmp_path / "a" / "state-2-2"
    for given, message in (
        ([first], "2/2 is missing"),
        ([first, second, tmp_path / "b" / "state-2-2"], "are both of share 2/2"),
        ([first, first], "given twice"),
        ([first, second, tmp_path / "a" / "state-1-4"], "not of 2 shares and 4 shares"),
        ([tmp_path / "one"], "is no share of a topic"),
        ([first, tmp_path / "none"], "holds no drain"),
    ):
        with pytest.raises(DrainError, match=message):
            combine(given, plans(), database)
    assert combine([tmp_path / "a" / "state-1-1"], plans(), database) == Combined((0,))


def rewrite(state: Path, change: Callable[[Manifest], Manifest]) -> None:
    manifest = StateDirectory(state).manifest()
    (state / "MANIFEST.json").write_bytes(change(manifest).to_json())


def test_shares_of_different_topics_are_not_combined(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    publish(cluster, [chain(seed, shard=seed % 2) for seed in range(2)])
    for share in ("1/2", "2/2"):
        share_of(cluster, share, tmp_path)
    state = tmp_path / "state-2-2"
    rewrite(state, lambda manifest: replace(manifest, lanes={f"{NAME}@other/1": 1}))
    with pytest.raises(DrainError, match=f"two topics that are both called {NAME}"):
        combine(states(tmp_path, 2), plans(), database)
    rewrite(state, lambda manifest: replace(manifest, lanes={"fleet-e1-p4@x/1": 1}))
    with pytest.raises(DrainError, match="the shares are of different topics: "):
        combine(states(tmp_path, 2), plans(), database)
    with pytest.raises(DrainError, match="under plans that are missing"):
        combine(states(tmp_path, 2), plans()[:1], database)


def test_a_share_of_another_time_is_noticed(
    cluster: FakeCluster, tmp_path: Path, database: str
) -> None:
    """What was restored from a copy is refused, or, once it has gone on, projected anew."""
    publish(cluster, [chain(seed, shard=seed % 2) for seed in range(4)])
    for share in ("1/2", "2/2"):
        share_of(cluster, share, tmp_path)
    assert combine(states(tmp_path, 2), plans(), database).generations == (1, 1)
    state = tmp_path / "state-1-2"
    rewrite(state, lambda manifest: replace(manifest, generation=0, lineage=()))
    with pytest.raises(DrainError, match="generation 1 of share 1/2, but its state directory only"):
        combine(states(tmp_path, 2), plans(), database)
    rewrite(state, lambda manifest: replace(manifest, generation=2, lineage=("other", "way")))
    found = combine(states(tmp_path, 2), plans(), database)
    assert (found.generations, found.changed) == ((2, 1), True)
    rewrite(state, lambda manifest: replace(manifest, state="another"))
    with pytest.raises(DrainError, match="results of another state directory"):
        combine(states(tmp_path, 2), plans(), database)


def test_what_a_commit_removes_is_read_again(
    cluster: FakeCluster, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, [chain(seed, shard=seed % 2) for seed in range(4)])
    for share in ("1/2", "2/2"):
        share_of(cluster, share, tmp_path)
    publish(cluster, [chain(seed, shard=1) for seed in range(10, 14)])
    read = files.load
    meanwhile = iter([True])

    def load(path: Path, kind: bytes) -> memoryview:
        if "state-2-2" in str(path) and next(meanwhile, False):
            share_of(cluster, "2/2", tmp_path)
        return read(path, kind)

    monkeypatch.setattr(files, "load", load)
    assert combine(states(tmp_path, 2), plans(), database).generations == (1, 2)
    drain(cluster.source(), tmp_path / "one", plans())
    assert results(database) == results(tmp_path / "one")


def test_the_command_says_what_it_did(
    cluster: FakeCluster, tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(cluster, [chain(seed, shard=seed) for seed in range(2)])
    for share in ("1/2", "2/2"):
        share_of(cluster, share, tmp_path)
    given = ["combine", "--database", database]
    for number, plan in enumerate(plans()):
        (tmp_path / f"{number}.json").write_bytes(plan.to_json())
        given += ["--plan", str(tmp_path / f"{number}.json")]
    both = [word for state in states(tmp_path, 2) for word in ("--state", str(state))]
    for said in ("1 windows estimated", "nothing new"):
        assert main([*given, *both]) == 0
        assert capsys.readouterr().out == f"generation 2 (shares: 1, 1): {said}\n"
    assert main([*given, *both[:2]]) == 2
    assert "1/2 is missing" in capsys.readouterr().err


def test_a_database_that_does_not_answer_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = threading.Event()
    answers = iter([ProjectionError("no answer"), Combined((1, 1)), Combined((2, 1), True, 3)])

    def once() -> Combined:
        answer = next(answers)
        if isinstance(answer, ProjectionError):
            raise answer
        if answer.changed:
            stopped.set()
        return answer

    _follow(once, stopped, 0.001)
    said = capsys.readouterr()
    assert said.out == "generation 3 (shares: 2, 1): 3 windows estimated\n"
    assert said.err == "sotto: error: no answer; it is tried again\n"


def test_shares_are_written_k_of_n() -> None:
    for text in ("0/2", "3/2", "1", "1/2/3", "a/b", "1/0", "", "-1/2"):
        with pytest.raises(ParameterError):
            Share.parse(text)

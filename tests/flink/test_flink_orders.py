"""What a job is ordered to do, what its folder remembers, and what Flink and Kafka are told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.soak.fleet import plan_of
from clientsdk.testing import small_plan
from mechanisms import frozen
from pipelines.flink.jobfolder import JobFolder, Known, with_plans
from pipelines.flink.kafka import properties, sink_table, source_table
from pipelines.flink.orders import Order, Work
from pipelines.flink.preflight import one_name
from pipelines.flink.rest import FlinkError, JobManager
from pipelines.flink.settings import settings
from sotto.brokers import Broker
from sotto.errors import ParameterError, PlanError
from sotto.topics import ReportTopic


def order(**changes: object) -> Order:
    plan = small_plan()
    work = Work(
        job="j",
        plans=(plan.to_json().decode(),),
        topics=("reports-e1-p4", "reports-e2-p8"),
        requeue="reports-requeue",
        candidates={plan.fingerprint.hex(): {"colour": ("red",)}},
    )
    said = {
        "work": work,
        "broker": "client.json",
        "flink": "http://flink:8081",
        "checkpoints": "file:///c",
        "savepoints": "file:///s",
        "name": "sotto-j",
        "estimates": "reports-estimates",
        "quarantine": "reports-quarantine",
    }
    return Order(**{**said, **changes})


def test_an_order_survives_json_and_gives_the_deployment():
    one = order(parallelism=3, backend="rocksdb", restore="file:///s/1")
    assert Order.from_json(one.to_json()) == one
    hash(one.work)
    deployment = one.work.deployment()
    assert deployment.requeue == "reports-requeue"
    assert len(deployment.lanes) == 4 + 8 + 1
    assert deployment.candidates == {small_plan().fingerprint: {"colour": ("red",)}}


@pytest.mark.parametrize(
    ("name", "value"), [("backend", "heap"), ("parallelism", 129), ("checkpoint_every", 1)]
)
def test_orders_that_cannot_be_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"^{name} .*must be"):
        order(**{name: value})


def test_flink_is_told_what_no_session_tells_it():
    says = settings(order(restore="file:///s/1", parallelism=2))
    assert says["rest.address"] == "flink"
    assert says["pipeline.max-parallelism"] == "128"
    assert says["execution.state-recovery.path"] == "file:///s/1"
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    assert says[retention] == "RETAIN_ON_CANCELLATION"
    assert "execution.state-recovery.path" not in settings(order())


def test_a_password_is_told_to_kafka_alone(tmp_path):
    (tmp_path / "ca.pem").write_text("-----BEGIN", encoding="ascii")
    broker = Broker("a:1, b:2", ca=str(tmp_path / "ca.pem"), user="u", password="p\"\\'")
    says = properties(broker)
    assert says["bootstrap.servers"] == "a:1,b:2"
    assert says["security.protocol"] == "SASL_SSL"
    assert says["ssl.truststore.certificates"] == "-----BEGIN"
    assert says["sasl.jaas.config"].endswith('username="u" password="p\\"\\\\\'";')
    source = source_table(order(), broker)
    assert "'topic' = 'reports-e1-p4;reports-e2-p8;reports-requeue'" in source
    assert "''\";'" in source
    assert "'properties.auto.offset.reset' = 'none'" in source
    headers = sink_table(order(), broker, "quarantine", "reports-quarantine", headers=True)
    assert "headers MAP" in headers
    assert "p\\" not in order().to_json()
    assert properties(Broker("a:1")) == {"bootstrap.servers": "a:1"}


def test_a_folder_remembers_plans_and_wants_all_of_them(tmp_path):
    folder = JobFolder(tmp_path / "job")
    known = with_plans(folder.known, [small_plan()])
    folder.remember(replace(known, topics=("t-e1-p1",), flink="http://f", id="1"))
    again = JobFolder(tmp_path / "job").known
    assert (again.job, again.topics, again.group) == (known.job, ("t-e1-p1",), f"sotto-{known.job}")
    more = with_plans(again, [plan_of(), small_plan()])
    assert len(more.plans) == 2
    with pytest.raises(FlinkError, match="plans are missing that the job has had: colours version"):
        with_plans(more, [plan_of()])
    changed = small_plan()
    changed = frozen.replace(changed, grace=changed.grace + 1)
    with pytest.raises(PlanError, match="plan colours version 1 has two fingerprints"):
        with_plans(more, [plan_of(), changed])
    extended = frozen.replace(small_plan(), expires=small_plan().expires + 86_400_000)
    assert with_plans(more, [plan_of(), extended]) == more
    (tmp_path / "job" / "job.json").write_text("{}", encoding="ascii")
    with pytest.raises(FlinkError, match=r"job\.json is damaged"):
        _ = folder.known


def test_the_latest_is_the_newest_complete_one(tmp_path):
    folder = JobFolder(tmp_path / "job")
    assert folder.latest() is None
    places = (folder.place("checkpoints"), folder.place("savepoints"), "s3://elsewhere")
    folder.remember(Known("j", places=places))
    assert folder.latest() is None
    whole = folder.path / "checkpoints" / "1f" / "chk-7"
    for each in (whole, folder.path / "savepoints" / "savepoint-1"):
        each.mkdir(parents=True)
    (whole / "_metadata").touch()
    assert folder.latest() == whole.as_uri()


def test_topics_are_epochs_of_one_name():
    assert one_name([ReportTopic("a", 1, 4), ReportTopic("a", 2, 8)]) == "a"
    with pytest.raises(ParameterError, match="epochs of one name, not of a, b"):
        one_name([ReportTopic("a", 1, 4), ReportTopic("b", 1, 4)])


class Answering(JobManager):
    """A job manager whose answers are given."""

    def __init__(self, answers: dict[str, object]) -> None:
        super().__init__("http://flink:1/")
        self._answers = answers
        self.asked: list[str] = []

    def _ask(self, path: str, body: object = None, method: str | None = None) -> object:
        self.asked.append(f"{method or ('POST' if body else 'GET')} {path} {json.dumps(body)}")
        return self._answers[path]


def test_a_savepoint_that_fails_says_so():
    done = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": {"class": "x.Declined"}}}
    said = {"jid": "1", "name": "n", "state": "RUNNING", "tasks": {"running": 4, "total": 4}}
    manager = Answering(
        {
            "/jobs/overview": {"jobs": [said]},
            "/jobs/1/stop": {"request-id": "8"},
            "/jobs/1/savepoints/8": done,
        }
    )
    with pytest.raises(FlinkError, match=r"was not made \(x\.Declined\)"):
        manager.savepoint("1", "file:///s", stop=True)
    assert 'POST /jobs/1/stop {"targetDirectory": "file:///s"}' in manager.asked
    assert not any("PATCH" in asked for asked in manager.asked)


def test_a_job_tells_why_it_failed():
    trace = "a.B: outer\n\tat c.d\nCaused by: e.F: inner\n\tat g.h\n\t... 3 more\n"
    history = {"exceptionHistory": {"entries": [{"stacktrace": trace, "exceptionName": "a.B"}]}}
    assert Answering({"/jobs/1/exceptions": history}).failure("1") == "e.F: inner"
    said = {"jid": "1", "name": "n", "state": "RUNNING", "tasks": {"running": 3, "total": 4}}
    manager = Answering({"/jobs/overview": {"jobs": [said]}})
    assert not manager.job("1").well
    with pytest.raises(FlinkError, match="knows no job 2"):
        manager.job("2")


def test_an_address_is_a_url():
    with pytest.raises(FlinkError, match="must be a URL"):
        JobManager("flink:8081")

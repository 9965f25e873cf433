"""A runner is an option: what goes on to Beam, and what is refused."""

from __future__ import annotations

import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock, PropertyMock

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from committed_states import committed, counted, empty_state, projected
from crashes import after_runs
from fake_kafka import FakeCluster, copied, install
from report_logs import faulty, honest, write
from run_reference import expected
from step_plans import plans, registry

from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.bounded import job
from pipelines.bounded.run import aggregate
from pipelines.storage import files
from sotto.clocks import now_ms
from sotto.errors import AggregationError, ParameterError
from sotto_cli import main

pytestmark = pytest.mark.slow

PORTABLE = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
#: A job server of Beam's own, in this process.
HERE = (*PORTABLE, "--job_endpoint=embed")


class JobServer(beam_job_api_pb2_grpc.JobServiceServicer):
    def DescribePipelineOptions(self, request: object, context: object) -> object:  # noqa: N802
        kinds = beam_job_api_pb2.PipelineOptionType
        return beam_job_api_pb2.DescribePipelineOptionsResponse(
            options=[
                beam_job_api_pb2.PipelineOptionDescriptor(name=name, type=kind)
                for name, kind in (
                    ("state_backend", kinds.STRING),
                    ("object_reuse", kinds.BOOLEAN),
                    ("parallelism", kinds.INTEGER),
                )
            ]
        )


@pytest.fixture
def endpoint():
    server = grpc.server(ThreadPoolExecutor(1))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(JobServer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def test_jobs_run_in_this_process_unless_a_runner_is_named():
    assert EMBEDDED.embedded
    assert Runner(("--runner", "FnApiRunner")).embedded
    assert Runner(("--runner=fnapi", "--direct_num_workers=1")).embedded
    assert not Runner(HERE).embedded


def test_options_of_a_job_server_are_known_too(endpoint):
    where = f"--job_endpoint={endpoint}"
    options = (*PORTABLE, where, "--state_backend", "rocksdb", "--object_reuse", "--parallelism=2")
    assert Runner(options).options == options
    with pytest.raises(ParameterError, match="--state_bakend=rocksdb is neither an option of"):
        Runner((*PORTABLE, where, "--state_bakend=rocksdb"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--parallel 2", "--parallel is neither an option of this command nor one that Beam"),
        ("--parallelism two", "Beam does not take these options: .* invalid int value: 'two'"),
        ("--runner DirectRunner", "downloads an engine: leave --runner out for the embedded"),
        ("--runner direct", "downloads an engine"),
        ("--runner SwitchingDirectRunner", "downloads an engine"),
        ("--runner PrismRunner", "downloads its engine unless --prism_location says where"),
        ("--runner FlinkRunner", "unless --flink_job_server_jar says where it is: give that, or"),
        ("--runner SparkRunner", "unless --spark_job_server_jar says where it is"),
        ("--runner PortableRunner", "goes with --job_endpoint HOST:PORT"),
        ("--job_endpoint localhost:1", "--job_endpoint goes with --runner PortableRunner"),
        ("--runner PortableRunner --job_endpoint localhost:1", "--environment_type says how"),
    ],
)
def test_what_cannot_be_is_refused(options, why):
    with pytest.raises(ParameterError, match=why):
        Runner(tuple(options.split()))


def test_a_job_server_that_does_not_answer_is_told():
    options = (*PORTABLE, "--job_endpoint=127.0.0.1:1", "--job_server_timeout=1", "--unknown=1")
    with pytest.raises(AggregationError, match="job server"):
        Runner(options)


def test_the_command_passes_on_what_is_not_its_own(tmp_path, capfd):
    plan = tmp_path / "plan.json"
    plan.write_bytes(plans()[0].to_json())
    (tmp_path / "log").mkdir()
    places = {"--plan": plan, "--log": tmp_path / "log", "--state": tmp_path / "state"}
    ours = ["aggregate", *(str(each) for place in places.items() for each in place)]
    for theirs in (["--bogus", "3"], ["--", "--bogus", "3"]):
        assert main([*ours, *theirs]) == 2
        assert "--bogus is neither an option of this command" in capfd.readouterr().err
    assert main([*ours, "--direct_num_workers", "1", "--", "--runner=FnApiRunner"]) == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("runners") / "log", honest(10, 3, 11) + faulty(12))


@pytest.mark.real_randomness
def test_another_runner_makes_the_same_files(log, tmp_path):
    """With Beam's job service and its workers, as an engine has them; here in this process."""
    one, other = tmp_path / "one", tmp_path / "other"
    shutil.copytree(empty_state(one), other)
    said: list[str] = []
    now = now_ms()
    aggregate(log, one, plans(), max_reports=100, clock=lambda: now)
    here = Runner(HERE, said.append)
    aggregate(log, other, plans(), max_reports=100, runner=here, clock=lambda: now)
    assert committed(one) == committed(other)
    assert projected(one) == projected(other)
    assert said[-1].startswith("done after ")


@pytest.mark.parametrize(("options", "shown"), [(HERE, True), (("--runner=other.Runner",), False)])
def test_a_job_that_waits_says_where_its_tasks_are_seen(monkeypatch, options, shown):
    monkeypatch.setattr("pipelines.beam.runners._LOOK", 0)
    said: list[str] = []
    job = Mock()
    type(job.run.return_value).state = PropertyMock(side_effect=["STARTING", "RUNNING", "DONE"])
    Runner(options, said.append).run(job)
    assert [each.partition(" after ")[0] for each in said] == ["starting", "running", "done"]
    assert ["free slots" in each for each in said] == [False, shown, False]


@pytest.mark.real_randomness
def test_workers_read_topics_by_themselves(log, tmp_path, monkeypatch):
    """The driver's own copy of a topic is of no use to them, and is let go."""
    cluster = FakeCluster("reports-e1-p2")
    install(monkeypatch, cluster)
    copied(log, cluster)
    source = cluster.source()
    aggregate(source, tmp_path / "state", plans(), runner=Runner(HERE))
    assert counted(tmp_path / "state") == expected(log, registry()).counts
    assert aggregate(source, tmp_path / "state", plans()).runs == 0


@pytest.mark.real_randomness
def test_what_a_worker_raises_is_the_reason(log, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "create", full)
    wanted = r"^the run was not committed: \[Errno 28\] No space left on device$"
    with pytest.raises(AggregationError, match=wanted):
        aggregate(log, tmp_path / "state", plans(), runner=Runner(HERE))


@pytest.mark.real_randomness
def test_all_that_dataflow_refuses_is_the_reason(log, tmp_path):
    """Google is not asked: the runner checks its options before."""
    given = ("--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/t")
    with pytest.raises(AggregationError) as refused:
        aggregate(log, tmp_path / "state", plans(), runner=Runner(given))
    for reason in ("option: temp_location", "option: staging_location", "Invalid Project ID (p)"):
        assert reason in str(refused.value)


@pytest.mark.real_randomness
def test_workers_that_do_not_reach_the_files_are_told_of(log, tmp_path, monkeypatch):
    def nowhere(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(files, "create", nowhere)
    monkeypatch.setattr(job, "PATIENCE", 1.0)
    with pytest.raises(
        AggregationError, match=r"the job has left nothing in .*/attempts/.*: all workers"
    ):
        aggregate(log, tmp_path / "state", plans(), runner=Runner(HERE))


@pytest.mark.real_randomness
def test_what_a_worker_finds_is_the_reason(log, tmp_path):
    """And the run stays undertaken."""
    state = tmp_path / "state"
    aggregate(log, state, plans(), max_reports=60, stop=after_runs(1))
    kept = {path: path.read_bytes() for path in (state / "logs").iterdir()}
    for path in kept:
        path.write_bytes(b"damaged")
    with pytest.raises(AggregationError, match=r"logs/.* is damaged \(.*\): restore it"):
        aggregate(log, state, plans(), runner=Runner(HERE))
    assert (state / "intent.json").exists()
    for path, content in kept.items():
        path.write_bytes(content)
    assert aggregate(log, state, plans(), runner=Runner(HERE)).runs == 1
    assert not (state / "intent.json").exists()

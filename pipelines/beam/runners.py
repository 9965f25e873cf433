"""Chooses and checks the runner of a job, and runs the job on it.

The embedded default is ``FnApiRunner``, named explicitly: Beam's own default, ``DirectRunner``,
looks for an engine to download. Any other runner is named as Beam names it, and takes Beam's
options. Runners that would download the program that they run on are refused.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, cast

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.pipeline import AppliedPTransform, ComponentIdMap
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability import job_server
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineState

from pipelines.flink import MAY_WAIT
from sotto.errors import AggregationError, ParameterError

_EMBEDDED = "fnapi"
#: Runners that download their engine, each with the option that says where there is one; None if
#: it has no such option.
_DOWNLOADING = {
    "direct": None,
    "switchingdirect": None,
    "prism": "prism_location",
    "flink": "flink_job_server_jar",
    "spark": "spark_job_server_jar",
}
#: Seconds between two looks at a job.
_LOOK = 1.0
#: The last line of a Python worker's traceback: the exception's class, and its text.
_RAISED = re.compile(r"^(?:[\w.]*(?:Error|Exception): )+(?P<text>.+)$", re.MULTILINE)
_View = TypeVar("_View", bound=PipelineOptions)
_STAGE = re.compile(r"\s*\[while running .*\]$")


class LabelIds(ComponentIdMap):
    """Ids of transforms that are made of their labels alone, and so outlive changes of the graph.

    A pending timer in a savepoint holds the id of its transform. Beam's own ids end in a running
    number: a transform added anywhere in the graph would change them, and every timer of a running
    job would be lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[AppliedPTransform, str] = {}

    def get_or_assign(
        self, obj: object = None, obj_type: type | None = None, label: str | None = None
    ) -> str:
        if not isinstance(obj, AppliedPTransform):
            return str(super().get_or_assign(obj, obj_type, label))
        if obj not in self._ids:
            made = "sotto_" + re.sub(r"\W+", "-", obj.full_label or "root")
            if made in self._ids.values():
                raise AggregationError(f"two transforms would have the id {made}")
            self._ids[obj] = made
        return self._ids[obj]


class _Options(PipelineOptions):
    """Options that make each view once: Beam asks for some eighty a run, and would parse anew."""

    def view_as(self, cls: type[_View]) -> _View:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return cast(_View, views[cls])


_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Runner:
    """A runner and its options.

    ``options``: as on a command line, without ``--runner`` for the embedded one. ``report``: called
    with the state of a job that does not run in this process.

    Raises ParameterError if Beam does not know an option, or the runner cannot be used so.
    """

    options: tuple[str, ...] = ()
    report: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        if self.options:
            parsed = PipelineOptions(list(_known(self.options)))
            FileSystems.set_options(parsed)
            _check(parsed)

    @property
    def embedded(self) -> bool:
        return _name(PipelineOptions([*self.options])) == _EMBEDDED

    @property
    def in_process(self) -> bool:
        """Whether a job runs in this process alone; any option may ask for several processes."""
        return not self.options

    @property
    def flink(self) -> bool:
        """Whether jobs run on Flink, or on an engine behind a job server that may be Flink's."""
        return _name(PipelineOptions([*self.options])) in ("flink", "portable")

    @property
    def parallelism(self) -> int:
        """How many tasks run in parallel, as the options say; 1 if they do not."""
        given = PipelineOptions([*self.options]).get_all_options().get("parallelism")
        return max(int(given or 1), 1)

    def pipeline(self, job: str, more: Mapping[str, object] = _NOTHING) -> beam.Pipeline:
        """Return an empty pipeline; ``job`` is its name unless the options have another.

        ``more``: values of options by name, which replace those of ``options``.
        """
        options = _Options([*self.options], **more)
        named = options.view_as(GoogleCloudOptions)
        named.job_name = named.job_name or job
        pipeline = beam.Pipeline(FnApiRunner() if self.embedded else None, options)
        pipeline.component_id_map = LabelIds()
        return pipeline

    def run(self, pipeline: beam.Pipeline) -> None:
        """Run a pipeline to its end."""
        began, before = time.monotonic(), ""
        result = pipeline.run()
        while not self.embedded:
            state = result.state
            if state != before:
                hint = MAY_WAIT if self.flink and state == PipelineState.RUNNING else ""
                self.report(f"{state.lower()} after {time.monotonic() - began:.0f} s{hint}")
                before = state
            if PipelineState.is_terminal(state):
                break
            time.sleep(_LOOK)
        result.wait_until_finish()

    def reason(self, error: Exception) -> str:
        """Return why a job failed, in a sentence: the text that a worker raised, or the runner.

        >>> said = "Traceback ...\\nsotto.errors.AggregationError: no log [while running 'Read']"
        >>> Runner().reason(RuntimeError(f"Error received from SDK harness: {said}\\n at java"))
        'no log'

        A list after a colon is given whole, such as the options that a runner refuses.

        >>> Runner().reason(ValueError("Pipeline has errors: \\nno bucket.\\nno project."))
        'Pipeline has errors: no bucket. no project.'
        """
        if isinstance(error, grpc.RpcError):
            return "the job server has gone"
        text = str(error)
        raised = [match["text"] for match in _RAISED.finditer(text)]
        first, *rest = text.strip().splitlines() or [""]
        told = " ".join([first.rstrip(), *rest]) if first.rstrip().endswith(":") else first
        chosen = raised[-1] if raised else told
        return _STAGE.sub("", chosen) or type(error).__name__


def _known(options: Sequence[str]) -> Sequence[str]:
    """Return options if Beam, or the job server that they name, knows all of them."""
    parser = _parser(options)
    parsed, unknown = parser.parse_known_args(list(options))
    if unknown and parsed.job_endpoint not in (None, "", "embed"):
        _add_those_of(parsed.job_endpoint, parsed.job_server_timeout, parser)
        _, unknown = parser.parse_known_args(list(options))
    if unknown:
        raise ParameterError(
            f"{unknown[0]} is neither an option of this command nor one that Beam's runner knows"
        )
    return options


def _parser(options: Sequence[str]) -> argparse.ArgumentParser:
    """Return Beam's own parser, of all its options."""
    made: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser) -> None:
        made.append(parser)

    PipelineOptions([]).get_all_options(add_extra_args_fn=keep)
    (parser,) = made

    def refuse(message: str) -> None:
        raise ParameterError(f"Beam does not take these options: {message}")

    parser.error = refuse  # type: ignore[assignment, method-assign]
    return parser


def _add_those_of(endpoint: str, timeout: int, parser: argparse.ArgumentParser) -> None:
    """Add to a parser the options that a job server describes, as Beam does when it submits."""
    try:
        service = job_server.ExternalJobServer(endpoint, timeout).start()
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        described = service.DescribePipelineOptions(request, timeout=timeout).options
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        raise AggregationError(f"no job server answers at {endpoint} (--job_endpoint)") from error
    for option in described:
        flag = option.type == beam_job_api_pb2.PipelineOptionType.BOOLEAN
        with suppress(argparse.ArgumentError):  # Beam's Python has it too.
            parser.add_argument(f"--{option.name}", action="store_true" if flag else "store")


def _check(options: PipelineOptions) -> None:
    """Raise ParameterError if a runner would download something, or lacks an option it needs."""
    portable, name = options.view_as(PortableOptions), _name(options)
    where = dict(options.get_all_options())
    if name == _EMBEDDED:
        if portable.job_endpoint:
            raise ParameterError("--job_endpoint goes with --runner PortableRunner")
        return
    needed = _DOWNLOADING.get(name, "")
    if needed is None:
        raise ParameterError(
            "--runner DirectRunner downloads an engine: leave --runner out for the embedded "
            "FnApiRunner, or name a job server (--runner PortableRunner --job_endpoint HOST:PORT)"
        )
    if needed and not where[needed] and not portable.job_endpoint:
        raise ParameterError(
            f"--runner {name.title()}Runner downloads its engine unless --{needed} says where "
            "it is: give that, or --runner PortableRunner --job_endpoint HOST:PORT"
        )
    if name == "portable" and not portable.job_endpoint:
        raise ParameterError("--runner PortableRunner goes with --job_endpoint HOST:PORT")
    if name == "portable" and not portable.environment_type:
        raise ParameterError(
            "--environment_type says how workers are started: EXTERNAL, LOOPBACK, PROCESS or "
            "DOCKER; Beam's own image has no Sotto in it"
        )


def _name(options: PipelineOptions) -> str:
    """Return the runner's name in the form that Beam compares: lower case, no module, no suffix."""
    named: str = options.view_as(StandardOptions).runner or _EMBEDDED
    return named.rpartition(".")[2].lower().removesuffix("runner")


#: The runner of jobs in this process.
EMBEDDED = Runner()

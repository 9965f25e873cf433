"""Options of Beam: those of the command line that are not Sotto's own."""

from __future__ import annotations

from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from sotto.errors import ParameterError

#: What Flink is told unless the command line says otherwise. Operators that are not chained, and a
#: maximum of parallelism that never changes, are what lets a savepoint be restored with another
#: parallelism. The bare flag turns chaining off; the last name is spelt as Beam spells it.
#: Output that a bundle still has when a checkpoint begins would be kept in the checkpoint, under
#: numbers of a stage's outputs that are others after the job server was restarted: a job that is
#: restored then would send it to the wrong stage. So bundles are finished before.
FLINK = {
    "operator_chaining": None,
    "max_parallelism": "128",
    "checkpointing_interval": "10000",
    "externalized_checkpoints_enabled": None,
    "retain_externalized_checkpoints_on_cancellation": None,
    "finish_bundle_before_checkpointing": None,
    "max_bundle_size": "1000",
    "max_bundle_time_mills": "500",
}
#: The runner of pipelines that end, unless another is named. Beam's own default would look for
#: another engine to download.
EMBEDDED = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_EMBEDDED = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner", "PrismRunner", "")


def runner_of(given: Sequence[str]) -> str:
    """Return the runner that options name; empty if they name none."""
    return PipelineOptions(list(given)).view_as(StandardOptions).runner or ""


def bounded_options(given: Sequence[str]) -> PipelineOptions:
    """Return the options of a pipeline that ends; by default it runs in this process."""
    named = any(flag.partition("=")[0] == "--runner" for flag in given)
    return PipelineOptions([*given, *([] if named else [f"--runner={EMBEDDED}"])])


def streaming_options(given: Sequence[str], name: str) -> PipelineOptions:
    """Return the options of a pipeline without an end.

    Parameters
    ----------
    given : sequence of str
        As on the command line.
    name : str
        Of the job, unless they give one.

    Raises
    ------
    ParameterError
        They name no engine.
    """
    runner = runner_of(given)
    if runner.rpartition(".")[2] in _EMBEDDED:
        raise ParameterError(
            f"--runner {runner or 'is missing'}: a pipeline without an end needs an engine, such "
            "as --runner PortableRunner --job_endpoint localhost:8099 (make flink starts one "
            "here); on one machine sotto aggregate --follow does the same without an engine"
        )
    flags = [*given, "--streaming"]
    names = {flag.partition("=")[0].lstrip("-") for flag in given}
    if "job_name" not in names:
        flags.append(f"--job_name={name}")
    if runner.rpartition(".")[2] in ("PortableRunner", "FlinkRunner"):
        for option, value in FLINK.items():
            if option not in names:
                flags.append(f"--{option}" if value is None else f"--{option}={value}")
    return PipelineOptions(flags)

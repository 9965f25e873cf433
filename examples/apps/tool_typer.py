"""The tool with typer: ``python -m examples.apps.tool_typer``."""

from __future__ import annotations

from typing import Annotated

import typer

from clientsdk import TelemetryAction, ask, telemetry
from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics

main = typer.Typer(help="Convert things.")


@main.command()
def convert() -> None:
    """Convert a thing."""
    with make_client(home()) as client:
        ask(client)
        Metrics(client).command.record("convert")
        typer.echo("convert: done")


@main.command("telemetry")
def switch(
    action: Annotated[TelemetryAction, typer.Argument()] = TelemetryAction.STATUS,
) -> None:
    """Say what this tool reports, and whether it does."""
    with make_client(home()) as client:
        typer.echo(telemetry(client, action))


if __name__ == "__main__":
    main()

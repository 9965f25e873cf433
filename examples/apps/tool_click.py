"""The tool with click: ``python -m examples.apps.tool_click``."""

from __future__ import annotations

import click

from clientsdk import TelemetryAction, ask, telemetry
from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics


@click.group()
def main() -> None:
    """Convert things."""


@main.command()
def convert() -> None:
    """Convert a thing."""
    with make_client(home()) as client:
        ask(client)
        Metrics(client).command.record("convert")
        click.echo("convert: done")


@main.command("telemetry")
@click.argument("action", type=click.Choice([*map(str, TelemetryAction)]), default="status")
def switch(action: str) -> None:
    """Say what this tool reports, and whether it does."""
    with make_client(home()) as client:
        click.echo(telemetry(client, action))


if __name__ == "__main__":
    main()

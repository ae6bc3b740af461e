"""The commands of the server: `agentcho serve` and `agentcho key`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli.options import GivenOptions, OptionsFrom, checked, fields
from agentcho.cli.shared_options import FILE
from agentcho.serve.config import ServeConfig

ADAPTER = "Adapter to serve as MODEL+NAME, on its own engine."
TENANT = "Tenant that owns the key. Tenants share nothing."


def serve(
    how: Annotated[GivenOptions, OptionsFrom(ServeConfig)],
    adapter: Annotated[list[str] | None, typer.Option(metavar="NAME=DIR", help=ADAPTER, show_default=False)] = None,
) -> None:
    """Serve a model by OpenAI's API, with the messages of societies encoded once.

    The first Ctrl-C or SIGTERM lets running requests finish and accepts no more; the second ends them too. Exit codes:
    0 all were answered, 2 wrong usage, 130 ended at once.
    """
    from agentcho.cli.serve_run import serve_models

    folders = {name: Path(folder) for name, folder in fields("--adapter", adapter or []).items()}
    raise typer.Exit(serve_models(checked(ServeConfig, **how, adapters=folders)))


def key(
    file: Annotated[Path, typer.Argument(metavar=FILE, help="File of keys; created if it does not exist.")],
    tenant: Annotated[str, typer.Option(help=TENANT)],
    society: Annotated[str | None, typer.Option(help="Restrict the key to this society.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(help="Restrict the key to this agent.", show_default=False)] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of requests per minute.", show_default=False)
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of simultaneous requests.", show_default=False)
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of tokens that the tenant may keep encoded.", show_default=False),
    ] = None,
    priority: Annotated[bool, typer.Option("--priority", help="Allow the key to request priority.")] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Allow the key to read the metrics of the whole server.")
    ] = False,
) -> None:
    """Make a key for `agentcho serve --keys FILE`, and print it this once: the file holds only its hash."""
    from agentcho.cli.serve_run import make_key

    names = {"tenant": tenant, "society": society, "agent": agent, "priority": priority, "metrics": metrics}
    bounds = {"requests_per_minute": requests_per_minute, "concurrent": concurrent, "tokens": tokens}
    typer.echo(make_key(file, {**names, **bounds}))

"""The command `agentcho probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli.shared_options import FILE, Display

URL = "Base URL of an OpenAI-compatible API; its path defaults to /v1."
KEY = "An environment variable, or a file, that holds the key."
OTHER = "The same for a second key, to test whether anything is reused across the two."
SALTS = "Test whether anything is reused across two values of cache_salt."
ALLOWED = "Confirm that the owner of a server on another machine permits this test."
MODEL = "Model to test.  [default: the only one listed]"
JSON, SARIF = "Write the report as JSON; '-' means standard output.", "Write it as SARIF 2.1.0."


def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL)],
    model: Annotated[str | None, typer.Option(help=MODEL, show_default=False)] = None,
    key: Annotated[str | None, typer.Option(metavar="NAME|FILE", help=KEY, show_default=False)] = None,
    other_key: Annotated[str | None, typer.Option(metavar="NAME|FILE", help=OTHER, show_default=False)] = None,
    salts: Annotated[bool, typer.Option(help=SALTS)] = True,
    trials: Annotated[
        int, typer.Option("-n", "--trials", min=1, max=1000, help="Maximum number of trials per question.")
    ] = 24,
    requests: Annotated[int, typer.Option(min=1, help="Upper limit for the whole test.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, max=86400, help="Upper limit for the whole test.")] = 600,
    allowed: Annotated[bool, typer.Option("--i-may-test-this", help=ALLOWED)] = False,
    json: Annotated[Path | None, typer.Option(metavar=FILE, help=JSON)] = None,
    sarif: Annotated[Path | None, typer.Option(metavar=FILE, help=SARIF)] = None,
    display: Display = None,
) -> None:
    """Ask a chat server, as a stranger would, whether it shares what it computed for one caller with another.

    This tests a server's cache; `agentcho prove` tests the encodings of your own games.

    Exit codes: 0 no sharing was seen, 1 callers share, 2 wrong usage, 3 inconclusive.
    """
    from agentcho.cli.outputs import Outputs
    from agentcho.lab.commands.probe_run import ProbeOptions
    from agentcho.lab.commands.probe_run import probe as probe_server

    outputs = Outputs(json=json, sarif=sarif)
    asked = ProbeOptions(
        url=url,
        model=model,
        key=key,
        other=other_key,
        salts=salts,
        trials=trials,
        requests=requests,
        seconds=seconds,
        allowed=allowed,
        outputs=outputs,
        display=display,
    )
    raise typer.Exit(probe_server(asked))

"""Names and help of options that several commands share. Independent of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli.options import PAIR, GivenOptions, OptionsFrom
from agentcho.cli.outputs import drawable
from agentcho.config import LOCAL, RunConfig, option_names
from agentcho.display import Kind
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.reuse.registry import READINGS, usual_repairs, usual_ways

TARGET = "A scenario, a trace file (.jsonl), or a run: its id, the beginning of it, its path, or 'last'."
FILE = "FILE"
EARLIER = "JSON report of an earlier audit; findings are marked as new, unchanged or gone."
SUPPRESS = "TOML file of accepted findings, each with a reason."
MODELS = (
    "TOML file of models that agents can name: one table per model, with a field `model`; [default] is the run's own."
)
MODES = (
    "Columns, separated by commas: "
    f"mode[:leakage][{'|'.join(f':{each.form}' for each in READINGS[1:])}][+repair][@adapter]. "
    "The first is the reference."
)
FINAL_OF = (
    "Sample nothing: each game, which has one step, says the last message of the game with its number in this file."
)
PEFT = "Fields of a peft configuration as JSON, instead of rank, alpha and dropout."
INSPECT = "Export a log for Inspect instead, with the text of all messages; the name must end with .eval."
TELEMETRY = "Export OpenTelemetry spans and metrics (extra otel), without or with the text of messages."
SOURCE = "What to do if the source of the scenario has changed since some of the games were played."
JUDGE = "Model that compares texts of the columns, pair by pair, in both orders."
REPAIRS = f"Repeat each choreographed column with each of these repairs: {','.join(usual_repairs())}; all: every one."
WAYS = f"Repeat each choreographed column with each of these ways of reuse: {','.join(usual_ways()[1:])}."
PLOT = "Draw fidelity against cost, with the Pareto front, in this file."
COMPARED = (
    "Folder for all games and compare.csv, .json and .png; games that it already holds are not "
    "played again. Default: a new folder in runs."
)
PROVES = "Agent whose secrets are swapped.  [default: each agent's in turn]"
PROVED = "Maximum number of workflows of a file; number of games of a scenario.  [default: all; 4]"
SWAP = (
    "What replaces secret messages: other words of the same length, longer or shorter ones, or "
    "none, as if the messages had never been said."
)
FREE_SCHEDULE = (
    "Play the scenario again with private messages of other lengths, without forcing who speaks "
    "when, and check whether any reader observes a difference."
)
STRIDE = (
    "Number of forced tokens fed per step after the first one. 1 feeds them as if they were sampled, and is slower."
)
AT_ONCE = (
    "Maximum number of games at a time. Default: the next begins while less than three quarters of the store is held."
)
SCENARIO = "A name from `agentcho ls`, a .py file, or textarena:NAME. Not needed with --resume."
AGENTS = (
    "Agents for a scenario that leaves them open, such as textarena:NAME: one name for all "
    "players, or one per player: a,b."
)
RESUME = "Continue a recorded run (its id, the beginning of it, or 'last') with the messages recorded so far."
PARTS = "All parts: records (by path, id, or the beginning of an id) or folders of records."
MISSING = "What to do if games are missing from all parts or not over: accept leaves them to `run --resume`."
CHANGED = "With --resume: what to do if the scenario's source has changed since."
VIEWED = "A run (id, path, 'last'), a folder of `compare` or `sweep`, traces, or the JSON of audit, compare or sweep."
VIEW = "Write the page to this file.  [default: view.html in the folder of the run]"
EYES = "Include only what this agent may read. The file contains nothing else, so it can be shared."
BESIDE = "Show a second run, or folder of runs, side by side with the first: words, costs and verdicts."
LIVE = "Serve the page on this machine and follow the run while it is being played."
CALL = "GAME:CALL"
REDO = "With --resume: repeat this tool call, which was started but has no result; all: every such call."
SKIP = (
    "With --resume: do not repeat this tool call; the model is told that nobody knows whether it was made; all: every "
    "such call."
)
AS = "Play this agent yourself at the terminal. May be repeated."
FAIL_FAST = "Stop at the first game that ends with an error."
RETRIES = "Number of times to replay a game that ended with an error of the engine or an endpoint.  [default: 0]"
RUNS = "Folder of runs. --out is its former name, until 0.6."
AtOnce = Annotated[int | None, typer.Option(min=1, help=AT_ONCE, show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar=PAIR, help="Set an option of the scenario.")]
Display = Annotated[Kind | None, typer.Option(help="Default: rich on a terminal, plain elsewhere.", show_default=False)]
FailFast = Annotated[bool, typer.Option("--fail-fast", help=FAIL_FAST)]
As = Annotated[list[str] | None, typer.Option("--as", metavar="AGENT", help=AS, show_default=False)]
Retries = Annotated[int | None, typer.Option(min=0, help=RETRIES, show_default=False)]
Runs = Annotated[Path, typer.Option("--runs-dir", "--out", metavar="DIR", help=RUNS)]
Plot = Annotated[Path | None, typer.Option(metavar=FILE, help=PLOT, show_default=False, callback=drawable)]

HERE = {"model": LOCAL}
SERVED = option_names("served")
LOADING = option_names("loading", "inference")
READING = option_names("reading")
UPKEEP = option_names("upkeep")
Where = Annotated[GivenOptions, OptionsFrom(ClusterConfig)]
Playing = Annotated[GivenOptions, OptionsFrom(RunConfig)]
Trained = Annotated[
    GivenOptions, OptionsFrom(RunConfig, only=("model", *option_names("loading"), "template_differs"), helps=HERE)
]
Placing = Annotated[GivenOptions, OptionsFrom(RunConfig, only=LOADING)]
AUDITED = OptionsFrom(
    RunConfig,
    without=("merge", *UPKEEP, "temperature", "top_p", "limits", "part"),
    helps={
        "games": "Number of games to play.",
        "leakage": "How choreographed mode handles leaks.  [traces: audit]",
        "model": "As in `run`.",
        "seed": "Seed for playing and measuring.",
        "max_tokens": "As in `run`.",
    },
)
TRACED = OptionsFrom(
    RunConfig,
    without=(*READING, "limits", "plain_markers", "part", *SERVED),
    defaults={"seed": 1, "temperature": 1.0, "top_p": 1.0},
    helps=HERE
    | {"seed": ("Seed of all random choices and tasks. Use a different seed for the games that you compare on.")},
)
PROVEN = OptionsFrom(
    RunConfig,
    without=(*READING, *UPKEEP, "temperature", "top_p", "limits", "plain_markers", "part", *SERVED),
    helps=HERE,
)

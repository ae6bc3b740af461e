"""The words of options that several commands share: what each is called, and its help. Does not know: commands."""

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

TARGET = "A scenario, a trace file (.jsonl), or a run: its id, the beginning of it, its path, 'last'."
FILE = "FILE"
EARLIER = "The JSON of an earlier audit: findings become new, unchanged or gone."
SUPPRESS = "A TOML file of findings that somebody answers for."
MODELS = "Models for agents that name one: a TOML table each, with a field `model`; [default] is the run's own."
MODES = (
    f"Columns, with commas between: mode[:leakage][{'|'.join(f':{each.form}' for each in READINGS[1:])}][+repair]"
    "[@adapter]. The first is the reference."
)
FINAL_OF = "Sample nothing: let each game, of one step, say what this file's game of its number ended on."
PEFT = "The fields of any peft configuration as JSON, in place of rank, alpha and dropout."
INSPECT = "Export a log that Inspect opens (a name that ends with .eval), with every word, instead."
TELEMETRY = "Spans and metrics of OpenTelemetry (extra otel), without words, or with their content."
JUDGE = "A model that compares texts of the columns, pair by pair, in both orders."
REPAIRS = f"Each choreographed column once more with each of these: {','.join(usual_repairs())}; all: every one."
WAYS = f"Each choreographed column once more in each of these ways: {','.join(usual_ways()[1:])}."
PLOT = "Draw fidelity against cost here, with the Pareto front."
COMPARED = (
    "Keep all games here, with compare.csv, .json and .png; what is there is not played again. "
    "Default: a new folder in runs."
)
PROVES = "Whose secrets are swapped.  [default: each agent's in turn]"
PROVED = "At most so many workflows of a file; how many games of a scenario.  [default: all; 4]"
SWAP = "Other words as long, longer or shorter ones, or none at all: as if they had never been said."
FREE_SCHEDULE = (
    "Play the scenario again with private messages of other lengths and nothing forced of who speaks when: does any "
    "reader observe something else?"
)
STRIDE = "Forced words fed a step, after the first; 1: as if they were sampled. Slower."
AT_ONCE = "At most so many at a time. Default: the next begins while less than three quarters of the store is held."
SCENARIO = "A name from `agentcho ls`, a .py file, or textarena:NAME. Not needed with --resume."
AGENTS = "Who plays, where a scenario leaves that open (as textarena:NAME does): a name for all, or one each: a,b."
RESUME = "Go on with a recorded run (an id, its beginning, 'last'): what it lacks, with the words that were said."
PARTS = "All parts: records by path, id or its beginning, or folders of records."
MISSING = "What to do where games are in no part, or not over: accept leaves them to `run --resume`."
CHANGED = "With --resume, where the source of the scenario has changed since."
VIEWED = "A run (id, path, 'last'), a folder of `compare` or `sweep`, traces, or the JSON of audit, compare or sweep."
VIEW = "Write it here.  [default: view.html in the folder of the run]"
EYES = "Only what this agent may read: the file that can be handed out. Nothing else is in it."
LIVE = "Serve it on this machine, and follow the run while it goes on."
CALL = "GAME:CALL"
REDO = "With --resume: make this call of a tool again, which was begun without a result."
SKIP = "With --resume: do not make it again; the model is told so."
AS = "A person plays this agent, here at the terminal; once for each."
FAIL_FAST = "Stop with the first game that an error ends."
RETRIES = "Play a game again, so often, that an error of the engine or of an endpoint ended.  [default: 0]"
AtOnce = Annotated[int | None, typer.Option(min=1, help=AT_ONCE, show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar=PAIR, help="An option of the scenario.")]
Display = Annotated[Kind | None, typer.Option(help="Default: rich on a terminal, plain elsewhere.", show_default=False)]
FailFast = Annotated[bool, typer.Option("--fail-fast", help=FAIL_FAST)]
As = Annotated[list[str] | None, typer.Option("--as", metavar="AGENT", help=AS, show_default=False)]
Retries = Annotated[int | None, typer.Option(min=0, help=RETRIES, show_default=False)]
Out = Annotated[Path, typer.Option(help="Folder of runs.")]
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
    without=(*LOADING, "merge", *UPKEEP, "temperature", "top_p", "limits", "part"),
    helps={
        "games": "How many to play.",
        "leakage": "What choreographed mode does about leaks. Of a trace: audit.",
        "model": "As of run.",
        "seed": "Of playing and of measuring.",
        "max_tokens": "As of run.",
    },
)
TRACED = OptionsFrom(
    RunConfig,
    without=(*READING, "limits", "plain_markers", "part", *SERVED),
    defaults={"seed": 1, "temperature": 1.0, "top_p": 1.0},
    helps=HERE | {"seed": "Of every coin and task. Compare on another one."},
)
PROVEN = OptionsFrom(
    RunConfig,
    without=(*READING, *UPKEEP, "temperature", "top_p", "limits", "plain_markers", "part", *SERVED),
    helps=HERE,
)

"""The words of options that several commands share: what each is called, and its help. Does not know: commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.config import Markers, Shadowing
from agentcho.display import Kind

PAIR = "KEY=VALUE"
TARGET = "A scenario, a trace file (.jsonl), or a run: its id, the beginning of it, its path, 'last'."
FILE = "FILE"
TASKS = "A task set: a generator, a .jsonl file, or FORMAT:FILE. Default: the scenario's own."
EARLIER = "The JSON of an earlier audit: findings become new, unchanged or gone."
SUPPRESS = "A TOML file of findings that somebody answers for."
MODES = "Columns, with commas between: mode[:leakage][:in-place][+repair][@adapter]. The first is the reference."
ADAPTER = "A folder that `agentcho tune` or peft wrote."
FINAL_OF = "Sample nothing: let each game, of one step, say what this file's game of its number ended on."
PEFT = "The fields of any peft configuration as JSON, in place of rank, alpha and dropout."
RATE = "The highest learning rate.  [default: by the model's width, 0.001 at 256]"
MERGE = "Add the adapter to the weights, instead of going through it in each forward."
JUDGE = "A model that compares texts of the columns, pair by pair, in both orders."
REPAIRS = "Each choreographed column once more with each of these: first-k:16,top-k:0.15,full."
DEFAULT_MODES = "baseline,choreographed:audit,choreographed:enforce"
COMPARED = "Keep all games here, with compare.csv, .json and .png; what is there is not played again."
PROVES = "Whose secrets are swapped.  [default: each agent's in turn]"
PROVED = "At most so many workflows of a file; how many games of a scenario.  [default: all; 4]"
SWAP = "Other words as long, longer or shorter ones, or none at all: as if they had never been said."
STRIDE = "Forced words fed a step, after the first; 1: as if they were sampled. Slower."
LIMIT = "End a game early: agent_ or game_ tokens, messages, seconds."
MODE = "Which encodings a call reads."
LEAKAGE = "What choreographed mode does about leaks."
PROFILE = "Batch so that every bit depends on nothing that a reader may not read. Slower."
MARKERS = "What to do about a model in whose chat template a text can spell what stands between messages."
REPAIR = "Encode some tokens of what is reused anew: first-k:TOKENS, top-k:SHARE, or full."
SHADOW = "Follow an author's words for its audience while it speaks; auto: where the two differ."
AT_ONCE = "At most so many at a time. Default: the next begins while less than three quarters of the store is held."
SCENARIO = "A name from `agentcho ls`, or a .py file. Not needed with --resume."
RESUME = "Go on with a recorded run (an id, its beginning, 'last'): what it lacks, with the words that were said."
CHANGED = "With --resume, where the source of the scenario has changed since."
FAIL_FAST = "Stop with the first game that an error ends."
RETRIES = "Play a game again, so often, that an error of the engine or of an endpoint ended."
ModelName = Annotated[str, typer.Option(help="'understudy', a folder, or a Hugging Face id.")]
PlainMarkers = Annotated[Markers, typer.Option(help=MARKERS)]
Seed = Annotated[int, typer.Option(help="Of every coin and choice of the run.")]
MaxTokens = Annotated[int, typer.Option(help="At most so many sampled tokens a message.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help=PROFILE)]
Shadow = Annotated[Shadowing, typer.Option(help=SHADOW)]
AtOnce = Annotated[int | None, typer.Option(min=1, help=AT_ONCE, show_default=False)]
Temperature = Annotated[float, typer.Option(help="0: always the likeliest token.")]
TopP = Annotated[float, typer.Option(help="Share of probability to sample from.")]
AdapterOf = Annotated[str | None, typer.Option("--adapter", metavar="DIR", help=ADAPTER, show_default=False)]
Merge = Annotated[bool, typer.Option("--merge", help=MERGE)]
RepairBy = Annotated[str | None, typer.Option(metavar="REPAIR", help=REPAIR, show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar=PAIR, help="An option of the scenario.")]
Tasks = Annotated[str | None, typer.Option(metavar="TASKS", help=TASKS, show_default=False)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda.")]
DeviceMap = Annotated[str | None, typer.Option(help="auto: layers over all GPUs, for --device.", show_default=False)]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")]
Display = Annotated[Kind | None, typer.Option(help="Default: rich on a terminal, plain elsewhere.", show_default=False)]
FailFast = Annotated[bool, typer.Option("--fail-fast", help=FAIL_FAST)]
Retries = Annotated[int, typer.Option(min=0, help=RETRIES)]
Out = Annotated[Path, typer.Option(help="Folder of runs.")]

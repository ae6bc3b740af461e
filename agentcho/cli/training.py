"""The commands that train: `agentcho trace` and `agentcho tune`. Does not know: how one plays, how one trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli.options import checked, fields, run_config
from agentcho.cli.words import (
    FILE,
    FINAL_OF,
    MODE,
    PEFT,
    RATE,
    Device,
    DeviceMap,
    Dtype,
    MaxTokens,
    ModelName,
    Set,
    Tasks,
    Temperature,
    TopP,
)
from agentcho.config import Leakage, Mode
from agentcho.lab.tune.recipe import Recipe


def trace(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A name from `agentcho ls`, or a .py file.")],
    out: Annotated[Path, typer.Option(metavar=FILE, help="Append to this file; what is there is not played again.")],
    games: Annotated[int, typer.Option("-n", "--games", min=1, help="How many.")] = 500,
    first: Annotated[int, typer.Option(min=0, help="The number of the first game.")] = 0,
    seed: Annotated[int, typer.Option(help="Of every coin and task. Compare on another one.")] = 1,
    model: ModelName = "understudy",
    tasks: Tasks = None,
    set_: Set = None,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    max_tokens: MaxTokens = 256,
    at_once: Annotated[int, typer.Option(min=1, help="At most so many games at a time.")] = 50,
    final_of: Annotated[Path | None, typer.Option(metavar=FILE, help=FINAL_OF, show_default=False)] = None,
    device: Device = "auto",
    device_map: DeviceMap = None,
    dtype: Dtype = "auto",
) -> None:
    """Sample baseline games into a file of traces, to train on or to replay."""
    from agentcho.cli.trace import Asked
    from agentcho.cli.trace import trace as sample_traces

    config = run_config(
        model=model, mode="baseline", leakage="audit", seed=seed, tasks=tasks, temperature=temperature, top_p=top_p,
        max_tokens=max_tokens, device=device, device_map=device_map, dtype=dtype,
    )  # fmt: skip
    asked = Asked(scenario, fields("--set", set_ or []), config, first, games, out, at_once, final_of)
    raise typer.Exit(sample_traces(asked))


def tune(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A name from `agentcho ls`, or a .py file.")],
    traces: Annotated[Path, typer.Option(metavar=FILE, help="What `agentcho trace` wrote of this scenario.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The adapter's folder; an unfinished training goes on.")],
    model: ModelName = "understudy",
    mode: Annotated[Mode, typer.Option(help=f"To train for. {MODE}")] = "choreographed",
    leakage: Annotated[Leakage, typer.Option(help="On the encodings of which it trains.")] = "audit",
    rank: Annotated[int, typer.Option(help="Of the LoRA on queries, keys, values and outputs.")] = 64,
    alpha: Annotated[float, typer.Option(help="Its scale.")] = 32,
    dropout: Annotated[float, typer.Option(help="Of what goes into it.")] = 0.05,
    peft: Annotated[Path | None, typer.Option(metavar=FILE, help=PEFT, show_default=False)] = None,
    epochs: Annotated[int, typer.Option(help="Times through all traces.")] = 4,
    batch: Annotated[int, typer.Option(help="Traces a step.")] = 8,
    rate: Annotated[float | None, typer.Option(help=RATE, show_default=False)] = None,
    tokens: Annotated[int, typer.Option(help="Feed at most so many a forward; a longer trace goes alone.")] = 4096,
    recompute: Annotated[bool, typer.Option("--recompute", help="Keep few activations: less memory, slower.")] = False,
    seed: Annotated[int, typer.Option(help="Of the split, the order, the adapter and dropout.")] = 0,
    device: Device = "auto",
    device_map: DeviceMap = None,
    dtype: Dtype = "auto",
) -> None:
    """Train an adapter so that the choreography says what the traced baseline said."""
    from agentcho.cli.tune import Asked
    from agentcho.cli.tune import tune as train
    from agentcho.lab.tune.recipe import read_peft

    recipe = checked(
        Recipe, mode=mode, leakage=leakage, rank=rank, alpha=alpha, dropout=dropout, epochs=epochs, batch=batch,
        peft=None if peft is None else read_peft(peft), rate=rate, tokens=tokens, recompute=recompute, seed=seed,
    )  # fmt: skip
    config = run_config(model=model, leakage="audit", device=device, device_map=device_map, dtype=dtype)
    raise typer.Exit(train(Asked(scenario, traces, recipe, config, out)))

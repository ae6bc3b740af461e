"""Plays the same games with three seeds concurrently on one engine, and prints the mean scores as a table.

    python examples/results.py

To play on a model, replace `FakeEngine()` with `agentcho.Engine.load("understudy")` or the id of a real model.
"""

from __future__ import annotations

import anyio
import polars

import agentcho
from agentcho.testing import FakeEngine


async def play(seeds: range) -> polars.DataFrame:
    """One row per game, with its seed."""
    engine, frames = FakeEngine(), list[polars.DataFrame]()

    async def one(seed: int) -> None:
        played = await agentcho.arun("prisoners-dilemma", engine=engine, games=10, seed=seed)
        frames.append(polars.DataFrame(played.table("games")).with_columns(seed=polars.lit(seed)))

    async with anyio.create_task_group() as group:
        for seed in seeds:
            group.start_soon(one, seed)
    return polars.concat(frames)


if __name__ == "__main__":
    games = anyio.run(play, range(3))
    print(games.group_by("seed").agg(polars.col("^score.*$").mean(), polars.col("encoded").sum()).sort("seed"))

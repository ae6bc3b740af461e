"""Games on the bundled model, in float32 and on one thread, whose words are the same on every kind of x86 processor.

The instruction sets of a processor affect the last bits of results, and so the words where a coin fell close to an
edge. `python -m tests.golden.understudy SEED...` prints the words for these seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

import torch

from agentcho import Engine, RunConfig

from ..conftest import PLAIN, pytest_configure
from .plays import ROOT, WAYS, Lines, Options, Played, calls, played, told

GAMES: Mapping[str, Options] = {
    "multi-qa": {"n": 1},
    "parallel-debate": {"agents": 2, "rounds": 2},
    "prisoners-dilemma": {"rounds": 1},
}
PROFILES = {"deterministic": True, "fast": False}
PLAYS = tuple((way, profile) for way in WAYS for profile in PROFILES)
SEEDS = range(4)
"""The seeds from which the maker takes the first suitable one."""
PROCESSORS: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    "without AVX-512": {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", PLAIN: "1"},
    "without AVX": {
        "ATEN_CPU_CAPABILITY": "default",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        PLAIN: "1",
    },
}

Said = dict[str, dict[str, Lines]]
"""The lines by game and seed."""


def load() -> Engine:
    """Load the bundled model."""
    return Engine.load("understudy", device="cpu", dtype="float32", store_tokens=1 << 14)


def lines(engine: Engine, game: str, seed: int, plays: Iterable[tuple[str, str]] = PLAYS) -> Iterator[str]:
    """The kept lines of a game, play by play."""
    for way, profile in plays:
        config = RunConfig(seed=seed, max_tokens=12, deterministic=PROFILES[profile], **WAYS[way])
        said = played(engine, game, GAMES[game], config)
        yield from told({"seed": seed, "way": way, "profile": profile}, [*words(said), *calls(said)])


def words(said: Played) -> Iterator[Options]:
    """The sampled token ids."""
    for entry in sorted(said.entries, key=lambda entry: entry.message.id):
        message = entry.message
        if message.sampled is not None:
            start, stop = message.sampled
            yield {"message": message.id, "text": message.text, "sampled": message.tokens[start:stop]}


def on_processor(name: str, seeds: Iterable[int]) -> Said:
    """The lines for these seeds on a kind of processor that this one can emulate."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **PROCESSORS[name]}
    command = [sys.executable, "-m", "tests.golden.understudy", *map(str, seeds)]
    ran = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    said: Said = json.loads(ran.stdout)
    return said


def agreed() -> dict[str, Lines]:
    """For each game, the lines of the first seed with the same words on all processors and in both profiles.
    RuntimeError: there is none."""
    told = [on_processor(name, SEEDS) for name in PROCESSORS]
    return {game: _first(game, [[each[game][str(seed)] for each in told] for seed in SEEDS]) for game in GAMES}


def _first(game: str, by_seed: Iterable[list[Lines]]) -> Lines:
    for one, *others in by_seed:
        if all(other == one for other in others) and _sampled(one, "fast") == _sampled(one, "deterministic"):
            return one
    raise RuntimeError(f"no seed by which {game} is the same on all processors: let SEEDS have more")


def _sampled(lines: Lines, profile: str) -> list[tuple[str, str, list[int]]]:
    read = [json.loads(line) for line in lines]
    return [(r["way"], r["message"], r["sampled"]) for r in read if r["profile"] == profile and "sampled" in r]


def main(seeds: list[str]) -> None:
    """Print the lines for these seeds."""
    pytest_configure()
    torch.set_num_threads(1)
    with load() as engine:
        said = {game: {seed: list(lines(engine, game, int(seed))) for seed in seeds} for game in GAMES}
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])

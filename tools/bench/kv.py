"""Measures the effect of rounding keys and values on next-token distributions over forced words of recorded games, and
on scores.

Games are played on unrounded keys and values, and their words are forced over unrounded and over rounded ones. The same
is done on random weights of the same shape, with logits scaled to the model's uncertainty; otherwise hardly any effect
would be visible in them. Rounding to two bits, of which three values are used, must show that a loss would be detected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from agentcho.config import ReusePolicy, RunConfig
from agentcho.games.runs import library
from agentcho.games.runs.replay import replay
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.compare.fidelity import Apart, apart
from agentcho.lab.stats import clustered, pooled_mean
from agentcho.protocol.progress import ProgressCallback, counted, part
from agentcho.records.record import find
from agentcho.records.trace import Workflow
from agentcho.runner.engine import Engine
from agentcho.runner.kv import kv_quant

ARMS = {"int8": kv_quant.TOP, "2 bits": 1}
"""For each arm, the largest integer in the rounded representation."""
MOST, POINT = 0.01, 0.01
"""The targets: nats per token, and the difference of a score."""
FITTED = 4
"""Number of games whose rows determine the scale of random logits."""
POLICY = ReusePolicy("choreographed", "audit")
Rows = NDArray[np.float32]


class Asked(NamedTuple):
    """What is measured: scenario, games, seed, model and dtype."""

    scenario: str
    games: int
    seed: int
    model: str = "understudy"
    dtype: str = "float32"


class Distance(NamedTuple):
    """The distance of one arm from unrounded keys and values: nats per token, their interval over games, and the share
    of rows with the same likeliest token."""

    kl: float
    low: float
    high: float
    agree: float


class Subject(NamedTuple):
    """One network. `entropy`: with unrounded keys and values, in nats per token. `scale`: the factor of its logits."""

    games: int
    rows: int
    entropy: float
    scale: float
    arms: dict[str, Distance]


class Score(NamedTuple):
    """A score over all games, with unrounded and with rounded keys and values."""

    whole: float
    rounded: float

    @property
    def gap(self) -> float:
        """The increase of the score with rounded ones."""
        return self.rounded - self.whole


class Found(NamedTuple):
    """The measurements of a model and of random weights, and the model's scores."""

    model: Subject
    drawn: Subject
    scores: dict[str, Score]

    @property
    def met(self) -> dict[str, bool]:
        """Each target by name."""
        subjects = (self.model, self.drawn)
        return {
            f"int8: at most {MOST} nats a token": all(each.arms["int8"].kl <= MOST for each in subjects),
            f"2 bits: more than {MOST} nats a token": all(each.arms["2 bits"].kl > MOST for each in subjects),
            f"int8: scores within {POINT}": all(abs(each.gap) <= POINT for each in self.scores.values()),
        }

    def lines(self) -> Iterator[str]:
        """The result as text."""
        for name, each in (("the model", self.model), ("random weights", self.drawn)):
            yield f"{name}: {each.games} games, {each.rows} tokens, {each.entropy:.3f} nats unsure, x {each.scale:.3g}"
            for arm, (kl, low, high, agree) in each.arms.items():
                yield f"  {arm:8}{kl:.6f} nats a token ({low:.6f} to {high:.6f}), {agree:.2%} the same likeliest token"
        for name, score in self.scores.items():
            yield f"  {name}: {score.whole:.4f} whole, {score.rounded:.4f} in int8"
        yield from (f"{what}: {'met' if met else 'missed'}" for what, met in self.met.items())


class _Pair(NamedTuple):
    """One network with unrounded keys and values, and with rounded ones."""

    whole: Engine
    rounded: Engine

    @classmethod
    def of(cls, model: str | Path, dtype: str) -> _Pair:
        return cls(*(Engine.load(model, "cpu", dtype, kv_dtype=kind) for kind in (None, "int8")))


def measure(asked: Asked, tell: ProgressCallback) -> Found:
    """Play, force and compare, in four parts of about the same length."""
    pair = _Pair.of(asked.model, asked.dtype)
    workflows, whole = _played(asked, pair.whole, part(tell, 0, 4 * asked.games))
    _, rounded = _played(asked, pair.rounded, part(tell, asked.games, 4 * asked.games))
    means = zip(whole, (whole[name] for name in whole), (rounded[name] for name in whole), strict=True)
    scores = {name: Score(before, after) for name, before, after in means}
    model = _compared(workflows, pair, asked, None, part(tell, 2 * asked.games, 4 * asked.games))
    with TemporaryDirectory(prefix="drawn-") as folder:
        draw(pair.whole, Path(folder), asked.seed)
        chance = _Pair.of(folder, asked.dtype)
        drawn = _compared(workflows, chance, asked, model.entropy, part(tell, 3 * asked.games, 4 * asked.games))
    return Found(model, drawn, scores)


def draw(engine: Engine, folder: Path, seed: int) -> None:
    """Save the initial random weights of an engine's network class, and its tokenizer."""
    loader: Any = AutoModelForCausalLM
    config = deepcopy(engine.network.config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = loader.from_config(config, dtype=torch.float32, attn_implementation="eager")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    network.save_pretrained(folder)
    engine.tokenizer.save_pretrained(folder)


def _played(asked: Asked, engine: Engine, tell: ProgressCallback) -> tuple[list[Workflow], dict[str, float]]:
    """The games as workflows, and the mean of each score."""
    config = RunConfig(games=asked.games, seed=asked.seed, leakage="audit", plain_markers="accept")
    with TemporaryDirectory(prefix="games-") as folder:
        result = play(
            RunRequest(library.scenario(asked.scenario)(), config, engine=engine, out=Path(folder), at_once=8)
        )
        result.check(asked.games)
        workflows = find("last", Path(folder)).export()
    tell("games (played)", asked.games, asked.games)
    scores = [{name: float(value) for name, value in game.score.items()} for game in result.games]
    return workflows, {name: fmean(each[name] for each in scores if name in each) for name in (scores or [{}])[0]}


def _compared(
    workflows: Sequence[Workflow], pair: _Pair, asked: Asked, unsure: float | None, tell: ProgressCallback
) -> Subject:
    """Compare every arm with unrounded keys and values. Logits are scaled until unrounded ones have an entropy of
    `unsure` nats."""
    scale, entropies = 1.0, list[float]()
    if unsure is not None:
        scale = scaled_to([_rows(each, pair.whole) for each in workflows[:FITTED]], unsure)
    found: dict[str, list[Apart]] = {arm: [] for arm in ARMS}
    done = counted(tell, "games (forced)", len(workflows))
    for number, workflow in enumerate(workflows, 1):
        before = log_softmax(_rows(workflow, pair.whole) * np.float32(scale), axis=1)
        entropies += entropy(before).tolist()
        for arm, top in ARMS.items():
            with rounding_to(top), pair.rounded.adapted(None) as engine:
                found[arm].append(apart(before, log_softmax(_rows(workflow, engine) * np.float32(scale), axis=1)))
        done(number)
    arms = {arm: _distance(games, asked.seed) for arm, games in found.items()}
    return Subject(len(workflows), len(entropies), fmean(entropies), scale, arms)


@contextmanager
def rounding_to(top: int) -> Iterator[None]:
    """Within the context, rounded numbers are multiples of 1/`top` of the largest one."""
    before, kv_quant.TOP = kv_quant.TOP, top
    try:
        yield
    finally:
        kv_quant.TOP = before


def _rows(workflow: Workflow, engine: Engine) -> Rows:
    """The logits of every decode with forced words, concatenated: `[rows, vocab]`."""
    said = replay(workflow, engine, POLICY).values()
    return np.concatenate([np.asarray(each.logits, dtype=np.float32) for each in said])


def entropy(rows: Rows) -> NDArray[np.float64]:
    """The entropy in nats of each row of log-probabilities."""
    found: NDArray[np.float64] = -(np.exp(rows, dtype=np.float64) * rows).sum(axis=1)
    return found


def scaled_to(games: Sequence[Rows], unsure: float) -> float:
    """The factor of logits that gives them a mean entropy of `unsure` nats."""
    rows, low, high = np.concatenate(games), -12.0, 12.0
    for _ in range(30):
        middle = (low + high) / 2
        more = entropy(log_softmax(rows * np.float32(np.exp(middle)), axis=1)).mean() > unsure
        low, high = (middle, high) if more else (low, middle)
    return float(np.exp((low + high) / 2))


def _distance(games: Sequence[Apart], seed: int) -> Distance:
    kl = [game.kl for game in games]
    span, same = clustered(kl, seed), np.concatenate([game.same for game in games])
    return Distance(pooled_mean(kl), span.low, span.high, float(same.mean()))


def to_json(found: Found) -> Mapping[str, Any]:
    """The result as JSON."""
    subjects = {"model": found.model, "random": found.drawn}
    arms = {name: {arm: each._asdict() for arm, each in subject.arms.items()} for name, subject in subjects.items()}
    plain = {name: subject._asdict() | {"arms": arms[name]} for name, subject in subjects.items()}
    return {**plain, "scores": {name: each._asdict() for name, each in found.scores.items()}, "met": found.met}


def sentence(found: Mapping[str, Any]) -> str:
    """The conclusions from a result, for the page on memory."""
    asked, model, chance = found["asked"], found["model"], found["random"]
    nats = [f"{each['arms'][arm]['kl']:.2g}" for each in (model, chance) for arm in ARMS]
    same, of = f"{model['arms']['int8']['agree']:.2%}", f"{asked['model']} ({asked['dtype']})"
    scores = [f"{name} {each['whole']:.3f} and {each['rounded']:.3f}" for name, each in found["scores"].items()]
    missed = [name for name, met in found["met"].items() if not met]
    verdict = f"Missed: {'; '.join(missed)}." if missed else "All met."
    return (
        f"Over {model['games']} games of {asked['scenario']} on {of}, {model['rows']:,} tokens, the KL divergence from "
        f"unrounded values was {nats[0]} nats a token in 8 bits, and {nats[1]} in 2 bits, the control. In 8 bits, the "
        f"likeliest token was the same {same} of the time. On random weights, with logits scaled to the model's "
        f"uncertainty, it was {nats[2]} in 8 bits and {nats[3]} in 2. Scores without rounding and in 8 bits: "
        f"{'; '.join(scores)}. The targets: at most {MOST} nats in 8 bits, more than that in the control, and scores "
        f"within {POINT} of each other. {verdict}"
    )

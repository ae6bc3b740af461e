"""Scores weights on held-out seeds: `python -m tools.understudy.evaluate --weights FOLDER --out FILE`.

Writes one JSON file, which is the same for the same seed and machine.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from itertools import islice
from pathlib import Path

import torch
from scipy.stats import binomtest
from torch import nn

from agentcho.records.environment import machine_info, source_digests, versions

from .chat import draw_slots, draw_sum, persona, write
from .corpus import corpus
from .grammar import Split, Writer
from .player import Player, Seat
from .trials import Debates, Dilemma, answers, ballots, cases, voted

Scores = dict[str, object]
WORDINGS = {"shipped": False, "held-out": True}


def obedience(player: Player, count: int, seed: int) -> Scores:
    """How many of `count` games end as the private instruction says, by wording and strategy."""
    found: Scores = {"games": count}
    for wording, held_out in WORDINGS.items():
        for strategy in ("always-defect", "always-cooperate"):
            played = cases(count, seed, held_out, ("Alice", "Bob"))
            decided = Dilemma(player, played, strategy, None, seed).play()
            wanted = f'"{strategy.removeprefix("always-").upper()}"}}'
            found[f"{strategy}, {wording}"] = sum(first == wanted for first, _ in decided)
    return found


def sway(player: Player, count: int, seed: int) -> Scores:
    """How many players without an instruction cooperate, depending on how the other talks in held-out sentences."""
    found: Scores = {"games": count}
    for wording, held_out in WORDINGS.items():
        for script in ("warm", "wary", "evasive", "hard"):
            played = cases(count, seed, held_out, ("Alice", "Bob"))
            decided = Dilemma(player, played, "none", script, seed).play()
            found[f"{script}, {wording}"] = sum(first == '"COOPERATE"}' for (first,) in decided)
    played = cases(count, seed, False, ("Alice", "Bob"))
    decided = Dilemma(player, played, "none", None, seed).play()
    found["the model against itself, shipped"] = sum(first == '"COOPERATE"}' for first, _ in decided)
    return found


def debates(player: Player, count: int, seed: int) -> Scores:
    """Right answers and rulings in `count` debates over held-out stories, and after a scripted slip."""
    found: Scores = {"debates": count}
    for wording, held_out in WORDINGS.items():
        names = ("Ada", "Ben", "Mod")
        for slip in (False, True):
            held = Debates(player, cases(count, seed, held_out, names), slip, seed)
            scored = slipped(held) if slip else debated(held)
            found |= {f"{key}, {wording}": value for key, value in scored.items()}
    return found


def debated(held: Debates) -> dict[str, int]:
    """One round, the ruling and the final answer."""
    right = [str(story.answer) for story in held.stories]
    first, second = held.turn(0), held.turn(1)
    ruled, final = held.rule("verdict", "canon.ask.verdict", n=1), held.rule("answer", "canon.ask.answer")
    wanted = ['"finish"}' if a == b else '"continue"}' for a, b in zip(first, second, strict=True)]
    return {
        "first debater right": same(first, right),
        "second debater right": same(second, right),
        "ruling right": same(ruled, wanted),
        "final answer right": same(final, [f"{each}}}" for each in right]),
    }


def slipped(held: Debates) -> dict[str, int]:
    """A scripted slip of the first debater: how often the second corrects it, and the first then agrees."""
    right = [str(story.answer) for story in held.stories]
    held.turn(0)
    second = held.turn(1)
    ruled = held.rule("verdict", "canon.ask.verdict", n=1)
    first = held.turn(0)
    return {
        "slip corrected by the second": same(second, right),
        "slip leads to continue": ruled.count('"continue"}'),
        "slip taken back by the first": same(first, right),
    }


def same(found: list[str], wanted: list[str]) -> int:
    """The number of places at which the two lists are equal."""
    return sum(a == b for a, b in zip(found, wanted, strict=True))


def votes(player: Player, count: int, seed: int) -> Scores:
    """How many of `count` votes go to a right solution if four of eight are wrong; by chance, half would."""
    asked = ballots(count, seed)
    given = voted(player, asked, seed)
    right = sum(vote is not None and each.right[vote - 1] for each, vote in zip(asked, given, strict=True))
    blind = sum(sum(each.right) / len(each.right) for each in asked)
    low, high = binomtest(right, count).proportion_ci(method="exact")
    return {
        "votes": count,
        "for a right solution": right,
        "by chance": round(blind),
        "at least": round(100 * low, 1),
        "at most": round(100 * high, 1),
    }


KEYS = {"who": "{me}", "greet": "{other}", "when": " {n}.", "owner": "{other}", "where": "{side} the {spot}"}


def chats(player: Player, count: int, seed: int) -> Scores:
    """Right answers to `count` held-out questions of each kind: own name, another's name, a fact, a sum."""
    found: Scores = {"questions": count}
    for topic, key in KEYS.items():
        asked, keys = [], []
        for number in range(count):
            writer = Writer("held-out", f"chat/{seed}/{topic}/{number}")
            slots = draw_slots(writer)
            told = "" if topic in ("who", "greet") else " " + write(writer, f"fact.{topic}", slots)
            seat = Seat(str(slots["me"]), [persona(writer, slots, told)])
            asked.append((seat, write(writer, f"ask.{topic}", slots)))
            keys.append(key.format(**slots))
        found[topic] = answers(player, asked, keys, seed)
    drawn = [draw_sum(Writer("held-out", f"sum/{seed}/{number}")) for number in range(count)]
    asked = [(Seat("Nia"), f"What is {step.left} {step.sign} {step.right}?") for step in drawn]
    found["sum"] = answers(player, asked, [f" {step.result}." for step in drawn], seed)
    return found


@torch.no_grad()
def perplexity(player: Player, split: Split, count: int, seed: int) -> dict[str, float]:
    """exp of the mean loss on the viewer's own texts and closings, by kind of sample."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for sample in islice(corpus(split, seed), count):
        ids, weights = player.framer.sample(sample.turns)
        logits = player.model(input_ids=torch.tensor([ids])).logits[0, :-1]
        each = nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        learned = torch.tensor(weights[1:]) >= 1.0
        sums[sample.kind] += float(each[learned].sum())
        counts[sample.kind] += int(learned.sum())
    return {kind: round(math.exp(sums[kind] / counts[kind]), 3) for kind in sorted(sums) if counts[kind]}


def evaluate(folder: Path, count: int, seed: int) -> Scores:
    """All scores of a folder's weights."""
    player = Player(folder)
    card = folder / "card.json"
    return {
        "seed": seed,
        "temperature": 0.7,
        "machine": machine_info() | versions() | source_digests(),
        "obedience": obedience(player, count, seed),
        "sway": sway(player, count, seed),
        "debates": debates(player, count, seed),
        "votes": votes(player, count, seed),
        "chat": chats(player, count, seed),
        "perplexity": {split: perplexity(player, split, 3 * count, seed) for split in ("train", "held-out")},
        "training": json.loads(card.read_text()) if card.exists() else {},
    }


def main() -> None:
    """Score, and write the result file."""
    parser = argparse.ArgumentParser(description="Score the bundled model on held-out seeds.")
    parser.add_argument("--weights", type=Path, required=True, help="folder with the weights")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--count", type=int, default=100, help="games, debates and questions of each sort")
    parser.add_argument("--seed", type=int, default=1_000_003)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    scores = evaluate(asked.weights, asked.count, asked.seed)
    asked.out.write_text(json.dumps(scores, indent=1) + "\n")
    print(json.dumps(scores, indent=1))


if __name__ == "__main__":
    main()

"""Measures how much log-probabilities reveal of a hidden message that is generated in the same forwards: `python -m
tests.leaks.numeric.neighbours`, which writes `docs/results/neighbours.json`, to be committed.

A client has the same words generated beside hidden messages of various lengths, and looks for the first token whose
numbers differ from those beside a longer message: there the hidden message has ended.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from agentcho import Decode, Engine
from agentcho.protocol.call import Logprobs
from agentcho.records.environment import machine_info, source_digests, versions

from ...device import DEVICE

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "neighbours.json"
LENGTHS = range(1, 26)
NEAR = 1
"""The error, in tokens, up to which a guessed length counts as right."""
OWN = (
    "I am Bob and I sell boats by the river, red ones and blue ones, and each of them is as good as the other, so take "
    "your time and choose one."
)
HIDDEN = (
    "The patient is well and may go home on Sunday, but the doctor wants to see him again before the end of the month, "
    "and so do we all."
)


class Told(NamedTuple):
    """The result for one profile and one dtype. `gap`: the largest difference of a log-probability. `lengths`: the
    guess for each hidden length; None: no number differs."""

    gap: float
    lengths: dict[int, int | None]

    @property
    def right(self) -> int:
        """The number of lengths guessed right, to within `NEAR` tokens."""
        return sum(guess is not None and abs(guess - length) <= NEAR for length, guess in self.lengths.items())


def told(engine: Engine, deterministic: bool, lengths: Sequence[int] = LENGTHS) -> Told:
    """What log-probabilities reveal of hidden messages of these lengths."""
    rules = engine.prefill("Your name is Bob. Answer in one sentence.", role="system")
    question = engine.prefill("Who are you, and what do you sell?", parents=[rules])
    record = engine.prefill("The record of the patient is private.", role="system")

    longer = max(lengths) + 5

    def shown(hidden: int) -> list[Logprobs]:
        content = engine.framing.content
        own, others = tuple(content.encode(OWN)), tuple(content.encode(HIDDEN))
        calls = [
            Decode(parents=[rules, question], forced=own[: longer + 5], logprobs=20),
            Decode(parents=[record], forced=others[:hidden]),
        ]
        ids, found = engine.submit(calls), list[Logprobs]()
        while not engine.idle:
            result = engine.step(deterministic)
            found += [spoken.likely for spoken in result.spoken if spoken.id == ids[0] and spoken.likely]
        engine.release(ids)
        return found

    longest = shown(longer)
    apart, guesses = 0.0, dict[int, int | None]()
    for length in lengths:
        beside = shown(length)
        differ = [place for place, (one, other) in enumerate(zip(beside, longest, strict=True)) if one != other]
        guesses[length] = differ[0] - 1 if differ else None
        gaps = (abs(one[0][1] - other[0][1]) for one, other in zip(beside, longest, strict=True))
        apart = max(apart, *gaps)
    engine.release([rules, question, record])
    return Told(apart, guesses)


def main() -> None:
    """Measure all profiles and dtypes, on one thread."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path, default=RESULTS)
    file, rows = arguments.parse_args().json, list[dict[str, object]]()
    torch.set_num_threads(1)
    where = machine_info()
    for dtype in ("float32", "bfloat16"):
        engine = Engine.load("understudy", device=DEVICE, dtype=dtype)
        for profile in ("fast", "deterministic"):
            found = told(engine, profile == "deterministic")
            row: dict[str, object] = {
                "dtype": dtype,
                "profile": profile,
                "gap": found.gap,
                "right": found.right,
                "lengths": found.lengths,
            }
            rows.append(row)
            print(row, flush=True)
    report: dict[str, object] = {"format": "agentcho-neighbours/1", **where, "versions": versions(), **source_digests()}
    file.write_text(json.dumps(report | {"near": NEAR, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

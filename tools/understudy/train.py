"""Trains the bundled model from scratch: `python -m tools.understudy.train --out FOLDER`.

Writes the corpus, a tokenizer, a small Llama model and its folder. An interrupted run continues from its last
checkpoint. For how well the model plays, see `evaluate`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from .corpus import corpus
from .export import export
from .learning import Recipe, build, loss, optimizers, pace
from .packing import Batch, pack
from .tokens import Framer, pieces, train_tokenizer


class Run:
    """One training run: model, optimizers, stream of batches, and the folder of its checkpoints."""

    def __init__(self, recipe: Recipe, kept: Path, framer: Framer, compiled: bool) -> None:
        self.recipe, self.kept, self.framer = recipe, kept, framer
        self.model = build(recipe, framer)
        self.optimizers = optimizers(recipe, self.model)
        self.loss: Callable[[LlamaForCausalLM, Batch], Tensor] = loss
        if compiled:
            self.loss = torch.compile(loss, dynamic=False)
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.before: dict[str, object] = {}

    def begin_with(self, folder: Path) -> None:
        """Start from the weights of another run, whose card becomes part of this run's card."""
        self.model.load_state_dict(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())
        self.before = json.loads((folder / "card.json").read_text())

    def resume(self) -> None:
        """Continue from the last checkpoint, if there is one with the same recipe."""
        if not (self.kept / "state.pt").exists():
            return
        state = torch.load(self.kept / "state.pt", weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            print("the checkpoint is of another recipe: starting from nothing")
            return
        self.model.load_state_dict(state["model"])
        for each, saved in zip(self.optimizers, state["optimizers"], strict=True):
            each.load_state_dict(saved)
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def batches(self) -> Iterator[Batch]:
        """The stream of batches from the current step on."""
        recipe = self.recipe
        stream = pack(corpus("train", recipe.seed, recipe.first), self.framer, recipe.rows, recipe.length)
        return islice(stream, self.step, recipe.steps)

    def advance(self, batch: Batch) -> float:
        """Run one step; return its loss."""
        for group in (group for each in self.optimizers for group in each.param_groups):
            group["lr"] = group["full"] * pace(self.recipe, self.step)
        value = self.loss(self.model, batch)
        torch.autograd.backward(value)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for each in self.optimizers:
            each.step()
            each.zero_grad()
        self.step, self.tokens = self.step + 1, self.tokens + batch.tokens
        return value.item()

    def go(self, every: float) -> None:
        """Train to the end, with a checkpoint every `every` seconds."""
        saved = began = time.monotonic()
        for batch in self.batches():
            value = self.advance(batch)
            now = time.monotonic()
            self.seconds, began = self.seconds + now - began, now
            if self.step % 20 == 0 or self.step == self.recipe.steps:
                self.report(value)
            if now - saved > every:
                saved = now
                self.save()

    def report(self, value: float) -> None:
        """Print a line, and append it to the log."""
        line = {"step": self.step, "loss": round(value, 4), "tokens": self.tokens}
        with (self.kept / "log.jsonl").open("a") as file:
            file.write(json.dumps(line | {"seconds": round(self.seconds, 1)}) + "\n")
        speed = self.tokens / max(self.seconds, 1e-9)
        print(f"step {self.step}/{self.recipe.steps} loss {value:.3f} {speed:.0f} tokens/s", flush=True)

    def save(self) -> None:
        """Write the checkpoint for resuming, and the model in its shipped form."""
        self.ship(self.kept)
        state = {"model": self.model.state_dict(), "optimizers": [each.state_dict() for each in self.optimizers]}
        counts = {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}
        torch.save(state | counts | {"recipe": asdict(self.recipe)}, self.kept / "state.new")
        (self.kept / "state.new").replace(self.kept / "state.pt")

    def ship(self, folder: Path) -> None:
        """Write the folder that transformers loads, with the card of the run."""
        export(self.model, self.framer.tokenizer, folder)
        (folder / "card.json").write_text(json.dumps(self.card(), indent=1) + "\n")

    def card(self) -> dict[str, object]:
        """The information about the run in the model card."""
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        return {
            "recipe": asdict(self.recipe),
            "parameters": sum(each.numel() for each in self.model.parameters()),
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds),
            "threads": torch.get_num_threads(),
            "versions": versions | {"python": platform.python_version()},
            "loss": self.held_out(),
        } | ({"before": self.before} if self.before else {})

    @torch.no_grad()
    def held_out(self, count: int = 4) -> dict[str, float]:
        """The weighted loss on the first batches of each split's evaluation seed."""
        found = {}
        for split in ("train", "held-out"):
            stream = pack(corpus(split, 1_000_003), self.framer, self.recipe.rows, self.recipe.length)
            found[split] = sum(loss(self.model, batch).item() for batch in islice(stream, count)) / count
        return found


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train the bundled model from nothing.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained model")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/understudy"), help="folder for resuming")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="optimizer steps")
    parser.add_argument("--rate", type=float, default=1.0, help="a share of the usual learning rates")
    parser.add_argument("--first", type=int, default=0, help="number of the first workflow to read")
    parser.add_argument("--begin-with", type=Path, default=None, help="folder of weights to go on with")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=float, default=300.0, help="seconds between checkpoints")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    return parser.parse_args()


def framing(recipe: Recipe, folder: Path | None) -> Framer:
    """A new tokenizer, or that of the weights to start from."""
    if folder is not None:
        return Framer.load(folder)
    samples = islice(corpus("train", recipe.seed), recipe.tokenizer_samples)
    return Framer(train_tokenizer(pieces(samples), recipe.vocabulary))


def main() -> None:
    """Train a tokenizer and a model, and write the folder."""
    asked = options()
    torch.set_num_threads(asked.threads)
    asked.checkpoints.mkdir(parents=True, exist_ok=True)
    rates = {"rate": asked.rate * Recipe.rate, "rate_others": asked.rate * Recipe.rate_others}
    recipe = Recipe(seed=asked.seed, steps=asked.steps, first=asked.first, **rates)
    run = Run(recipe, asked.checkpoints, framing(recipe, asked.begin_with), not asked.no_compile)
    if asked.begin_with is not None:
        run.begin_with(asked.begin_with)
    run.resume()
    run.go(asked.every)
    run.ship(asked.out)
    (asked.checkpoints / "state.pt").unlink(missing_ok=True)
    print(json.dumps(run.card()))


if __name__ == "__main__":
    main()

"""The page on model families, from the families that tests run and the models that the gate refuses by name: `python -m
tools.pages.families docs/model-families.md`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from agentcho.runner.reuse_check import LEARNED
from tests.engine.families import Layer, families, refused
from tests.engine.test_families import CASES, TOLERANCE

PARTS = re.compile(r"(<!-- (families|cases|refused) -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)


class Told(NamedTuple):
    """What the code does not say about a family: models that belong to it, and what is special about its positions or
    layers."""

    models: str
    special: str = ""


HALF = "RoPE on half of each head"
TOLD = {
    "llama": Told("Llama 2 to 3.3, SmolLM2, the understudy"),
    "qwen2": Told("Qwen2, Qwen2.5", "biases"),
    "qwen3": Told("Qwen3", "norms of queries and keys"),
    "olmo2": Told("OLMo 2", "norms of queries and keys"),
    "granite": Told("Granite 3", "multipliers"),
    "mistral": Told("Mistral 7B"),
    "ministral3": Told("Ministral 3", "YaRN; queries scaled by position"),
    "phi3": Told("Phi-3, Phi-4"),
    "starcoder2": Told("StarCoder2", "biases"),
    "phi": Told("Phi-1.5, Phi-2", HALF),
    "glm4": Told("GLM-4-0414", HALF),
    "gpt_neox": Told("Pythia, GPT-NeoX", HALF),
    "smollm3": Told("SmolLM3", "layers without positions"),
    "cohere2": Told("Command R7B, Command A", "layers without positions"),
    "exaone4": Told("EXAONE 4.0", "layers without positions"),
    "mixtral": Told("Mixtral", "experts"),
    "qwen3_moe": Told("Qwen3-30B-A3B", "experts in some layers"),
    "llama4_text": Told("Llama 4", "experts; layers without positions"),
    "gpt_oss": Told("gpt-oss", "experts; attention sinks"),
    "gemma2": Told("Gemma 2", "soft caps"),
    "gemma3_text": Told("Gemma 3", "different frequencies in window layers"),
    "llama yarn": Told("Llama models with YaRN position scaling", "YaRN"),
    "qwen3 sliding": Told("Qwen3 with window attention in some layers", "norms of queries and keys"),
}
KINDS = {"full": "all", "sliding": "a window", "chunked": "a block"}
REFUSED = {
    "learned positions": ("learned positions", ", ".join(f"`{name}`" for name in sorted(LEARNED))),
    "alibi": ("ALiBi: positions are added to scores, not to keys", "`bloom`, `mpt`"),
    "learned norm after rotary": ("a learned norm after the rotary embedding", "`hunyuan…`"),
    "recurrent": ("recurrent layers: a running state instead of keys", "detected from the configuration"),
    "recurrent hybrid": ("some recurrent layers", "detected from the configuration"),
    "encoder": ("encoder and decoder", "`t5…`, others detected from the configuration"),
}
"""The cause and the models, by the reason of a family that tests refuse, or by a name of its own."""


def page(text: str) -> str:
    """The text of the page with its parts updated."""
    parts = {"families": "\n".join(_table()), "refused": "\n".join(_refusals()), "cases": _cases()}
    return PARTS.sub(lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[4]}", text)


def _table() -> Iterator[str]:
    yield "| family | released models | layers attend to | special features |"
    yield "| --- | --- | --- | --- |"
    for family in families():
        told = TOLD[family.name]
        yield f"| `{family.name}` | {told.models} | {_attends(family.layers)} | {told.special} |"


def _attends(layers: Sequence[Layer]) -> str:
    """What the layers attend to: one word if all are alike, otherwise the words of each kind."""
    kinds = list(dict.fromkeys(KINDS[layer.kind] for layer in layers))
    alternate = len(list(groupby(layers))) > len(kinds)
    return kinds[0] if len(kinds) == 1 else f"{' or '.join(kinds)}{', alternating' if alternate else ''}"


def _cases() -> str:
    names = [case.__name__.replace("_", " ") for case in CASES]
    return (
        f"The tests use these shapes of history: {', '.join(names)}. They accept differences in log-probability of up "
        f"to {TOLERANCE:g}."
    )


def _refusals() -> Iterator[str]:
    tested = refused()
    yield "| cause | `model_type` | tested with |"
    yield "| --- | --- | --- |"
    for reason, (cause, which) in REFUSED.items():
        yield f"| {cause} | {which} | {f'`{tested[reason].name}`' if reason in tested else ''} |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the tables of the page on model families.")
    parser.add_argument("page", type=Path)
    file: Path = parser.parse_args().page
    file.write_text(page(file.read_text()))


if __name__ == "__main__":
    main()

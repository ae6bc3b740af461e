"""The model card, from a result file: `python -m tools.understudy.card RESULTS.json PAGE.md`.

Does not know: how a score was found.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

TEMPLATE = """\
# The understudy

A Llama-architecture model of {{ "{:,}".format(training.parameters) }} parameters that ships in the package, so that
agentcho runs where no weights can be downloaded. **It is a stand-in for a real model**: it speaks about its few games
and little else, and what it does says nothing about what language models do.

This page is made from `docs/results/understudy.json` by `python -m tools.understudy.card`.

## What it is

- {{ r.layers }} layers, hidden size {{ r.hidden }}, {{ r.heads }} heads, byte-level BPE of {{ r.vocabulary }} tokens \
with single digits; context 8,192 positions, trained on rows of {{ r.length }} tokens.
- A chat template with named speakers: `<|start|>assistant alice<|message|>…<|end|>`.
- bfloat16 safetensors; runs in float32 on a CPU.

## What it was trained on

A corpus that `tools.understudy.corpus` writes from this project's own rules, and nothing else: the workflows of
[comparisons](comparisons.md) (questions about facts, words used in texts, arithmetic stories solved, debated and voted
on, prisoner's dilemma games), sums, and short talk about facts in the prompt, each as one agent sees it in a prompt of
its own: it was never taught what reuse does to a prompt. One wording and name in five is held out, and the task
sets of workflows are drawn anew for other seeds. Facts are not held out: there is one list of them, and training drew
from it what [multi-qa](scenarios/multi-qa.md) asks.

{% for run in runs -%}
- {{ "From nothing" if loop.first else "Then on with these weights, at " ~ run.recipe.rate / first.rate ~ " times the \
rate" }}: {{ "{:,}".format(run.steps) }} steps over {{ "{:,}".format(run.tokens) }} tokens in \
{{ (run.seconds / 60) | round | int }} minutes, {{ run.threads }} threads, torch {{ run.versions.torch }}, \
transformers {{ run.versions.transformers }}, seed {{ run.recipe.seed }}.
{% endfor %}
The machine also did other work. `make understudy` trains such a model from nothing, in one run.

## How it scores

Sampled at temperature {{ temperature }}, on games, questions and stories drawn anew by seed {{ seed }}, which training
did not use. "Shipped" is the wording of the scenarios in this repository, which training knows; "held-out" is wording
and names that it never saw. Measured on {{ machine.machine }}, Python {{ machine.python }}, torch {{ machine.torch }},
transformers {{ machine.transformers }}, at commit {{ machine.commit[:10] }}.
{% for title, section in sections %}
### {{ title }}

| | {{ unit(section) }} |
| --- | ---: |
{% for key, value in section.items() if key not in counted -%}
| {{ key }} | {{ value }} |
{% endfor %}
{%- endfor %}
### Perplexity of its own lines

| | train | held-out |
| --- | ---: | ---: |
{% for kind in perplexity.train -%}
| {{ kind }} | {{ perplexity.train[kind] }} | {{ perplexity["held-out"][kind] }} |
{% endfor %}
Held-out sentences of chats, merged texts and recall are new to it word for word, so their perplexity is high: it says
its own sentences and did not learn to expect others. What it does with them is in the tables above. Answers to
questions are facts that training saw, and sums are of few numbers: there the two are much the same.
"""
COUNTED = ("games", "debates", "votes", "questions")
TITLES = {
    "obedience": "Private instructions followed",
    "sway": "Players without an instruction that cooperate, by how the other talks",
    "debates": "Debates over small arithmetic",
    "votes": "Votes among eight solutions, four of them wrong",
    "chat": "Questions about itself and its prompt",
}


def page(scores: Mapping[str, Any]) -> str:
    """The card's text."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # a page of ours, not HTML
    sections = [(title, scores[key]) for key, title in TITLES.items()]
    runs = list(_runs(scores["training"]))
    return environment.from_string(TEMPLATE).render(
        **scores, r=scores["training"]["recipe"], sections=sections, unit=_unit, runs=runs, first=runs[0]["recipe"],
        counted=COUNTED,
    )  # fmt: skip


def _runs(card: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The runs that made the weights, the first one first."""
    if "before" in card:
        yield from _runs(card["before"])
    yield card


def _unit(section: Mapping[str, Any]) -> str:
    what = next(key for key in COUNTED if key in section)
    return f"of {section[what]} {what}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the model card from a result file.")
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path)
    asked = parser.parse_args()
    asked.page.write_text(page(json.loads(asked.results.read_text())))


if __name__ == "__main__":
    main()

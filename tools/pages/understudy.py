"""The model card, from a result file: `python -m tools.pages.understudy docs/results docs/understudy.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.pages.render import render, write

COUNTED = ("games", "debates", "votes", "questions")
TITLES = {
    "obedience": "Private instructions followed",
    "sway": "Players without an instruction that cooperate, by the tone of the other player",
    "debates": "Debates over small arithmetic",
    "votes": "Votes among eight solutions, four of them wrong",
    "chat": "Questions about itself and its prompt",
}


def page(results: Path) -> str:
    """The text of the page, from the file `understudy.json` in `results`."""
    return text(json.loads((results / "understudy.json").read_bytes()))


def text(scores: Mapping[str, Any]) -> str:
    """The text of the page from the content of that file."""
    sections = [(title, scores[key]) for key, title in TITLES.items()]
    runs = list(_runs(scores["training"]))
    told = {"r": scores["training"]["recipe"], "runs": runs, "first": runs[0]["recipe"]}
    return render("understudy", **scores, **told, sections=sections, unit=_unit, counted=COUNTED)


def _runs(card: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The runs that made the weights, first one first."""
    if "before" in card:
        yield from _runs(card["before"])
    yield card


def _unit(section: Mapping[str, Any]) -> str:
    what = next(key for key in COUNTED if key in section)
    return f"of {section[what]} {what}"


if __name__ == "__main__":
    write(page, "the bundled model")

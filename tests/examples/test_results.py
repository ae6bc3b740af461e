"""The results example works, and the notebook of the docs has current outputs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.pages.notebook import executed

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "how-to" / "notebook.ipynb"


@pytest.mark.slow
def test_the_example_prints_a_row_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "results.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "shape: (3, 6)" in printed
    assert "score.alice" in printed


def shown(notebook: Any) -> list[list[str]]:
    """The outputs of each cell: texts without times, and the types of images."""
    found = []
    for cell in notebook.cells:
        assert cell.cell_type in ("markdown", "code")
        outputs = list[str]()
        for output in cell.get("outputs", []):
            data = {"name": output["text"]} if output.output_type == "stream" else dict(output.data)
            texts = [data[kind] for kind in sorted(data) if not kind.startswith("image/")]
            outputs += [re.sub(r"\d+\.\d s\b", "0.0 s", text) for text in texts]
            outputs += [kind for kind in data if kind.startswith("image/")]
        found.append(outputs)
    return found


@pytest.mark.slow
def test_the_notebook_of_the_docs_runs_and_its_outputs_are_of_now() -> None:
    """To regenerate the notebook: `python -m tools.pages.notebook docs/how-to/notebook.ipynb`."""
    committed, now = nbformat.read(NOTEBOOK, as_version=4), executed(NOTEBOOK)
    assert shown(now) == shown(committed)
    assert ["image/png" in each for each in shown(now)].count(True) == 1
    assert not any(output.output_type == "error" for cell in now.cells for output in cell.get("outputs", []))
    words = "".join(cell.source for cell in now.cells)
    assert all(word in words for word in ("agentcho.run(", "agentcho.load(", ".table(", "matplotlib"))


def test_the_notebook_has_outputs_and_says_nothing_of_where_it_was_executed() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert not re.search(r"/(tmp|home|root)/", NOTEBOOK.read_text())

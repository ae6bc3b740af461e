"""Executes the notebook of the docs and writes its outputs into it: `python -m tools.pages.notebook
docs/how-to/notebook.ipynb`.

Execution counts, times and the kernel's version are removed, because they depend on when and where it is executed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SECONDS = 120


def executed(file: Path) -> Any:
    """The notebook of a file with current outputs, executed in an empty folder. `CellExecutionError`: a cell raised."""
    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def main() -> None:
    """Execute a notebook and write it."""
    parser = argparse.ArgumentParser(description="Execute a notebook of the docs, and keep its outputs in it.")
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    nbformat.write(executed(file), file)


if __name__ == "__main__":
    main()

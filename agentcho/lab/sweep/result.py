"""The result of a sweep as returned by `agentcho.sweep`, with its tables, plot and representations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentcho.audit.wording import many
from agentcho.extras import require
from agentcho.games.results.rendering import html_facts, text_facts
from agentcho.games.results.table import Table
from agentcho.lab.sweep.data import SweepData
from agentcho.lab.sweep.tables import Which, means, table


class SweepResult(SweepData):
    """The result of a sweep.

    Attributes:
        format: The format of `sweep.json`.
        scenario: The scenario.
        axes: The values of each option of the grid, as text.
        fixed: The options that are the same in every cell.
        games: The number of games of a cell.
        machine: What the machine is, and the versions of libraries.
        command: The command that repeats it.
        cells: The cells: which games are over, and what went wrong.
        rows: The cells that differ only in their seed, pooled.
        metrics: The scores, with intervals, by row.
        effects: What each value of an option changes, with intervals and tests.
    """

    def table(self, which: Which = "figures") -> Table:
        """Return a table for data frames: one row per figure, or one row per game, with the values of its cell.

        Args:
            which: "figures" or "games".

        Returns:
            The table.
        """
        return table(self, which)

    def plot(self, file: str | Path | None = None) -> Any:
        """Draw the sweep as a matplotlib figure.

        Args:
            file: A file to write the figure to. None for none.

        Returns:
            The figure.

        Raises:
            ExtraMissing: `agentcho[lab]` is not installed.
        """
        require("to draw a sweep", "lab")
        from agentcho.lab.sweep.plot import drawn, plot

        if file is not None:
            plot(self, Path(file))
        return drawn(self)

    def __repr__(self) -> str:
        return f"{text_facts(self._title, self._troubles)}\n{means(self)!r}"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return html_facts(self._title, self._troubles) + means(self)._repr_html_()

    @property
    def _title(self) -> str:
        return f"{self.scenario}: {many(len(self.cells), 'cell')} of {many(self.games, 'game')}"

    @property
    def _troubles(self) -> dict[str, str]:
        return {cell.name: cell.trouble for cell in self.cells if cell.trouble}

"""Fixtures that set up engine and oracle side by side for every family, and the family table printed at the end."""

from collections.abc import Callable, Iterator

import pytest

from agentcho.runner import slots
from agentcho.runner.attention import triton_paged

from ..engines import Engines
from .families import SOME, Family, each
from .stage import Stage

Table = dict[str, dict[str, float]]
TABLE = pytest.StashKey[Table]()


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share the small contexts of tiny models like large ones; by default they are copied for each row."""
    monkeypatch.setattr(slots, "SAVED", 0)


@pytest.fixture
def stage(family: Family, engines: Engines) -> Iterator[Stage]:
    """Engine and oracle of the family side by side; all encodings are released at the end."""
    stage = Stage(family, engines(family), engines.stock(family))
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Callable[[str, str, float], None]:
    """Record one cell of the family table."""
    table = pytestconfig.stash.setdefault(TABLE, {})
    return lambda family, case, gap: table.setdefault(family, {}).__setitem__(case, gap)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``family`` without listing families for all of them, in the quick suite only for `SOME`."""
    named = (mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "family" in metafunc.fixturenames and not any("family" in names for names in named):
        metafunc.parametrize("family", each(*SOME))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the family table: one row per family, the largest gap of each case."""
    table = config.stash.get(TABLE, {})
    if not table:
        return
    cases = list(dict.fromkeys(case for row in table.values() for case in row))
    width = max(map(len, table))
    terminalreporter.section("families: largest gap in log-probability to the oracle")
    terminalreporter.write_line(" " * width + "".join(f"{case:>13}" for case in cases))
    for family, row in table.items():
        cells = "".join(f"{row[case]:13.1e}" if case in row else f"{'-':>13}" for case in cases)
        terminalreporter.write_line(f"{family:<{width}}{cells}")


@pytest.fixture
def by_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fallback instead of the Triton kernel, which is slow here."""
    monkeypatch.setattr(triton_paged.TRIAL, "works", lambda kind: False)

"""Models are built once a session and saved as folders, as a user has them; the family table is printed."""

from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import PreTrainedModel

from agentcho import Engine

from .families import Family, families, llama_family
from .stage import Stage

Models = Callable[[Family], PreTrainedModel]
Engines = Callable[[Family], Engine]
Table = dict[str, dict[str, float]]
TABLE = pytest.StashKey[Table]()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads would only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def stock() -> Models:
    """The stock model of a family, built once."""
    built: dict[str, PreTrainedModel] = {}

    def get(family: Family) -> PreTrainedModel:
        if family.name not in built:
            built[family.name] = family.build()
        return built[family.name]

    return get


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """The engine of a family, loaded once from the folder that the family saves."""
    loaded: dict[tuple[str, str], Engine] = {}

    def get(family: Family) -> Engine:
        key = (family.name, family.style)
        if key not in loaded:
            folder = tmp_path_factory.mktemp("model")
            family.save(folder)
            loaded[key] = Engine.load(str(folder), device="cpu", dtype="float32")
        return loaded[key]

    return get


@pytest.fixture
def llama(engine: Engines) -> Engine:
    """The engine of a small llama in the Llama-3 style, with BOS."""
    return engine(llama_family())


@pytest.fixture
def stage(family: Family, engine: Engines, stock: Models) -> Iterator[Stage]:
    """Engine and oracle of the family side by side; what was encoded is given up at the end."""
    stage = Stage(family, engine(family), stock(family))
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Callable[[str, str, float], None]:
    """Note one cell of the family table."""
    table = pytestconfig.stash.setdefault(TABLE, {})
    return lambda family, case, gap: table.setdefault(family, {}).__setitem__(case, gap)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that takes ``family`` runs for all of them."""
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", families(), ids=lambda family: family.name.replace(" ", "-"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The family table: one row a family, the worst gap of each case."""
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

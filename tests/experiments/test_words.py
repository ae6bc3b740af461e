"""Fidelity and costs on the bundled model: the baseline agrees with itself; reuse does not, and costs less."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.config import ReusePolicy, RunConfig
from agentcho.games.runs import library
from agentcho.lab.collect import Playing, collected
from agentcho.lab.compare.columns import columns
from agentcho.lab.compare.compare import Comparing, Effort
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.compare.fidelity import Arm, apart, rows
from tests.engines import Engines

pytestmark = pytest.mark.slow
FOUR = columns("baseline,choreographed:audit,choreographed:enforce,choreographed:audit:in-place")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("games")


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy()


@pytest.fixture(scope="module")
def found(folder: Path, engine: Engine) -> Comparison:
    config = RunConfig(games=3, max_tokens=24)
    scenario = library.scenario("branch-solve-merge")()
    work = Comparing(Playing(scenario, config, engine), FOUR, folder, lambda what, done, of: None, Effort(2, 1, 1))
    return work.run("")


def test_the_baseline_agrees_with_itself_and_reuse_does_not(found: Comparison) -> None:
    assert found.fidelity["baseline"].kl == 0
    assert found.fidelity["baseline"].agree == 1
    for name in found.names[1:]:
        held = found.fidelity[name]
        assert held.kl > 1e-3
        assert held.span.low <= held.kl <= held.span.high
        assert held.rows == found.fidelity["baseline"].rows > 20
    kinds = {round(found.fidelity[name].kl, 6) for name in found.names}
    assert len(kinds) == 4


def test_divergences_from_the_baseline_say_nothing_of_another_first_column(found: Comparison) -> None:
    name = found.names[1]
    alone = found.model_copy(update={"metrics": ()})
    other = found.request.model_copy(update={"columns": found.request.columns[::-1]})
    for mine in (
        alone,
        alone.model_copy(update={"fidelity": {name: found.fidelity[name].model_copy(update={"kl": 1.0})}}),
    ):
        assert mine.model_copy(update={"request": other}).words(name) == "unknown"
    assert mine.words(name) == "changed"


def test_reuse_encodes_less(found: Comparison) -> None:
    encoded = {name: sum(cost.encoded) for name, cost in found.costs.items()}
    assert encoded["choreographed:audit"] == encoded["choreographed:audit:in-place"] < encoded["choreographed:enforce"]
    assert encoded["choreographed:audit"] < encoded["baseline"]
    assert found.costs["baseline"].ttft_ratio == found.costs["baseline"].seconds_ratio == (1.0, 1.0, 1.0)
    assert all(time > 0 for cost in found.costs.values() for time in (*cost.ttft, *cost.seconds))


def test_texts_of_a_baseline_run_stand_side_by_side_when_they_are_forced(
    found: Comparison, folder: Path, engine: Engine
) -> None:
    workflow = collected(FOUR[0].folder(folder)).workflows[0]
    assert found.request.games == 3
    merged = next(message for message in workflow.messages if message.author == "gus" and message.kind == "decode")
    assert merged.offsets is not None
    assert merged.offsets[1] == merged.offsets[2]
    serial = workflow.model_copy(
        update={
            "messages": tuple(m.model_copy(update={"offsets": None, "new_offset": None}) for m in workflow.messages)
        }
    )
    arm = Arm(ReusePolicy("choreographed", "audit"), engine)
    assert apart(rows(workflow, arm), rows(serial, arm)).kl.max() > 0

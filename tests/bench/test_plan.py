"""`agentcho plan`: a virtual clock under the real scheduler, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.engine.call_layout import Segment
from agentcho.errors import ConfigError
from agentcho.lab.bench.recorded import recorded
from agentcho.lab.plan.clock import forward_seconds
from agentcho.lab.plan.hardware import Hardware, hardware
from agentcho.lab.plan.planning import MODES, plan, predict
from agentcho.lab.plan.shape import shape
from agentcho.lab.plan.subjects import subjects
from tools.pages.marks import without_age
from tools.pages.plan import page

DOCS = Path(__file__).parents[2] / "docs"
H100, SHAPE = hardware("h100"), shape("llama-3.1-8b")


def test_a_shape_has_the_weights_of_its_model() -> None:
    assert 8.02e9 < SHAPE.stored < 8.04e9
    assert SHAPE.token_bytes == 131_072


def test_a_step_streams_the_weights_and_a_long_prefill_is_bound_by_products() -> None:
    bare = H100.model_copy(update={"launch_seconds": 0, "step_seconds": 0})
    streamed = SHAPE.layer_weights * 2 / (H100.bandwidth * H100.bandwidth_efficiency)
    one = forward_seconds(bare, SHAPE, [Segment([1], 0)])
    assert one == pytest.approx(streamed, rel=1e-3)
    assert forward_seconds(bare, SHAPE, [Segment([1], place) for place in range(8)]) == pytest.approx(one, rel=1e-3)
    tokens = 4096
    least = 2 * tokens * SHAPE.layer_weights / (H100.flops * H100.compute_efficiency)
    assert least < forward_seconds(bare, SHAPE, [Segment(range(tokens), 0)]) < 1.1 * least


def test_modes_come_in_the_order_of_what_they_encode_and_shadows_ride_on_a_gpu() -> None:
    found = plan(subjects("parallel-debate"), list(MODES), H100, SHAPE)
    baseline, audit, enforce = found.predicted
    assert audit.encoded < enforce.encoded < baseline.encoded
    assert audit.ttft < baseline.ttft
    assert audit.seconds <= enforce.seconds < baseline.seconds
    assert enforce.seconds < 1.01 * audit.seconds
    assert audit.fit > baseline.fit
    assert found == plan(subjects("parallel-debate"), list(MODES), H100, SHAPE)


def test_games_beside_each_other_read_nothing_of_each_other() -> None:
    (one,), (two,) = subjects("multi-qa"), subjects("multi-qa", games=2)
    assert len(two.workflow.messages) == 2 * len(one.workflow.messages)
    for message in two.workflow.messages:
        prefix = message.id.split("-")[0]
        assert all(parent.startswith(prefix + "-") for parent in message.parents)


def test_games_beside_each_other_share_no_texts_but_system_prompts(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(recorded("multi-qa", 1, 0.3).to_json()) + "\n")
    for asked in (str(file), "readers"):
        one, four = (plan(subjects(asked, games=games)[:1], ["baseline"], H100, SHAPE) for games in (1, 4))
        assert four.predicted[0].encoded == pytest.approx(4 * one.predicted[0].encoded, rel=0.15)


def test_traces_are_planned_without_torch(tmp_path: Path) -> None:
    (one,) = subjects("multi-qa")
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(one.workflow.to_json()) + "\n")
    words = ("plan", str(file), "--modes", "audit", "--json", str(tmp_path / "p.json"))
    code = "import sys; from agentcho.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("predicted, not measured: llama-3.1-8b on NVIDIA H100")
    assert json.loads((tmp_path / "p.json").read_text())["predicted"][0]["mode"] == "audit"


def test_unknown_hardware_is_refused_with_the_list_and_one_of_ones_own_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"h100, h200, a100, l40s, rtx-4090, cpu.*TOML file.*bandwidth"):
        hardware("b200")
    file = tmp_path / "mine.toml"
    table = [f"{name} = {json.dumps(value)}" for name, value in H100.model_dump().items()]
    file.write_text("\n".join(["[mine]", *table]))
    assert hardware(str(file)) == H100
    file.write_text("\n".join(["[mine]", *table[:-2]]))
    with pytest.raises(ConfigError, match=r"does not describe a machine: beside: Field required"):
        hardware(str(file))
    file.write_text("mine = 1")
    with pytest.raises(ConfigError, match="does not describe a machine"):
        hardware(str(file))


@pytest.mark.parametrize(
    ("asked", "counts", "told"),
    [("nothing", (), "no workflow or trace file"), ("debate", (3,), "--agents works with parallel-debate")],
)
def test_what_cannot_be_planned_is_refused(asked: str, counts: tuple[int, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        subjects(asked, counts)


def test_weights_that_do_not_fit_are_refused() -> None:
    (one,) = subjects("multi-qa")
    small: Hardware = H100.model_copy(update={"memory": 16e9})
    with pytest.raises(ConfigError, match=r"16\.1 GB of weights, which do not fit in the 16 GB"):
        predict(subject=one.name, workflow=one.workflow, mode="audit", machine=small, model=SHAPE)


def test_the_page_is_made_of_its_result() -> None:
    assert without_age((DOCS / "plan.md").read_text()) == page(DOCS / "results"), "run `make bench-plan`"

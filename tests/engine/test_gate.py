"""What the load must refuse, each with its cause and what to do about it; and what it must not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

from agentcho import Engine, Prefill
from agentcho.engine.fidelity import fidelity
from agentcho.engine.template import derive
from agentcho.errors import ContextOverflow, ModelError, ModelNotFound, UnsupportedModel
from agentcho.runner.doctor import doctor
from agentcho.runner.shapes import SHAPES, Shape

from .families import Family, cell, families, refused
from .stage import Stage
from .templates import tokenizer
from .test_families import linear, reorder, two_offsets

CAUSES = {
    "learned positions": r"position",
    "learned norm after rotary": r"norm|rotar|shift",
    "recurrent": r"recurren|state|attention",
    "recurrent hybrid": r"recurren|state|linear",
}


def load(family: Family, folder: Path) -> Engine:
    """Save a model and load it as a user would."""
    family.save(folder)
    return Engine.load(str(folder), device="cpu", dtype="float32")


@pytest.mark.parametrize("reason", CAUSES)
def test_a_model_that_cannot_share_is_refused_with_cause_and_remedy(tmp_path: Path, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"(?i){CAUSES[reason]}") as caught:
        load(refused()[reason], tmp_path)
    assert caught.value.cause in str(caught.value)
    assert caught.value.remedy in str(caught.value)
    assert len(caught.value.remedy) > 20


@pytest.mark.parametrize("reason", ["dynamic", "longrope"])
def test_scaling_that_depends_on_length_is_never_used_past_its_threshold(tmp_path: Path, reason: str) -> None:
    refused()[reason].save(tmp_path)
    with pytest.raises(UnsupportedModel, match=f"{reason}.*context=64"):
        Engine.load(str(tmp_path), device="cpu", dtype="float32")
    engine = Engine.load(str(tmp_path), device="cpu", dtype="float32", context=64)
    with pytest.raises(ContextOverflow, match="64"):
        engine.prefill("x", new_offset=60)
    assert engine.score("so", parents=[engine.prefill("x")], offsets=[20]).isfinite().all()


@pytest.mark.parametrize(("error", "random", "passes"), [(0.2, True, True), (0.2, False, False), (0.3, True, False)])
def test_random_weights_in_16_bits_have_more_room_for_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, random: bool, passes: bool
) -> None:
    llama = families()[0]
    llama.save(tmp_path)
    sizes = llama.config(vocab_size=512).to_diff_dict()
    monkeypatch.setitem(SHAPES, "tiny", Shape(sizes.pop("model_type"), sizes))
    monkeypatch.setattr("agentcho.runner.gate._error", lambda one, other: error)
    with nullcontext() if passes else pytest.raises(UnsupportedModel, match=f"differs.*{error:.1e}"):
        Engine.load("shape:tiny" if random else tmp_path, device="cpu", dtype="bfloat16")


def test_the_doctor_shows_every_layer_and_what_became_of_each_role(tmp_path: Path) -> None:
    family = next(family for family in families() if family.name == "cohere2")
    family.save(tmp_path)
    report = doctor(tmp_path, device="cpu", dtype="float32")
    near, far = "rotary interleaved, 16 of 16; sliding 8; ", "no rotary; all positions; "
    found = [row.detail.partition("shift")[0] for row in report.rows if row.layer is not None]
    assert found == [near if layer.kind == "sliding" else far for layer in family.layers]
    assert any("system" in note and "user" in note for note in report.notes)


@pytest.mark.parametrize(("style", "said"), [("hermes", "begins with '<tool_call>'"), ("gemma", "bare JSON")])
def test_the_doctor_tells_how_functions_are_called(tmp_path: Path, style: str, said: str) -> None:
    Family("llama", "Llama", style=style).save(tmp_path)
    [row] = [row for row in doctor(tmp_path, device="cpu", dtype="float32").rows if row.result == "functions"]
    assert said in row.detail


@pytest.mark.parametrize(
    ("style", "apart", "stock"),
    [("thinking", 0, "<think>\\n"), ("named", 7, ""), ("folded", 0, "has '', and here ' '")],
)
def test_the_doctor_tells_how_far_prompts_are_those_of_stock_transformers(
    tmp_path: Path, style: str, apart: int, stock: str
) -> None:
    Family("llama", "Llama", style=style).save(tmp_path)
    rows = {row.result: row.detail for row in doctor(tmp_path, device="cpu", dtype="float32").rows}
    assert rows["plain chats"] == "equal to stock transformers in 7 of 7 conversations"
    assert f"in {apart} of 7 conversations" in rows["agents"]
    assert stock in rows["agents"]


def test_a_token_that_differs_is_found_and_shown() -> None:
    known = tokenizer("named")
    framing = derive(known, "named")
    other = replace(framing, conversations=derive(tokenizer("chatml"), "chatml").conversations)
    found = fidelity(known, other).plain
    assert (found.equal, found.of) == (3, 7), "what begins with a system message is the same"
    assert found.stock.startswith("user")
    assert found.ours.startswith("system\nYou are a helpful tester.")


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="chat template"):
        load(refused()["no template"], tmp_path)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="folder"):
        Engine.load(str(tmp_path / "nowhere"), device="cpu")


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    Family("llama", "Llama").config().save_pretrained(tmp_path)
    tokenizer("llama3").save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        Engine.load(str(tmp_path), device="cpu")


def test_weights_of_other_shape_are_no_model(tmp_path: Path) -> None:
    Family("llama", "Llama").save(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    config.num_hidden_layers += 1
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        Engine.load(str(tmp_path), device="cpu")


def others() -> tuple[Family, ...]:
    """Families that nobody promised: each must be refused, or right."""
    lora = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1}
    deep = {
        **lora,
        **experts,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "num_key_value_heads": 4,
    }
    return (
        Family("bloom", "Bloom"),
        Family("opt", "OPT", {"ffn_dim": 128, "word_embed_proj_dim": 64, "pad_token_id": 1}),
        Family("deepseek_v3", "DeepseekV3", deep),
        Family("stablelm", "StableLm"),
        Family("cohere", "Cohere", {"logit_scale": 1.0}),
        Family("nemotron", "Nemotron"),
        Family("granitemoe", "GraniteMoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
        Family("doge", "Doge"),
        Family("nanochat", "NanoChat"),
        Family("lfm2", "Lfm2", {"layer_types": ["conv", "full_attention"] * 2}),
        Family("minimax", "MiniMax", {"layer_types": ["linear_attention", "full_attention"] * 2}),
        Family("diffllama", "DiffLlama"),
        Family("mpt", "Mpt"),
        Family("falcon", "Falcon"),
        Family("gptj", "GPTJ", {"rotary_dim": 8}),
        Family("bart", "Bart", {"encoder_layers": 1, "pad_token_id": 1}),
        Family("xlstm", "xLSTM"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("other", [cell(other, quick=nth % 2 == 0) for nth, other in enumerate(others())])
def test_any_other_family_is_refused_or_right(tmp_path: Path, other: Family) -> None:
    model = other.save(tmp_path)
    try:
        engine = Engine.load(str(tmp_path), device="cpu", dtype="float32")
    except UnsupportedModel:
        return
    assert max(apart for case in (linear, reorder, two_offsets) for apart in case(Stage(other, engine, model))) < 1e-4


def test_queries_that_are_scaled_by_place_in_the_batch_stay_right(tmp_path: Path) -> None:
    """Llama 4 scales queries of layers without rotary by their index in the forward, whatever their position."""
    family = next(family for family in families() if family.name == "llama4_text")
    crowded = replace(family, settings={**family.settings, "floor_scale": 48, "attn_scale": 2.0})
    model = crowded.save(tmp_path)
    try:
        engine = Engine.load(str(tmp_path), device="cpu", dtype="float32")
    except UnsupportedModel:
        return
    stage = Stage(crowded, engine, model)
    ids = stage.prefill(*[Prefill(f"number {i}") for i in range(8)])
    assert max(stage.probe([id]) for id in ids) < 1e-4

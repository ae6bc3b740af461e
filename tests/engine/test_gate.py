"""What loading must refuse, each with its cause and a remedy, and what it must not refuse."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import (  # type: ignore[attr-defined]
    AutoConfig,
    GraniteMoeHybridConfig,
    MambaConfig,
    PhimoeConfig,
    Qwen2MoeConfig,
    Qwen3Config,
)

from agentcho import Engine, ModelConfig, Prefill, RunConfig
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TemplateFidelity, fidelity
from agentcho.errors import ContextOverflow, ModelError, ModelNotFound, UnsupportedModel
from agentcho.games.runs.loading import load_together
from agentcho.games.runs.runtime import load_engine
from agentcho.protocol.progress import no_progress
from agentcho.runner.doctor import doctor
from agentcho.runner.model.model import context_of
from agentcho.runner.model.shapes import SHAPES, ModelShape
from agentcho.runner.reuse_check import _config_causes

from ..device import DEVICE
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
    return Engine.load(str(folder), device=DEVICE, dtype="float32")


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
        Engine.load(str(tmp_path), device=DEVICE, dtype="float32")
    engine = Engine.load(str(tmp_path), device=DEVICE, dtype="float32", context=64)
    with pytest.raises(ContextOverflow, match="64"):
        engine.prefill("x", new_offset=60)
    assert engine.score("so", parents=[engine.prefill("x")], offsets=[20]).isfinite().all()


def test_a_run_and_each_of_its_models_may_use_fewer_positions(tmp_path: Path) -> None:
    refused()["longrope"].save(tmp_path)
    few: dict[str, Any] = {"model": str(tmp_path), "device": DEVICE, "dtype": "float32", "context": 64}
    with pytest.raises(UnsupportedModel, match=r"longrope.*Give --context 64 \(in Python, context=64\) or less"):
        load_engine(RunConfig(**few | {"context": None}))
    loaded = load_together(RunConfig(device=DEVICE, models={"long": ModelConfig(**few)}), None, {}, no_progress)
    alone = load_engine(RunConfig(**few))
    assert [engine.context for engine in (alone, loaded.others["long"])] == [64, 64]
    assert loaded.engine.context > 64
    with pytest.raises(ValueError, match="context needs a model with weights, and the fake model has none"):
        RunConfig(model="fake", context=64)


def test_more_positions_than_the_model_has_are_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    families()[0].save(tmp_path)
    most = AutoConfig.from_pretrained(tmp_path).max_position_embeddings
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ModelError, match=f"context={most + 1}, but .* has {most} positions; give that or less"):
        Engine.load(str(tmp_path), device=DEVICE, context=most + 1)


def test_yarn_extends_the_positions_that_a_config_had_before() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
    assert context_of(Qwen3Config(max_position_embeddings=40960, rope_parameters=rope)) == 131072
    assert context_of(Qwen3Config(max_position_embeddings=262144, rope_parameters=rope)) == 262144
    assert context_of(Qwen3Config(max_position_embeddings=40960)) == 40960


def causes(config: Any, context: int | None = None) -> list[str]:
    return [cause for cause, _ in _config_causes(config, context)]


def test_marks_of_recurrent_layers_count_where_a_config_names_no_layers() -> None:
    assert causes(GraniteMoeHybridConfig(num_hidden_layers=2, layer_types=["attention", "attention"])) == []
    (mixed,) = causes(GraniteMoeHybridConfig(num_hidden_layers=2, layer_types=["attention", "mamba"]))
    assert "recurrent layers" in mixed
    (marked,) = causes(MambaConfig())
    assert "recurrent layers" in marked


@pytest.mark.parametrize(
    "config",
    [PhimoeConfig(sliding_window=2047), Qwen2MoeConfig(use_sliding_window=True, sliding_window=2047)],
    ids=lambda config: config.model_type,
)
def test_a_window_that_stands_in_the_mask_alone_bounds_the_context(config: Any) -> None:
    (cause,) = causes(config)
    assert "its window of 2047 tokens is only in a mask" in cause
    assert causes(config, 2047) == causes(type(config)()) == []


@pytest.mark.parametrize(("error", "random", "passes"), [(0.2, True, True), (0.2, False, False), (0.3, True, False)])
def test_random_weights_in_16_bits_have_more_room_for_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, random: bool, passes: bool
) -> None:
    llama = families()[0]
    llama.save(tmp_path)
    sizes = llama.config(vocab_size=512).to_diff_dict()
    monkeypatch.setitem(SHAPES, "tiny", ModelShape(sizes.pop("model_type"), sizes))
    monkeypatch.setattr("agentcho.runner.reuse_check._error", lambda one, other: error)
    with nullcontext() if passes else pytest.raises(UnsupportedModel, match=f"differs.*{error:.1e}"):
        Engine.load("shape:tiny" if random else tmp_path, device=DEVICE, dtype="bfloat16")


def test_the_doctor_shows_every_layer_and_what_became_of_each_role(tmp_path: Path) -> None:
    family = next(family for family in families() if family.name == "cohere2")
    family.save(tmp_path)
    report = doctor(tmp_path, device=DEVICE, dtype="float32")
    near, far = "rotary interleaved, 16 of 16; sliding 8; ", "no rotary; all positions; "
    found = [row.detail.partition("shift")[0] for row in report.rows if row.layer is not None]
    assert found == [near if layer.kind == "sliding" else far for layer in family.layers]
    assert any("system" in note and "user" in note for note in report.notes)


@pytest.mark.parametrize(("style", "said"), [("hermes", "begins with '<tool_call>'"), ("gemma", "bare JSON")])
def test_the_doctor_tells_how_functions_are_called(tmp_path: Path, style: str, said: str) -> None:
    Family("llama", "Llama", style=style).save(tmp_path)
    [row] = [row for row in doctor(tmp_path, device=DEVICE, dtype="float32").rows if row.result == "functions"]
    assert said in row.detail


@pytest.mark.parametrize(
    ("style", "apart", "stock", "cost", "reuse", "written"),
    [
        (
            "thinking",
            6,
            "at token 3: stock 'blanks around<|im_end|>",
            "6 tokens more than stock's 325 in 7 conversations, 0.3 a message",
            "each of 20 messages is cut",
            "writes all 6 orders",
        ),
        ("named", 7, "", "as many tokens as stock's prompts", "each of 20 messages is cut", "writes all 6 orders"),
        (
            "folded",
            0,
            "stock '' | here ' '",
            "10 tokens more than stock's 255 in 7 conversations, 0.5 a message",
            "of 20 messages 2 are encoded again when the conversation goes on",
            "2 of 6 orders of roles as a whole; the others, such as system, user, assistant, assistant, user",
        ),
        (
            "marked",
            4,
            "stock 'What is it?",
            "42 tokens more than stock's 193 in 7 conversations, 2.1 a message",
            "of 20 messages 3 are left out",
            "writes all 6 orders",
        ),
    ],
)
def test_the_doctor_tells_how_far_prompts_are_those_of_stock_transformers(
    tmp_path: Path, style: str, apart: int, stock: str, cost: str, reuse: str, written: str
) -> None:
    Family("llama", "Llama", style=style).save(tmp_path)
    rows = {row.result: row.detail for row in doctor(tmp_path, device=DEVICE, dtype="float32").rows}
    assert rows["plain chats"] == "equal to stock transformers in 7 of 7 conversations"
    assert f"in {apart} of 7 conversations" in rows["agents"]
    assert stock in rows["agents"]
    assert rows["agents' tokens"] == cost
    assert rows["reuse of them"].startswith(reuse)
    assert written in rows["baseline"]


def test_a_token_that_differs_is_found_and_shown() -> None:
    known = tokenizer("named")
    framing = derive(known, "named")
    other = replace(framing, conversations=derive(tokenizer("chatml"), "chatml").conversations)
    found = fidelity(known, other).plain
    assert (found.equal, found.of) == (3, 7), "what begins with a system message is the same"
    assert found.stock.startswith("user")
    assert found.ours.startswith("system\nYou are a helpful tester.")


def uneven(folder: Path) -> Path:
    """A model whose template omits its BOS in conversations that begin with a system message."""
    Family("llama", "Llama").save(folder)
    file = folder / "chat_template.jinja"
    source = file.read_text()
    assert "{{- bos_token }}" in source
    file.write_text(
        source.replace("{{- bos_token }}", "{% if messages[0].role != 'system' %}{{- bos_token }}{% endif %}")
    )
    return folder


def test_a_model_whose_plain_chats_differ_loads_where_that_is_accepted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, asked = uneven(tmp_path), list[str]()

    def counted(*given: Any) -> TemplateFidelity:
        asked.append("asked")
        return fidelity(*given)

    monkeypatch.setattr("agentcho.runner.model.loading.fidelity", counted)
    load = partial(Engine.load, weights, device=DEVICE, dtype="float32", store_tokens=1 << 10)
    monkeypatch.setattr("agentcho.runner.model.loading.Model", None)  # the weights must not be read
    with pytest.raises(UnsupportedModel) as refused:
        load()
    monkeypatch.undo()
    monkeypatch.setattr("agentcho.runner.model.loading.fidelity", counted)
    said = str(refused.value)
    assert "in 3 of 7 conversations" in said
    assert "at token 0:\n  transformers: '<|start_header_id|>system" in said
    assert "\n  agentcho:     '<|begin_of_text|>" in said
    assert "--template-differs accept (template_differs='accept')" in said
    assert asked == ["asked"]
    engine = load(template_differs="accept")
    assert engine.fidelity is not None
    assert (engine.fidelity.plain.equal, asked) == (4, ["asked"] * 2)


def test_what_agents_messages_differ_in_is_said_once_at_load_and_never_of_the_embedded_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Family("llama", "Llama", style="thinking").save(tmp_path)
    with caplog.at_level(logging.WARNING, "agentcho"):
        engine = load_engine(RunConfig(model=str(tmp_path), device=DEVICE, dtype="float32"))
        assert isinstance(engine, Engine)
        assert engine.fidelity is not None
        load_engine(RunConfig(device=DEVICE, dtype="float32"))
        load_engine(RunConfig(model="fake"))
        load_engine(RunConfig(model=str(tmp_path), device=DEVICE, dtype="float32", mode="baseline"))
    line, *others = (record.getMessage() for record in caplog.records if record.name == "agentcho.notes")
    assert all("may think before it answers, and max_tokens (256)" in each for each in others)
    apart, doctor = engine.fidelity.apart, f"`agentcho doctor {tmp_path}` shows where"
    assert (apart.at, apart.stock[:13], apart.ours[:15]) == (3, "blanks around", "  blanks around")
    assert line == (
        f"{tmp_path}: messages are framed one by one, so that they can be reused; so agents' prompts differ from the "
        f"chat template in 1 of 7 test conversations ({apart.tokens + apart.more} tokens instead of {apart.tokens}). "
        f"This is expected; {doctor}"
    )


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="chat template"):
        load(refused()["no template"], tmp_path)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="folder"):
        Engine.load(str(tmp_path / "nowhere"), device=DEVICE)


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    Family("llama", "Llama").config().save_pretrained(tmp_path)
    tokenizer("llama3").save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        Engine.load(str(tmp_path), device=DEVICE)


def test_weights_of_other_shape_are_no_model(tmp_path: Path) -> None:
    Family("llama", "Llama").save(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    config.num_hidden_layers += 1
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        Engine.load(str(tmp_path), device=DEVICE)


def others() -> tuple[Family, ...]:
    """Families that are not claimed to work: each must be refused or be correct."""
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
        engine = Engine.load(str(tmp_path), device=DEVICE, dtype="float32")
    except UnsupportedModel:
        return
    assert max(apart for case in (linear, reorder, two_offsets) for apart in case(Stage(other, engine, model))) < 1e-4


def test_queries_that_are_scaled_by_place_in_the_batch_stay_right(tmp_path: Path) -> None:
    """In layers without rotary, Llama 4 scales queries by their index in the forward, whatever their position."""
    family = next(family for family in families() if family.name == "llama4_text")
    crowded = replace(family, settings={**family.settings, "floor_scale": 48, "attn_scale": 2.0})
    model = crowded.save(tmp_path)
    try:
        engine = Engine.load(str(tmp_path), device=DEVICE, dtype="float32")
    except UnsupportedModel:
        return
    stage = Stage(crowded, engine, model)
    ids = stage.prefill(*[Prefill(f"number {i}") for i in range(8)])
    assert max(stage.probe([id]) for id in ids) < 1e-4


def test_the_doctor_tells_what_prompts_look_like_where_there_are_no_weights(tmp_path: Path) -> None:
    known = tokenizer("llama3")
    known.save_pretrained(tmp_path)
    ends = [known.convert_tokens_to_ids(word) for word in ("<|end_of_text|>", "<|eot_id|>")]
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {ends}}}')
    report = doctor(tmp_path)
    rows = {row.result: row.detail for row in report.rows}
    assert rows["plain chats"] == "equal to stock transformers in 7 of 7 conversations"
    assert "ends at '<|end_of_text|>', '<|eot_id|>'" in rows["begins"]
    assert report.layers is None
    assert all(row.check in ("tokenizer", "framing") for row in report.short)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError):
        doctor(tmp_path)

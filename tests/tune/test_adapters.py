"""Adapters on an engine: hot, merged, side by side, and refused where they do not fit."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import AdapterError, ExtraMissing
from agentcho.runner.engine import Engine

from ..device import DEVICE
from ..engine.families import llama_family
from ..engines import Engines
from .flows import scored, talk


@pytest.fixture
def base(engines: Engines) -> Engine:
    """An engine with its own network, since adapters stay on it."""
    return engines.own()


def drawn(to: Path, seed: int, rank: int = 4) -> Path:
    """An adapter with random weights, written by peft."""
    config = LoraConfig(r=rank, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], init_lora_weights=False)
    model = llama_family().build()
    torch.manual_seed(seed)
    get_peft_model(model, config).save_pretrained(str(to))
    return to


def said(engine: Engine) -> Tensor:
    return scored(talk(), engine, "choreographed", "enforce")[0]


@pytest.mark.slow
def test_hot_and_merged_say_the_same_and_the_base_is_as_before(base: Engine, engines: Engines, tmp_path: Path) -> None:
    one, two = (drawn(tmp_path / name, seed) for seed, name in enumerate(("one", "two")))
    plain = said(base)
    first, second = base.adapted(one), base.adapted(two)
    hot = said(first)
    assert float((said(second) - hot).abs().max()) > 1e-2
    assert float((said(base) - plain).abs().max()) < 1e-4, "last bits: adapters have no direct forward"
    assert torch.equal(said(first), hot)
    assert torch.equal(said(second.adapted(None)), said(base))
    assert float((hot - plain).abs().max()) > 1e-2
    merged = Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=one, merge=True)
    assert float((said(merged) - hot).abs().max()) < 1e-4
    alone = Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=one)
    # Only a network that is loaded with its adapter has second copies of the adapter's weights too. On some processors
    # products with these differ in the last bits.
    assert float((said(alone) - hot).abs().max()) < 1e-4


def test_what_peft_itself_says_is_what_the_engine_says(engines: Engines, tmp_path: Path) -> None:
    from peft import PeftModel

    adapter = drawn(tmp_path / "one", 3)
    engine = Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=adapter)
    stock = PeftModel.from_pretrained(llama_family().build(), str(adapter)).eval()
    ids = engine.prefill("so it is")
    tokens = engine.message(ids).tokens
    own = engine.score("and so on", parents=[ids])
    opening, text = engine.framing.opening("assistant", None), engine.framing.content.encode("and so on")
    assert engine.framing.bos is not None
    row = torch.tensor([[engine.framing.bos, *tokens, *opening, *text]])
    with torch.no_grad():
        theirs = stock(row).logits[0, -len(text) - 1 :].log_softmax(-1)
    assert float((own - theirs).abs().max()) < 1e-4


def test_the_digest_is_part_of_fingerprint_and_keys(base: Engine, tmp_path: Path) -> None:
    one, two = (find_adapter(drawn(tmp_path / name, seed)) for seed, name in enumerate(("one", "two")))
    assert one.digest != two.digest
    engines = [base, base.adapted(one.path), base.adapted(two.path)]
    prints = [engine.fingerprint for engine in engines]
    assert [each.get("adapter") for each in prints] == [None, one.digest, two.digest]
    assert len({each["weights"] for each in prints}) == 1
    keys = {engine.debug.entry(engine.prefill("so it is")).key for engine in engines}
    assert len(keys) == 3


@pytest.mark.slow
def test_what_is_no_adapter_is_refused(
    base: Engine, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(base)
    with pytest.raises(AdapterError, match="the folder does not exist"):
        base.adapted(tmp_path / "nowhere")
    adapter = drawn(tmp_path / "a", 0)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        broken = shutil.copytree(adapter, tmp_path / f"no {name}")
        (broken / name).unlink()
        with pytest.raises(AdapterError, match=f"the file {name} is missing"):
            base.adapted(broken)
    config = json.loads((adapter / "adapter_config.json").read_text())
    prompts = {"peft_type": "PROMPT_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 4}
    for changed, told in (
        (config | {"r": 8}, "does not fit this"),
        (config | {"target_modules": ["no"]}, "does not fit this"),
        (prompts, "tokens before the prompt"),
        ({}, "does not fit this model"),
    ):
        (adapter / "adapter_config.json").write_text(json.dumps(changed))
        with pytest.raises(AdapterError, match=told):
            Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=adapter)
    assert torch.equal(said(base), before)
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "agentcho.json").write_text('{"format": "agentcho-adapter/1"}')
    with pytest.raises(AdapterError, match=r"the file agentcho\.json is invalid at scenario"):
        base.adapted(adapter)
    monkeypatch.setitem(sys.modules, "peft", None)
    (adapter / "agentcho.json").unlink()
    with pytest.raises(ExtraMissing, match=r"pip install 'agentcho\[tune\]'"):
        Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=adapter)


def test_an_adapter_of_another_base_is_refused(engines: Engines, tmp_path: Path) -> None:
    adapter = drawn(tmp_path / "a", 0)
    trained = {
        "scenario": "talk", "mode": "choreographed", "leakage": "audit",
        "base": {"model": "other", "weights": "0", "dtype": "bfloat16"},
        "recipe": {}, "traces": "", "train": 1, "dev": 1, "before": 1.0, "best": 0.5, "step": 1, "tokens": 1,
        "seconds": 1.0, "machine": {},
    }  # fmt: skip
    (adapter / "agentcho.json").write_text(json.dumps(trained))
    with pytest.raises(AdapterError, match=r"trained on other weights \(other, bfloat16\) than .*--dtype of the"):
        Engine.load(engines.folder(), device=DEVICE, dtype="float32", adapter=adapter)

"""GGUF files: what an engine computes from them, what it reports about them, and which files are refused."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import (  # type: ignore[attr-defined]
    Gemma2Config,
    Gemma3TextConfig,
    PreTrainedModel,
    Starcoder2Config,
)

from agentcho import Decode, Engine, Sampling, extras
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.errors import ExtraMissing, ModelBroken, ModelError, ModelNotFound, UnsupportedModel
from agentcho.runner.doctor import doctor
from agentcho.runner.model import loading
from agentcho.runner.model.gguf_file import GgufFile, _left_out, apply_linear_scaling, apply_query_scale, fast_reading

from ..device import DEVICE
from .families import Family
from .templates import tokenizer

if importlib.util.find_spec("gguf") is None:
    pytest.skip("the package gguf is not installed", allow_module_level=True)

import gguf

from .gguf_files import rounded, write

LLAMA = Family("llama", "Llama")
QWEN3 = Family("qwen3", "Qwen3", {"head_dim": 128}, style="chatml")
SCALED = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED |= {"original_max_position_embeddings": 8192}
WORDS = "To be, or not to be\n<|eot_id|> é 123"


def made(folder: Path, family: Family = LLAMA, numbers: str = "F32", **more: Any) -> tuple[Path, PreTrainedModel]:
    """A file, and the model it contains according to the gguf package alone."""
    network = family.build()
    file = write(folder / "m.gguf", network, tokenizer(family.style), numbers, **more)
    for weight in network.parameters():
        if weight.ndim > 1 and numbers != "F32":
            weight.data = rounded(weight.data, numbers)
    return file, network


def logits(engine: Engine) -> torch.Tensor:
    read = engine.prefill(WORDS)
    call = Decode(parents=[read], sampling=Sampling(max_tokens=3), forced=tuple(range(40, 43)), logits=True)
    return engine.logits(engine.decode([call])[0])


def off(file: Path, folder: Path, **options: Any) -> float:
    """The largest difference in logits between an engine on the file and one on the folder."""
    with Engine.load(file, DEVICE, **options) as ours, Engine.load(folder, DEVICE, "float32") as whole:
        assert ours.framing.ids == whole.framing.ids
        assert ours.framing.bos == whole.framing.bos
        return float((logits(ours) - logits(whole)).abs().max())


def saved(folder: Path, network: PreTrainedModel, style: str) -> Path:
    network.save_pretrained(folder)
    tokenizer(style).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("family", "numbers"),
    [
        (LLAMA, "F32"),
        (QWEN3, "Q8_0"),
        pytest.param(LLAMA, "Q4_0", marks=pytest.mark.slow),
        pytest.param(QWEN3, "F32", marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.slow
def test_it_is_the_model_that_was_written_number_by_number(tmp_path: Path, family: Family, numbers: str) -> None:
    file, network = made(tmp_path, family, numbers)
    assert off(file, saved(tmp_path / "whole", network, family.style), dtype="float32") < 1e-4


def test_the_table_of_names_is_made_once_and_readers_are_stock_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_for: list[Any] = []

    def names(arch: Any, layers: int, stock: Any = gguf.get_tensor_name_map) -> Any:
        made_for.append(arch)
        return stock(arch, layers)

    monkeypatch.setattr(gguf, "get_tensor_name_map", names)
    before = (gguf.GGUFReader, gguf.get_tensor_name_map)
    file, _ = made(tmp_path)
    made_for.clear()
    Engine.load(file, DEVICE)
    assert len(made_for) == 1
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def test_what_is_read_quickly_is_what_the_package_reads(tmp_path: Path) -> None:
    file, _ = made(tmp_path, numbers="Q8_0")
    stock = gguf.GGUFReader(file)
    with fast_reading():
        quick = gguf.GGUFReader(file)
    assert type(quick.data).__name__ == "ndarray"
    assert stock.fields.keys() == quick.fields.keys()
    assert all(quick.fields[key].contents() == field.contents() for key, field in stock.fields.items())
    for key, field in stock.fields.items():
        found = quick.fields[key]
        assert (found.offset, found.data, found.types) == (field.offset, field.data, field.types), key
        parts = zip(found.parts, field.parts, strict=True)
        assert all((one.dtype, one.tobytes()) == (other.dtype, other.tobytes()) for one, other in parts), key
    for ours, theirs in zip(quick.tensors, stock.tensors, strict=True):
        assert (ours.name, ours.tensor_type, ours.data.tobytes()) == (
            theirs.name,
            theirs.tensor_type,
            theirs.data.tobytes(),
        )


def test_two_threads_may_read_quickly_at_once() -> None:
    before = (gguf.GGUFReader, gguf.get_tensor_name_map)
    first, second = fast_reading(), fast_reading()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gguf.GGUFReader is not before[0], "the second is not done yet"
    second.__exit__(None, None, None)
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def test_the_vocabulary_is_read_three_times_and_the_framing_derived_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = made(tmp_path)
    read, derived = list[Any](), list[Any]()

    class Counted(gguf.GGUFReader):
        def __init__(self, *where: Any) -> None:
            read.append(where)
            super().__init__(*where)

    def counted(*given: Any) -> Framing:
        derived.append(given)
        return derive(*given)

    monkeypatch.setattr(gguf, "GGUFReader", Counted)
    monkeypatch.setattr(loading, "derive", counted)
    with Engine.load(file, DEVICE) as engine:
        assert engine.framing.stops
    twice = Version(transformers.__version__) < Version("5.20")  # these versions look for the tokenizer's class first
    assert len(read) == 3 + twice, "its config, its tokenizer, its weights"
    assert len(derived) == 1


def test_in_8_bits_it_is_near_what_it_was_made_from_and_not_that(tmp_path: Path) -> None:
    file, _ = made(tmp_path, numbers="Q8_0")
    gap = off(file, saved(tmp_path / "whole", LLAMA.build(), LLAMA.style), dtype="float32")
    assert 1e-3 < gap < 0.5


@pytest.mark.slow
def test_the_doctor_the_fingerprint_and_the_origin_say_what_it_was_and_which_file(tmp_path: Path) -> None:
    file, _ = made(tmp_path, numbers="Q8_0")
    with Engine.load(file, DEVICE, "bfloat16") as engine:
        known, origin = engine.fingerprint, engine._model.origin
    assert known["stored"] == "GGUF, dequantised to bfloat16 (was Q8_0, F32)"
    (row,) = [row for row in doctor(file, DEVICE, "float32").rows if row.check == "file"]
    assert row[2:] == ("GGUF", "dequantised to float32 (was Q8_0, F32)")
    with Engine.load(file, DEVICE, "float32", weights="int8") as engine:
        assert engine.fingerprint["bits"] == "int8"
        assert engine.fingerprint["weights"] == known["weights"]
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with Engine.load(file, DEVICE, "bfloat16") as engine:
        assert engine.fingerprint["weights"] != known["weights"]
        assert engine._model.origin != origin


@pytest.mark.slow
def test_the_scaling_of_llamas_from_3_1_on_is_taken_from_its_factors(tmp_path: Path) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    family = Family("llama", "Llama", {"rope_parameters": SCALED, "head_dim": 32})
    network = family.build()
    turned, _ = ROPE_INIT_FUNCTIONS["llama3"](network.config, torch.device("cpu"))
    plain = 5e5 ** (-torch.arange(0, 32, 2) / 32)
    file = write(tmp_path / "m.gguf", network, tokenizer("llama3"), more={"rope_freqs.weight": plain / turned})
    assert off(file, saved(tmp_path / "whole", network, "llama3"), dtype="float32") < 1e-4


def test_what_transformers_would_leave_out_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"more": {"rope_freqs.weight": torch.arange(1.0, 9.0)}}, "it has factors of positions .rope_freqs.weight."),
        ({"keys": {"llama.rope.scaling.type": "yarn"}}, "it scales positions .yarn., which transformers does not"),
        ({"keys": {"llama.attention.sliding_window": 12}}, "it says attention.sliding_window = 12, and .* takes None"),
        ({"more": {"blk.0.attn_q.bias": torch.ones(64)}}, "its tensors have [0-9]+ numbers, and what transformers"),
    ]
    for more, cause in wrong:
        file, _ = made(tmp_path, **more)
        with pytest.raises(UnsupportedModel, match=f"{cause}.*Give the safetensors"):
            Engine.load(file, DEVICE, "float32")


def test_a_base_of_frequencies_that_transformers_does_not_take_over_is_told() -> None:
    def said(architecture: str, base: float, config: Any) -> list[str]:
        keys = {f"{architecture}.rope.freq_base": base}
        return list(_left_out(GgufFile(Path("x.gguf"), architecture, keys, (), ""), config))

    plain = Starcoder2Config()
    (cause,) = said("starcoder2", 1e5, plain)
    assert cause == "it says rope.freq_base = 100000, and transformers takes 10000"
    assert said("starcoder2", 1e4, plain) == []
    assert said("gemma3", 1e6, Gemma3TextConfig()) == [], "that of layers with full attention"


@pytest.mark.parametrize(("config", "layers", "scale"), [(Gemma2Config, 46, 144), (Gemma2Config, 26, 256)])
def test_the_query_scale_of_the_largest_gemmas_stands_in_no_file(config: Any, layers: int, scale: int) -> None:
    made = config(hidden_size=4608, num_attention_heads=32, num_hidden_layers=layers)
    apply_query_scale(GgufFile(Path("x.gguf"), "gemma2", {"gemma2.block_count": layers}, (), ""), made)
    assert made.query_pre_attn_scalar == scale


def test_gemma_3_scales_its_layers_with_full_attention_as_its_file_says() -> None:
    config: Any = Gemma3TextConfig()
    keys = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    file = GgufFile(Path("x.gguf"), "gemma3", keys, (), "")
    before = dict(config.rope_parameters["sliding_attention"])
    apply_linear_scaling(file, config)
    scaled = config.rope_parameters["full_attention"]
    assert (scaled["rope_type"], scaled["factor"], scaled["rope_theta"]) == ("linear", 8.0, 1e6)
    assert config.rope_parameters["sliding_attention"] == before
    assert list(_left_out(file, config)) == []
    assert list(_left_out(file, Gemma3TextConfig())) == [
        "it scales positions (linear), which transformers does not take over"
    ]


def test_a_file_cut_short_anywhere_or_no_gguf_is_refused_with_its_name(tmp_path: Path) -> None:
    file, _ = made(tmp_path)
    data = file.read_bytes()
    for end in (0, 3, 20, 200, 3000, 9000, len(data) // 2, len(data) - 40):
        file.write_bytes(data[:end])
        with pytest.raises(ModelBroken, match=r"m.gguf: truncated, or not a GGUF file \([0-9]+ bytes; "):
            Engine.load(file)
    file.write_bytes(b"GGUF" + b"\xff" * 4000)
    with pytest.raises(ModelBroken, match=r"not a GGUF file .*version"):
        Engine.load(file)


@pytest.mark.parametrize("at", [8, 16, 60, 140, 700])
def test_a_header_with_a_byte_changed_is_one_error_of_ours_or_none(tmp_path: Path, at: int) -> None:
    file, _ = made(tmp_path)
    data = bytearray(file.read_bytes())
    data[at : at + 8] = b"\xf0" * 8
    file.write_bytes(data)
    with pytest.raises(ModelError, match=r"m.gguf"):
        Engine.load(file, DEVICE, "float32")


def test_a_part_of_a_split_file_and_a_folder_of_files_are_refused_with_what_to_give(tmp_path: Path) -> None:
    file, _ = made(tmp_path, keys={"split.count": 3, "split.no": 1})
    with pytest.raises(ModelBroken, match=r"it is part 2 of 3. Join them with `llama-gguf-split --merge"):
        Engine.load(file)
    shutil.copy(file, tmp_path / "n.gguf")
    with pytest.raises(ModelNotFound, match=r"no config.json; give the GGUF file itself: .*m.gguf or .*n.gguf\."):
        Engine.load(tmp_path)
    with pytest.raises(ModelNotFound, match="the file does not exist"):
        Engine.load(tmp_path / "o.gguf")


def test_an_architecture_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    file, _ = made(tmp_path)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0llamb", 1))
    with pytest.raises(ModelBroken, match=r"m.gguf: .*llamb.* not supported.*safetensors"):
        Engine.load(file, DEVICE)


def test_a_file_without_a_chat_template_is_refused_before_the_library_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "m.gguf", LLAMA.build(), tokenizer("bare"))
    monkeypatch.setattr(gguf, "GGUFReader", lambda *_: pytest.fail("its vocabulary is read"))
    monkeypatch.setattr(gguf, "dequantize", lambda *_: pytest.fail("its weights are multiplied out"))
    with pytest.raises(UnsupportedModel, match="no chat template"):
        Engine.load(file, DEVICE)


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.GGUF"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(extras, "_installed", lambda module: False)
    with pytest.raises(ExtraMissing, match=r"gguf is needed to read GGUF files: pip install 'agentcho\[gguf\]'"):
        Engine.load(file)


@pytest.mark.slow
def test_files_beside_it_say_nothing(tmp_path: Path) -> None:
    file, network = made(tmp_path)
    whole = saved(tmp_path / "whole", network, LLAMA.style)
    saved(tmp_path, QWEN3.build(), "chatml")
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "there is none", "peft_type": "LORA"}')
    assert off(file, whole, dtype="float32") < 1e-4


def test_a_reused_encoding_is_what_stock_transformers_computes_of_one_prompt(tmp_path: Path) -> None:
    file, network = made(tmp_path)
    with Engine.load(file, DEVICE, "float32") as engine:
        other = engine.prefill("three")
        first = engine.prefill("one two", parents=[other])
        call = Decode(parents=[other, first], sampling=Sampling(max_tokens=1), logits=True)
        said = engine.decode([call])[0]
        begin = [engine.framing.bos] if engine.framing.bos is not None else []
        ids = [*begin, *engine.message(other).tokens, *engine.message(first).tokens, *engine.message(said).tokens]
        at = len(ids) - len(engine.message(said).tokens) + (engine.message(said).sampled or (0, 0))[0] - 1
        with torch.no_grad():
            stock = network(torch.tensor([ids])).logits[0, at].log_softmax(-1)
        assert float((engine.logits(said)[0].log_softmax(-1) - stock).abs().max()) < 1e-4

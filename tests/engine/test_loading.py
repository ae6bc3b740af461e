"""A model that cannot be loaded: the error names the file at fault, the cause and a remedy, in one line on the CLI."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3Config, Gemma3ForConditionalGeneration

from agentcho import Decode, Engine, RunConfig, Sampling
from agentcho.errors import ModelBroken, ModelError, ModelNotFound, UnsupportedModel
from agentcho.games.runs.runtime import load_engine
from agentcho.protocol.progress import no_progress
from agentcho.runner.attention.registry import Backends
from agentcho.runner.doctor import doctor
from agentcho.runner.model import checkpoint
from agentcho.runner.model.checkpoint import INDEX, refusal
from agentcho.runner.model.model import find
from agentcho.runner.understudy import weights_path

from ..device import DEVICE
from .families import families, llama_family
from .templates import tokenizer

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama_family().save(tmp_path)
    return tmp_path


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def scribble(file: Path) -> None:
    file.write_bytes(b"\xff" * 64 + file.read_bytes()[64:])


def lose_a_shard(file: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": WEIGHTS, "b": "model-00002-of-00002.safetensors"}}
    (file.parent / INDEX).write_text(json.dumps(index))


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str, type[ModelError]]] = {
    "cut short": (WEIGHTS, cut, rf"{WEIGHTS}: truncated", ModelBroken),
    "empty": (WEIGHTS, lambda file: file.write_bytes(b""), rf"{WEIGHTS}: truncated", ModelBroken),
    "overwritten": (WEIGHTS, scribble, rf"{WEIGHTS}: truncated, or not a safetensors file", ModelBroken),
    "a missing shard": (WEIGHTS, lose_a_shard, rf"00002.safetensors: the file is missing, but {INDEX}", ModelBroken),
    "a broken index": (WEIGHTS, lambda file: (file.parent / INDEX).write_text("{"), rf"{INDEX}: not an", ModelBroken),
    "no weights": (WEIGHTS, lambda file: file.unlink(), "no weights", ModelBroken),
    "pickled weights": (WEIGHTS, lambda file: file.rename(file.with_suffix(".bin")), "pickled", ModelBroken),
    "a broken tokenizer": ("tokenizer.json", cut, "no tokenizer that can be read", ModelBroken),
    "no config": ("config.json", lambda file: file.unlink(), "config.json", ModelNotFound),
    "a broken config": ("config.json", cut, "config", ModelNotFound),
    "no chat template": ("chat_template.jinja", lambda file: file.unlink(), "no chat template", UnsupportedModel),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_named_with_the_reason_and_the_remedy(folder: Path, damage: str) -> None:
    file, do, words, error = DAMAGE[damage]
    do(folder / file)
    with pytest.raises(error, match=words) as caught:
        Engine.load(folder, device=DEVICE)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def says(**options: object) -> Callable[[Path], object]:
    """Set these options in a JSON config."""
    return lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | options))


CONFIGS: tuple[dict[str, object], ...] = (
    {"hidden_size": "many"}, {"num_attention_heads": 0}, {"num_hidden_layers": 0}, {"num_hidden_layers": -1},
    {"vocab_size": -5}, {"model_type": 5}, {"rope_parameters": 5}, {"layer_types": ["x"]}, {"hidden_size": 10**30},
)  # fmt: skip


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_a_config_that_says_what_cannot_be_is_one_error_of_ours(folder: Path, options: dict[str, object]) -> None:
    says(**options)(folder / "config.json")
    with pytest.raises(ModelError):
        Engine.load(folder, device=DEVICE)


def test_loading_tells_of_steps_that_are_compiled_and_is_quiet_where_none_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, decoded = list[tuple[str, int, int]](), list[int]()

    def decode(engine: Engine, calls: list[Decode]) -> list[int]:
        decoded.append(len(calls))
        return []

    monkeypatch.setattr(Engine, "decode", decode)
    for compiles in (False, True):
        monkeypatch.setattr(Backends, "compiled", compiles)
        Engine.load(folder, device="cpu", tell=lambda *told: heard.append(told))
        told = [each for each in heard if each[0] == "steps compiled"]
        assert told == [("steps compiled", done, len(decoded)) for done in range(len(decoded) + 1) if compiles]
    assert decoded == [1, 2, 5, 17]


def test_a_name_that_no_folder_can_have_is_no_model() -> None:
    with pytest.raises(ModelNotFound, match="too long for a folder"):
        Engine.load("a" * 5000)


def test_a_name_that_is_no_model_is_told_with_the_nearest_of_ours() -> None:
    for folder in ("./nope", "~/nope", "../nope"):
        with pytest.raises(ModelNotFound, match=r"nope': the folder does not exist\. Give 'understudy'"):
            Engine.load(folder)
    assert "none. did you mean 'understudy'? Give 'understudy'," in str(ModelNotFound("understudyy", "none"))
    for known in ("smollm2", "./understudyy"):
        assert "did you mean" not in str(ModelNotFound(known, "none"))


def test_the_hub_is_not_asked_for_a_misspelt_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr("agentcho.runner.model.model.AutoConfig.from_pretrained", lambda path, **_: asked.append(path))
    with pytest.raises(ModelNotFound, match=r"run `hf download smolm2` if .* did you mean 'smollm2'\?"):
        find("smolm2")
    assert not asked
    for other in ("gpt2", "someone/smolm2"):
        find(other)
    assert asked == ["gpt2", "someone/smolm2"]


def test_a_home_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert find(f"~/{folder.name}").path == str(folder)
    engine = load_engine(RunConfig(model=f"~/{folder.name}", device=DEVICE))
    assert engine.fingerprint["model"] == str(folder)


def test_loading_tells_of_every_weight_and_of_its_proofs(folder: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    Engine.load(folder, device=DEVICE, tell=lambda *told: heard.append(told))
    weights = len(load_file(folder / WEIGHTS))
    assert [told for told in heard if told[0] == "weights read"] == [
        ("weights read", number, weights) for number in range(weights + 1)
    ]
    assert [told for told in heard if told[0] != "steps compiled"][-2:] == [("proofs", 0, 1), ("proofs", 1, 1)]
    heard.clear()
    AutoModelForCausalLM.from_pretrained(folder)
    assert heard == [], "the library's bars are its own again"


def test_the_embedded_model_is_what_the_library_makes_of_its_folder() -> None:
    engine = Engine.load(device=DEVICE)
    stock: Any = AutoModelForCausalLM.from_pretrained(weights_path(), dtype=torch.float32)
    for ours, theirs in ((engine.network.state_dict(), stock.state_dict()), (buffers(engine.network), buffers(stock))):
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert tensor.dtype == theirs[name].dtype
            assert torch.equal(tensor.cpu(), theirs[name]), name
    assert engine.network.generation_config.to_dict() == stock.generation_config.to_dict()  # type: ignore[union-attr, operator]
    assert engine.network.lm_head.weight is engine.network.model.embed_tokens.weight  # type: ignore[union-attr]
    assert not any(module.training for module in engine.network.modules())


def buffers(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(network.named_buffers())


def test_a_download_tells_of_what_is_on_disk(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[str, int, int]] = []
    bars = checkpoint.download_progress(lambda *told: heard.append(told))["tqdm_class"]
    for name, unit in (("http_get", "B"), ("snapshot_download.transfer", "B"), ("snapshot_download", "it")):
        with bars(name=f"huggingface_hub.{name}", unit=unit, total=4 << 20, initial=1 << 20, desc="a file") as bar:
            bar.update(1 << 20)
            bar.update(2 << 20)
            bar.set_postfix_str("1 MB/s")
    assert heard == [("MB downloaded", 2, 4), ("MB downloaded", 4, 4)]
    assert capfd.readouterr() == ("", "")
    assert checkpoint.download_progress(no_progress) == {}


def test_loading_says_nothing_by_itself(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Engine.load(folder, device=DEVICE)
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_larger_than_the_embedding_is_refused_by_the_doctor_too(folder: Path) -> None:
    llama_family().save(folder, vocab_size=len(tokenizer("llama3")) - 3)
    for load in (lambda: Engine.load(folder, device=DEVICE), lambda: doctor(folder, device=DEVICE)):
        with pytest.raises(ModelBroken, match=r"its embedding has \d+ rows.*resize_token_embeddings"):
            load()


def test_added_tokens_that_nothing_can_bring_in_may_lie_outside(folder: Path) -> None:
    known = AutoTokenizer.from_pretrained(folder)
    known.add_special_tokens({"additional_special_tokens": ["<picture>"]})
    known.save_pretrained(folder)
    with Engine.load(folder, device=DEVICE) as engine:
        assert len(engine.tokenizer) > engine.network.get_input_embeddings().num_embeddings  # type: ignore[operator]
        said = engine.decode("<picture>", sampling=Sampling(max_tokens=3))
        assert engine.message(said).header == "<picture>"


def multimodal(folder: Path) -> Any:
    """A multimodal Gemma, saved as the library saves it, and its text part alone in the folder `alone` in it."""
    gemma = next(family for family in families() if family.name == "gemma3_text")
    text = gemma.build()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = sizes | {"image_size": 28, "patch_size": 14}
    config = Gemma3Config(
        text_config=text.config.to_dict(), vision_config=vision, mm_tokens_per_image=4, tie_word_embeddings=False
    )
    whole: Any = Gemma3ForConditionalGeneration(config)
    whole = whole.float()
    whole.model.language_model.load_state_dict(text.model.state_dict())
    whole.lm_head.load_state_dict(text.lm_head.state_dict())
    whole.save_pretrained(folder)
    tokenizer(gemma.style).save_pretrained(folder)
    gemma.save(folder / "alone")
    return whole


def test_weights_that_do_not_fit_into_memory_are_refused_before_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcho.runner.model.model._read", lambda *args: pytest.fail("the weights were read"))
    monkeypatch.setattr("agentcho.runner.model.device.free_memory", lambda device: 10**4)
    with pytest.raises(ModelError, match=rf"{folder} has 0\.0 GB of weights.* has room for 0\.0 GB.*a smaller model"):
        Engine.load(folder, DEVICE)


@pytest.mark.parametrize("where", ["reuse_check.ReuseCheck._prove", "model.model.Model._lighten"])
def test_a_full_memory_is_not_taken_for_a_model_that_cannot_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 1 GiB")

    monkeypatch.setattr(f"agentcho.runner.{where}", full)
    with pytest.raises(ModelError, match=r"(no memory left to run|does not fit into).*give a smaller model") as told:
        Engine.load(folder, DEVICE, weights="int8")
    assert not isinstance(told.value, UnsupportedModel)


@pytest.mark.parametrize("older", [False, True], ids=["names of today", "names of the hub"])
@pytest.mark.slow
def test_of_a_multimodal_gemma_the_text_part_is_taken(
    tmp_path: Path, older: bool, caplog: pytest.LogCaptureFixture
) -> None:
    multimodal(tmp_path)
    rename(tmp_path / WEIGHTS, older)
    monitored = logging.getLogger("transformers.modeling_utils")
    monitored.addHandler(caplog.handler)
    with (
        Engine.load(tmp_path, device=DEVICE, dtype="float32") as engine,
        Engine.load(tmp_path / "alone", device=DEVICE) as other,
    ):
        assert engine.fingerprint["model_type"] == "gemma3_text"
        assert torch.allclose(engine.score("the same words"), other.score("the same words"), atol=1e-4)
    monitored.removeHandler(caplog.handler)
    assert "vision_tower" not in caplog.text, "weights of the other parts are not listed"


@pytest.mark.parametrize("part", ["all of it", "the text part"])
@pytest.mark.slow
def test_an_adapter_of_a_multimodal_gemma_runs_on_its_text_part(tmp_path: Path, part: str) -> None:
    """peft trains it on the whole model, and names its weights by that."""
    targets: Any = "all-linear" if part == "all of it" else r".*language_model.*(q_proj|v_proj|down_proj)"
    torch.manual_seed(2)
    tuned: Any = get_peft_model(multimodal(tmp_path), LoraConfig(target_modules=targets, init_lora_weights=False))
    tuned.save_pretrained(tmp_path / "tuned")
    with Engine.load(tmp_path, DEVICE, "float32", adapter=tmp_path / "tuned") as engine:
        (said,) = engine.decode([Decode("the same words", sampling=Sampling(max_tokens=4), logits=True)])
        words = engine.message(said)
        assert words.sampled is not None
        opening = engine.framing.begin
        stock = tuned.eval()(input_ids=torch.tensor([[*opening, *words.tokens]])).logits[0, len(opening) :]
        begin, end = words.sampled
        assert torch.allclose(engine.logits(said).cpu(), stock[begin - 1 : end], atol=1e-4)


def rename(file: Path, older: bool) -> None:
    """Rename weights to the names of the library's classes, or with `older` to those used on the hub."""

    def name(key: str) -> str:
        if "vision" in key or "projector" in key:
            return key
        rest = key.removeprefix("language_model.").removeprefix("model.").removeprefix("language_model.")
        if rest.startswith("lm_head."):
            return f"language_model.{rest}" if older else rest
        return f"language_model.model.{rest}" if older else f"model.language_model.{rest}"

    save_file({name(key): value for key, value in load_file(file).items()}, file, {"format": "pt"})


def test_what_the_hub_says_is_said_with_the_way_out() -> None:
    def of(error: Exception) -> str:
        outer = OSError("You are trying to access\nsomething")
        outer.__cause__ = error
        return str(refusal("org/model", "org/model", outer))

    response = type("Response", (), {"headers": {}, "request": None, "status_code": 403})()
    assert "ask for access at https://huggingface.co/org/model" in of(GatedRepoError("gated", response=response))
    assert "no such model, or it is private" in of(RepositoryNotFoundError("none", response=response))
    assert "hf download org/model" in of(LocalEntryNotFoundError("not here"))


@pytest.mark.slow
def test_an_id_that_is_nowhere_is_said_offline_in_one_line(tmp_path: Path) -> None:
    code = "from agentcho.cli import main; main()"
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    for model, words in (("no-such/model", "hf download no-such/model"), (str(tmp_path), "config.json")):
        done = subprocess.run(
            [sys.executable, "-c", code, "doctor", model], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.strip().count("\n") == 0

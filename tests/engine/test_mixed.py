"""Several adapters in one forward, against the slow oracle: each call alone, through peft's own forward."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import DynamicCache

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import AdapterError, RequestError

from ..device import DEVICE
from ..engines import Engines
from .families import Family, families, llama_family, named
from .oracle import Message, Oracle

SHORT = Sampling(max_tokens=6, temperature=0)
Named = str | None


def drawn(family: Family, to: Path, seed: int, targets: Sequence[str] | str = "all-linear", **more: Any) -> Path:
    """A random adapter for a family, saved by peft itself."""
    network = family.build()
    torch.manual_seed(seed)
    targets = targets if isinstance(targets, str) else list(targets)
    given = {"r": 3 + seed, "lora_alpha": 2, "init_lora_weights": False, "target_modules": targets} | more
    get_peft_model(network, LoraConfig(task_type="CAUSAL_LM", **given)).save_pretrained(
        str(to), save_embedding_layers=False
    )
    return to


class Alone(Oracle):
    """An oracle that encodes each message through its own adapter with peft's forward, whoever reads it."""

    def __init__(self, family: Family, folders: dict[Named, Path], bos: int | None) -> None:
        network = family.build()
        first = next(iter(folders))
        self._peft = PeftModel.from_pretrained(network, str(folders[first]), str(first))
        for name, folder in folders.items():
            if name != first:
                self._peft.load_adapter(str(folder), str(name))
        self._peft.eval()
        self._through, self._starts = dict[int, Named](), dict[Named, int]()
        super().__init__(network, family.layers)
        self._first = bos

    def encode(self, tokens: Sequence[int], start: int, context: Sequence[tuple[int, int]], adapter: Named) -> int:
        """Encode one message through an adapter (None: the base); returns its index."""
        if self._first is not None and adapter not in self._starts:
            self._starts[adapter] = self._add((self._first,), 0, (), adapter)
        begin = () if self._first is None else ((self._starts[adapter], 0),)
        return self._add(tokens, start, (*begin, *context), adapter)

    def keys(self, index: int, start: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values `[1, heads, tokens, dim]` of each layer of a message, its first token at `start`."""
        return self._at(index, start)

    def _add(self, tokens: Sequence[int], start: int, context: Sequence[tuple[int, int]], adapter: Named) -> int:
        message = Message(tuple(tokens), start, tuple(context))
        self._through[id(message)] = adapter
        return self.add(message)

    def _forward(self, message: Message, start: int, cache: DynamicCache) -> Tensor:
        adapter = self._through[id(message)]
        if adapter is None:
            with self._peft.disable_adapter():
                return super()._forward(message, start, cache)
        self._peft.set_adapter(adapter)
        return super()._forward(message, start, cache)


class Side:
    """An engine with adapters, and an oracle that encodes one call at a time."""

    def __init__(self, engine: Engine, family: Family, folders: dict[Named, Path]) -> None:
        self.engine, self.names = engine, {name: engine.mix(folder) for name, folder in folders.items()}
        self._oracle = Alone(family, folders, engine.framing.bos)
        self._index = dict[int, int]()

    def digest(self, name: Named) -> Named:
        return None if name is None else self.names[name]

    def follow(self, id: int, name: Named) -> Tensor:
        """Encode a message with the oracle over the context in its receipt; its logits after each token."""
        receipt, tokens = self.engine.receipt(id), self.engine.message(id).tokens
        context = [(self._index[parent], offset) for parent, offset, _ in receipt.context]
        self._index[id] = self._oracle.encode(tokens, receipt.start, context, name)
        return self._oracle.logits(self._index[id])

    def gap(self, id: int, name: Named) -> float:
        """The gap between engine and oracle in the rows a decode chose from."""
        words, rows = self.engine.message(id), self.follow(id, name)
        assert words.sampled is not None
        start, stop = words.sampled
        ours, theirs = self.engine.logits(id).log_softmax(-1), rows[start - 1 : stop].log_softmax(-1)
        return float((ours - theirs).abs().max())


def played(side: Side, exact: bool = False) -> list[float]:
    """Rules through the base, one message through each adapter, then a decode of each in one batch."""
    engine, names = side.engine, (None, "one", "two")
    rules = engine.prefill("You are all here to agree.", role="system")
    side.follow(rules, None)
    own = engine.prefill([Prefill(f"I am {name}", [rules], adapter=side.digest(name)) for name in names])
    for id, name in zip(own, names, strict=True):
        side.follow(id, name)
    calls = [
        Decode("So: ", [id, rules], sampling=SHORT, logits=True, adapter=side.digest(name))
        for id, name in zip(own, names, strict=True)
    ]
    ids = engine.submit([*calls, replace(calls[1], parents=[rules])])
    while not engine.idle:
        engine.step(exact)
    return [side.gap(id, name) for id, name in zip(ids, (*names, "one"), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("family", named("llama", "qwen3", "gemma2", "phi3", "gpt_neox", "cohere2", quick="llama"))
@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_each_says_what_it_says_alone_through_pefts_own_forward(
    family: Family, exact: bool, engines: Engines, tmp_path: Path
) -> None:
    folders: dict[Named, Path] = {name: drawn(family, tmp_path / name, i) for i, name in enumerate(("one", "two"))}
    side = Side(engines.own(family), family, folders)
    assert max(played(side, exact)) < 2e-4


@pytest.fixture
def base(engines: Engines) -> Engine:
    """An engine with a network of its own, because adapters stay on it."""
    return engines.own()


def llama(to: Path, seed: int, targets: Sequence[str] | str = "all-linear", **more: Any) -> Path:
    return drawn(llama_family(), to / f"{seed}", seed, targets, **more)


def forwards(engine: Engine) -> list[int]:
    """The token counts of all forwards from now on."""
    seen = list[int]()
    engine.network.register_forward_pre_hook(
        lambda _, args, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    return seen


@pytest.mark.slow
def test_calls_of_several_adapters_are_one_forward(base: Engine, tmp_path: Path) -> None:
    names = (None, *(base.mix(llama(tmp_path, seed)) for seed in (1, 2)))
    seen = forwards(base)
    base.submit([Decode(sampling=SHORT, adapter=name) for name in names])
    base.step()
    base.step()
    assert len(seen) == 2
    assert seen[1] == 3


def test_keys_are_apart_by_adapter_and_the_base_is_as_it_was(base: Engine, tmp_path: Path) -> None:
    before = base.cached(base.prefill("so it is"))
    one, two = (base.mix(llama(tmp_path, seed)) for seed in (1, 2))
    ids = base.prefill([Prefill("so it is", adapter=name) for name in (None, one, two, one)])
    entries = [base.debug.entry(id) for id in ids]
    assert entries[1] is entries[3]
    assert len({entry.key for entry in entries}) == 3
    assert all(
        torch.equal(a, b) for x, y in zip(before, base.cached(ids[0]), strict=True) for a, b in zip(x, y, strict=True)
    )
    assert base.mix(tmp_path / "1") == one
    assert "adapter" not in base.fingerprint


LAST = {"layers_to_transform": [3], "layers_pattern": "layers"}


@pytest.mark.parametrize(
    ("targets", "more", "shared"),
    [
        (["lm_head"], {}, True),
        (["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], LAST, True),
        (["k_proj"], LAST, False),
        (["v_proj", "q_proj"], LAST, False),
        (["q_proj", "o_proj"], {}, False),
        (["down_proj"], {"layers_to_transform": [2], "layers_pattern": "layers"}, False),
    ],
)
def test_encodings_are_the_bases_where_nothing_flows_into_a_key_or_value(
    targets: Sequence[str], more: dict[str, Any], shared: bool, base: Engine, tmp_path: Path
) -> None:
    name = base.mix(llama(tmp_path, 1, targets, **more))
    plain, through = base.prefill([Prefill("so it is"), Prefill("so it is", adapter=name)])
    assert (base.debug.entry(plain) is base.debug.entry(through)) == shared
    alone = base.prefill(Prefill("so it is", adapter=name, salt="of its own"))
    same = all(
        torch.equal(a, b)
        for x, y in zip(base.cached(plain), base.cached(alone), strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert same == shared  # what was proved agrees with what is computed
    said = [base.score("and so on", parents=[plain], adapter=adapter) for adapter in (None, name)]
    assert float((said[0] - said[1]).abs().max()) > 1e-3


def test_keys_of_another_adapter_are_refused(base: Engine, tmp_path: Path) -> None:
    one, two = (base.mix(llama(tmp_path, seed)) for seed in (1, 2))
    plain, own = base.prefill([Prefill("so it is"), Prefill("so it is", adapter=one)])
    for call in (Decode(parents=[own], adapter=two), Prefill("no", [own], adapter=two)):
        with pytest.raises(RequestError, match="is of another adapter"):
            base.submit([call])
    with pytest.raises(RequestError, match="is of an adapter, and this call of none"):
        base.submit([Decode(parents=[own])])
    with pytest.raises(RequestError, match="is not loaded in this engine"):
        base.submit([Decode(parents=[plain], adapter="0" * 32)])
    with pytest.raises(RequestError, match="adapter"):
        base.submit([Decode(parents=[plain], adapter=7)])  # type: ignore[arg-type]
    assert base.idle


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"use_dora": True}, "it has DoRA"),
        ({"bias": "lora_only"}, "it changes biases"),
        ({"modules_to_save": ["norm"]}, "trained as a whole"),
        ({"init_lora_weights": "pissa"}, "changing the base's own weights"),
        ({"target_modules": ["embed_tokens"]}, "not a plain linear layer"),
    ],
)
def test_what_is_no_plain_lora_is_refused_beside_others(
    more: dict[str, Any], told: str, base: Engine, tmp_path: Path
) -> None:
    folder, before = llama(tmp_path, 1, ["q_proj"]), base.score("so it is")
    config = json.loads((folder / "adapter_config.json").read_text())
    if told == "not a plain linear layer":
        folder = llama(tmp_path, 2, ["embed_tokens"])
    else:
        (folder / "adapter_config.json").write_text(json.dumps(config | more))
    with pytest.raises(AdapterError, match=told) as caught:
        base.mix(folder)
    assert "an engine of its own" in str(caught.value)
    assert torch.equal(base.score("so it is"), before)


@pytest.mark.slow
def test_exact_bits_do_not_depend_on_the_adapters_beside(base: Engine, tmp_path: Path) -> None:
    one, two = (base.mix(llama(tmp_path, seed)) for seed in (1, 2))

    def said(*beside: Named) -> list[Tensor]:
        own = base.prefill(Prefill("so it is", adapter=one, salt=f"{beside}"))
        calls = [
            Decode(parents=[own], adapter=one),
            *(Decode("x" * nth, adapter=name) for nth, name in enumerate(beside)),
        ]
        id, *_ = base.submit([replace(call, sampling=SHORT, logits=True, salt=f"{beside}") for call in calls])
        while not base.idle:
            base.step(deterministic=True)
        return [base.logits(id), *(each for pair in base.cached(id) for each in pair)]

    alone = said()
    for beside in ((None,), (two,), (two, None, one, two)):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(said(*beside), alone, strict=True))


def test_what_was_dropped_is_made_again_through_its_adapter(engines: Engines, tmp_path: Path) -> None:
    folder, family = engines.folder(), llama_family()
    engine = Engine.load(folder, device=DEVICE, dtype="float32", host_tokens=0)
    name = engine.mix(drawn(family, tmp_path / "one", 1))
    known = engine.prefill(Prefill("so it is", adapter=name))
    spoken = engine.decode(Decode(parents=[known], sampling=SHORT, adapter=name))
    before = [engine.cached(id) for id in (known, spoken)]
    engine.swap_out([spoken, known])
    assert engine.debug.entry(spoken).dropped
    again = [engine.cached(id) for id in (known, spoken)]
    gaps = [
        float((a - b).abs().max())
        for x, y in zip(before, again, strict=True)
        for p, q in zip(x, y, strict=True)
        for a, b in zip(p, q, strict=True)
    ]
    assert max(gaps) < 1e-4
    engine.check_integrity()


def test_an_engine_of_one_adapter_takes_no_others(base: Engine, tmp_path: Path) -> None:
    one, two = (llama(tmp_path, seed) for seed in (1, 2))
    name = base.mix(one)
    mixed = base.score("so it is", adapter=name)
    own = base.adapted(one)
    assert float((own.score("so it is") - mixed).abs().max()) < 1e-5  # peft's own forward
    assert torch.equal(base.score("so it is", adapter=name), mixed)
    with pytest.raises(AdapterError, match="load the base model alone"):
        own.mix(two)


@pytest.mark.parametrize("weights", [None, pytest.param("int8", marks=pytest.mark.slow)])
def test_other_numbers(weights: str | None, engines: Engines, tmp_path: Path) -> None:
    engine = Engine.load(engines.folder(), device=DEVICE, dtype="bfloat16", weights=weights)
    folder = llama(tmp_path, 1)
    name = engine.mix(folder)
    mixed, own = engine.score("so it is", adapter=name), engine.adapted(folder).score("so it is")
    assert float((mixed - own).abs().max()) < 1e-2


@pytest.mark.slow
def test_layers_of_experts_are_refused(engines: Engines, tmp_path: Path) -> None:
    (family,) = (each for each in families() if each.name == "qwen3_moe")
    folder = drawn(family, tmp_path / "one", 1, ["q_proj", "v_proj"])
    engine = engines.own(family)
    name = engine.mix(folder)
    mixed = engine.score("so it is", adapter=name)
    assert float((mixed - engine.adapted(folder).score("so it is")).abs().max()) < 1e-4


def test_what_is_not_what_peft_gives_is_refused(base: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.runner.model.mixed_lora._added", lambda layer, adapter, rows, out: out)
    with pytest.raises(AdapterError, match="off what peft gives"):
        base.mix(llama(tmp_path, 1))

"""Every registered attention backend agrees with the slow oracle, and a third-party backend is used like them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.attention.flex_attention as library
from torch import Tensor

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.call_layout import Segment
from agentcho.runner.attention import flex, registry, triton_paged
from agentcho.runner.attention.base import (
    AttentionBackend,
    Capabilities,
    DecodeRows,
    DecodeStep,
    Gathering,
    Locality,
    PrefillStep,
    Scoring,
    Setting,
)
from agentcho.runner.attention.dense import DensePrefill
from agentcho.runner.attention.registry import BACKENDS, Backends, Rows, register, unregister
from agentcho.runner.doctor import attention_rows
from agentcho.runner.kv.decode_kv import Reads

from ..engines import Engines
from .families import Family, families
from .stage import Stage

TOLD = ("the quick brown fox jumps over a lazy dog and sleeps for days", "what does it dream of at night? " * 2)
CPU = torch.device("cpu")


class Watched(AttentionBackend):
    """Wraps a backend, is used wherever it would be, and records what it prepared."""

    def __init__(self, backend: AttentionBackend) -> None:
        self.backend = backend
        self.name, self.does, self.reads = backend.name, backend.does, backend.reads  # type: ignore[misc]
        self.decoded = list[DecodeRows]()

    def capabilities(self, setting: Setting) -> Capabilities:
        return self.backend.capabilities(setting)._replace(missing=None)

    def refused(self, device: torch.device) -> str | None:
        return self.backend.refused(device)

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        self.decoded.append(rows)
        return self.backend.prepare_decode(rows)

    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        return self.backend.prepare_prefill(segment, gathering)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run kernels uncompiled and in small parts, and share short contexts."""
    monkeypatch.setattr(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "_compiled", lambda kernel: kernel)
    monkeypatch.setattr(triton_paged, "SPAN", 64)
    monkeypatch.setattr(triton_paged, "BLOCK", 32)
    monkeypatch.setattr("agentcho.runner.slots.LEAST", 8)
    monkeypatch.setattr("agentcho.runner.kv.shared_runs.LEAST", 8)
    for trial in (flex.TRIAL, triton_paged.TRIAL):
        trial.forget()
    flex._kernel.cache_clear()
    yield
    for trial in (flex.TRIAL, triton_paged.TRIAL):
        trial.forget()
    flex._kernel.cache_clear()


def cells() -> list[Any]:
    """Each backend on a plain model, and on one with windows and soft caps where it supports them."""
    kinds = {family.name: family for family in families() if family.name in ("llama", "gemma2")}
    return [
        pytest.param(backend, kinds[name], id=f"{backend.name}-{name}", marks=() if quick else pytest.mark.slow)
        for backend in BACKENDS
        for name in kinds
        for quick in [name == "llama" and backend.name != "triton-paged"]
        if name == "llama" or backend.reads != "shared"
    ]


@pytest.mark.parametrize(("backend", "family"), cells())
def test_rows_say_what_the_oracle_says(
    backend: AttentionBackend, family: Family, engines: Engines, monkeypatch: pytest.MonkeyPatch, here: None
) -> None:
    """Rows over the same messages at the same and at different positions, and rows over none."""
    if backend.name == "triton-paged":
        pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")
    watched = Watched(backend)
    others = [each for each in BACKENDS if each.name == "dense" and each is not backend]
    monkeypatch.setattr(registry, "BACKENDS", [watched, *others])
    stage = Stage(family, engines(family), engines.stock(family))
    told = stage.prefill(*map(Prefill, TOLD))
    calls = [
        Decode("so", told, forced=(40, 41)),
        Decode("To Bob: ", told, forced=(43, 44)),
        Decode("", [told[1], told[0]], [90, 20], forced=(46, 47)),
        Decode("alone", forced=(49, 50)),
    ]
    with warnings.catch_warnings(action="error"):
        _, worst = stage.decode(*calls)
    assert worst < 1e-3
    assert {rows.pool.reads for rows in watched.decoded} == {backend.reads}
    assert sum(len(rows.slots) for rows in watched.decoded) >= 2 * 2
    assert not backend.refused(CPU)


class Loops(AttentionBackend):
    """A backend that loops over queries and heads, as a first attempt might."""

    name = "loops"
    does = "loops over queries and heads"
    reads: ClassVar[Reads] = "copy"

    def __init__(self) -> None:
        self.decoded = self.prefilled = 0

    def capabilities(self, setting: Setting) -> Capabilities:
        return Capabilities(None if setting.plain else "it knows no windows")

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        self.decoded += 1
        return LoopsDecode(rows)

    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        self.prefilled += 1
        return DensePrefill()


class LoopsDecode(DecodeStep):
    def __init__(self, rows: DecodeRows) -> None:
        self.rows = rows

    def decode(self, layer: int, queries: Tensor, locality: Locality, scoring: Scoring) -> Tensor:
        pool = self.rows.pool
        heads, groups = queries.shape[1], queries.shape[1] // pool.keys[layer].shape[1]
        found = queries.new_zeros(len(queries), heads, pool.values[layer].shape[3])
        for n, (row, end) in enumerate(zip(self.rows.rows.tolist(), self.rows.ends.tolist(), strict=True)):
            for head in range(heads):
                keys = pool.keys[layer][row, head // groups, : end + 1].double()
                weights = (keys @ queries[n, head].double() * scoring.scale).softmax(0)
                found[n, head] = (weights @ pool.values[layer][row, head // groups, : end + 1].double()).to(found)
        return found


@pytest.fixture
def loops() -> Iterator[Loops]:
    backend = Loops()
    register(backend)
    yield backend
    unregister(backend)


def test_a_backend_that_is_registered_is_used_from_load_to_the_last_word(loops: Loops) -> None:
    def said(engine: Engine) -> list[tuple[int, ...]]:
        engine.debug.slots.may_share = False
        told = engine.prefill([Prefill(text) for text in TOLD])
        calls = [Decode(header, told, sampling=Sampling(temperature=0, max_tokens=8)) for header in ("a: ", "b: ")]
        return [engine.message(id).tokens for id in engine.decode(calls)]

    with Engine.load(device="cpu", dtype="float32") as engine:
        found = said(engine)
        assert loops.decoded > 5
        assert loops.prefilled >= 4
        assert attention_rows(engine.backends)[0][2:] == ("loops", "loops over queries and heads")
        unregister(loops)
        before = loops.decoded
        assert said(engine.adapted(None)) == found
        assert loops.decoded == before
        register(loops)


def test_a_name_belongs_to_one_backend(loops: Loops) -> None:
    with pytest.raises(ValueError, match="'loops' already"):
        register(Loops())


def test_rows_go_to_the_first_backend_that_can_serve_them() -> None:
    cuda = torch.device("cuda")

    def serving(setting: Setting) -> dict[tuple[Reads, bool], str]:
        chosen: Callable[[Rows], registry.Serving] = Backends(setting).serving.__getitem__
        kinds: list[tuple[Reads, bool]] = [("copy", True), ("copy", False)]
        return {kind: chosen(Rows(kind[0], setting.device, kind[1])).backend.name for kind in kinds}

    assert serving(Setting(CPU, frozenset([CPU]))) == {("copy", True): "dense", ("copy", False): "dense"}
    assert serving(Setting(cuda, frozenset([cuda]))) == {("copy", True): "flex", ("copy", False): "dense"}


@pytest.mark.parametrize(
    ("setting", "pages", "shared"),
    [
        (Setting(CPU, frozenset([CPU]), plain=True), "Triton has no kernels for cpu", None),
        (Setting(CPU, frozenset([CPU])), "Triton has no kernels for cpu", "there are layers with a window"),
        (Setting(CPU, frozenset([CPU]), True, True), "keys and values in 8 bits", None),
    ],
)
def test_a_backend_says_why_it_is_not_used(setting: Setting, pages: str, shared: str | None) -> None:
    missing = {each.name: each.missing for each in Backends(setting).report()}
    assert (missing["triton-paged"] or "").startswith(pages)
    assert (missing["shared-prefix"] or "").startswith(shared or "")
    assert (missing["shared-prefix"] is None) == (shared is None)
    assert missing["dense"] is None

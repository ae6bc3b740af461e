"""Fuses parts of a stock network that launch many small GPU kernels into one kernel each: RMSNorm, the rotary embedding
of queries and keys, and the gate of an MLP.

If a module's code is the same as Llama's, as for Qwen, Mistral and many others, its `forward` is replaced, on this
network only. The replacement is first compared with the module itself, and a module that differs keeps its own. Layers
inside a module are called as before, so that adapters and quantized weights still apply. Fused kernels are used only
inside `use_fused`: never where gradients are kept, nor in the stock forward that the gate compares with. Nothing
changes after loading, and a token has the same bits beside any others; whether forwards of several sizes agree to the
bit is tested through these same kernels (see `runner.invariance`).

RMSNorm is torch's own fused kernel; the other two are small Triton kernels. Liger-Kernel has all three, but was not
used: it replaces classes and functions of transformers for the whole process; its kernels are for training, keep what a
backward pass needs and overwrite queries and keys; and its rotary kernel is recompiled, during a step, for one token,
for multiples of 16 and for other numbers. The residual addition is not fused into RMSNorm: that would take a forward of
decoder layers of our own, and save 64 launches of some 600.

Independent of attention.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcho.runner.attention.base import Locality, Scoring
from agentcho.runner.attention.trial import failure

BOUNDS = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
"""The largest allowed error of a fused module, as a share of the largest number. Stock RMSNorm rounds twice, and
torch's kernel once: together up to three halves of the last bit, 1.5 x 2^-7 of a number in bfloat16."""
TRIED = (1, 3, 17)
"""The numbers of tokens with which a module is tried."""
TURNING, ROTARY = "apply_rotary_pos_emb", "RotaryEmbedding"
HEADS, COLUMNS = 4, 1024
"""The number of heads that one program rotates, and the number of a gate's columns that one program computes."""
Forward = Callable[..., Any]


class FusedPart(NamedTuple):
    """A part of a network in reports: what computes it in one kernel, for how many modules; or why nothing does."""

    name: str
    how: str
    modules: int
    why: str | None


class _Use(threading.local):
    on = False


_use = _Use()


@contextmanager
def use_fused() -> Iterator[None]:
    """Use fused kernels, where there are any, in this thread within the `with` block. For forwards without
    gradients."""
    before, _use.on = _use.on, True
    try:
        yield
    finally:
        _use.on = before


def fuse(network: nn.Module) -> tuple[FusedPart, ...]:
    """Fuse what can be fused of a network on one GPU, and report it. Kernels are compiled now."""
    devices = {weight.device for weight in network.parameters()}
    dtype = next(network.parameters()).dtype
    parts: tuple[_Part, ...] = (_Norm(dtype), _Turning(dtype, network), _Gate(dtype))
    return tuple(_fused(network, part, len(devices) > 1) for part in parts)


class _Part:
    """One kind of modules in a network of this dtype. `how`: what computes it. `missing`: why nothing can, if known."""

    name: ClassVar[str]
    how: ClassVar[str] = "a Triton kernel"

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    @property
    def missing(self) -> str | None:
        return None if find_spec("triton") else "Triton is not installed"

    def forward(self, module: Any) -> Forward | None:
        """The replacement for the `forward` of a module, inside `use_fused`; None if the module is of another kind."""
        raise NotImplementedError

    def trials(self, module: Any) -> Iterator[tuple[Tensor, ...]]:
        """Outputs of a module, for several numbers of tokens."""
        raise NotImplementedError

    def _drawn(self, module: nn.Module, width: int) -> Iterator[Tensor]:
        """Random inputs `[1, tokens, width]` for a module, from small to large values."""
        device = next(module.parameters()).device
        dice = torch.Generator(device).manual_seed(0)
        for tokens in TRIED:
            drawn = torch.randn(1, tokens, width, generator=dice, device=device)
            yield (drawn * torch.logspace(-2, 2, tokens, device=device)[None, :, None]).to(self.dtype)


def _fused(network: nn.Module, part: _Part, several: bool) -> FusedPart:
    """Fuse one part of a network, whose layers are on `several` devices or on one."""
    missing = "layers are on several devices" if several else part.missing
    if missing is not None:
        return FusedPart(part.name, part.how, 0, missing)
    groups = dict[tuple[Any, ...], list[Any]]()
    for module in network.modules():
        if part.forward(module) is not None:
            weights = ((weight.shape, weight.dtype) for weight in module.parameters())
            groups.setdefault((type(module), *weights), []).append(module)
    count, why = 0, None if groups else "no module of it is written as Llama's is"
    for modules in groups.values():
        own = _with_forward(type(modules[0]), part.forward(modules[0]))
        if (found := _why_not(part, modules[0], own)) is None:
            count += len(modules)
            for module in modules:
                module.__class__ = own
        else:
            why = found
            warnings.warn(f"{part.name} is as stock, and slower: {part.how} {why}", stacklevel=4)
    return FusedPart(part.name, part.how, count, why)


def _with_forward(stock: Any, forward: Forward | None) -> type:
    """A subclass with another `forward` inside `use_fused`. It has the name of the stock class, which other code
    checks."""

    def either(self: Any, *given: Any, **more: Any) -> Any:
        return (forward if _use.on and forward is not None else stock.forward)(self, *given, **more)

    return type(stock.__name__, (stock,), {"forward": either, "__module__": stock.__module__, "stock": stock})


@torch.inference_mode()
def _why_not(part: _Part, module: Any, own: type) -> str | None:
    """Compare a module with its fused form; return why it cannot be fused, or None. Leaves the module unchanged."""
    stock = type(module)
    try:
        expected = list(part.trials(module))
        module.__class__ = own
        with use_fused():
            found = list(part.trials(module))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return failure(error)
    finally:
        module.__class__ = stock
    gaps = [_gap(*pair) for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)]
    wrong = [gap for gap in gaps if not gap <= BOUNDS[part.dtype]]
    return f"gives values that are off by {wrong[0]:.2g} of the largest" if wrong else None


def _gap(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


def _same(one: object, other: object) -> bool:
    """Whether two functions have the same code, apart from string constants."""
    codes = [getattr(inspect.unwrap(each), "__code__", None) for each in (one, other) if callable(each)]
    return len(codes) == 2 and None not in codes and _words(codes[0]) == _words(codes[1])


def _words(code: CodeType | None) -> tuple[Any, ...]:
    assert code is not None
    constants = [each for each in code.co_consts if not isinstance(each, str)]
    return code.co_code, code.co_names + code.co_varnames, constants


def _llama() -> Any:
    return import_module("transformers.models.llama.modeling_llama")


class _Norm(_Part):
    """RMSNorm as in Llama: divided by the root of the mean of squares in float32, then times a weight."""

    name, how = "RMSNorm", "torch's own kernel"
    missing = None

    def forward(self, module: Any) -> Forward | None:
        """See `_Part.forward`."""
        return _normed if _same(type(module).forward, _llama().LlamaRMSNorm.forward) else None

    def trials(self, module: Any) -> Iterator[tuple[Tensor, ...]]:
        """See `_Part.trials`."""
        return ((module(given),) for given in self._drawn(module, module.weight.shape[0]))


def _normed(module: Any, given: Tensor) -> Tensor:
    if given.dtype != module.weight.dtype:
        stock: Tensor = module.stock.forward(module, given)
        return stock
    return functional.rms_norm(given, module.weight.shape, module.weight, module.variance_epsilon)


class _Gate(_Part):
    """Llama's MLP: the SiLU of one product times another product, multiplied by a third matrix."""

    name = "SwiGLU"

    def forward(self, module: Any) -> Forward | None:
        """See `_Part.forward`."""
        if not _same(type(module).forward, _llama().LlamaMLP.forward):
            return None
        activations = nn.SiLU, import_module("transformers.activations").SiLUActivation
        return _gated if isinstance(module.act_fn, activations) else None

    def trials(self, module: Any) -> Iterator[tuple[Tensor, ...]]:
        """See `_Part.trials`."""
        return ((module(given),) for given in self._drawn(module, module.hidden_size))


def _gated(module: Any, given: Tensor) -> Tensor:
    out: Tensor = module.down_proj(gate(module.gate_proj(given), module.up_proj(given)))
    return out


def gate(gates: Tensor, values: Tensor) -> Tensor:
    """The SiLU of gates `[..., width]`, times values of the same shape, in one kernel."""
    from agentcho.runner.model.fused_kernels import GateForm
    from agentcho.runner.model.fused_kernels import gate as kernel

    gates, width = gates.contiguous(), gates.shape[-1]
    out, grid = torch.empty_like(gates), (gates.numel() // width, -(-width // COLUMNS))
    _launch(kernel, grid, (gates, values.contiguous(), out), GateForm(width, COLUMNS))
    return out


class _Turning(_Part):
    """The function by which attention modules rotate queries and keys: their `forward` is the stock one with another
    function under that name. `network` has the module that computes cosines and sines."""

    name = "rotary embedding"

    def __init__(self, dtype: torch.dtype, network: nn.Module) -> None:
        super().__init__(dtype)
        self._rotary = next((each for each in network.modules() if type(each).__name__.endswith(ROTARY)), None)
        self._made = dict[type, Forward | None]()

    def forward(self, module: Any) -> Forward | None:
        """See `_Part.forward`."""
        kind = type(module)
        if kind not in self._made:
            self._made[kind] = _with_turning(kind.forward)
        return self._made[kind]

    def trials(self, module: Any) -> Iterator[tuple[Tensor, ...]]:
        """See `_Part.trials`: queries and keys as they are attended to."""
        if self._rotary is None:
            raise LookupError("the network has no rotary embedding module")
        for given in self._drawn(module, module.config.hidden_size):
            places = torch.arange(given.shape[1], device=given.device)[None] * 1000
            seen = _Seen()
            waves = self._rotary(given, places)
            module(hidden_states=given, position_embeddings=waves, attention_mask=None, attending=seen, chunks={})
            yield seen.turned


def _with_turning(forward: Any) -> Forward | None:
    """The `forward` of an attention module with the kernel in place of Llama's function, or None if it uses another
    function."""
    found, llama = inspect.unwrap(forward) if callable(forward) else None, _llama()
    if not isinstance(found, FunctionType) or TURNING not in found.__code__.co_names:
        return None
    stock = found.__globals__.get(TURNING)
    halves = getattr(stock, "__globals__", {}).get("rotate_half")
    if not _same(stock, llama.apply_rotary_pos_emb) or not _same(halves, llama.rotate_half):
        return None
    assert stock is not None
    names = {**found.__globals__, TURNING: partial(turn, stock)}
    other = FunctionType(found.__code__, names, found.__name__, found.__defaults__, found.__closure__)
    other.__kwdefaults__ = found.__kwdefaults__
    return other


def turn(
    stock: Forward, queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """Queries and keys `[1, heads, tokens, dim]`, rotated by cosines and sines `[1, tokens, dim]` in one kernel, or by
    the `stock` function if their shapes or dtypes do not fit."""
    one_row = len(queries) == len(keys) == len(cos) == 1
    alike = queries.shape[3] == keys.shape[3] == cos.shape[-1] and {queries.dtype, keys.dtype} == {cos.dtype}
    if not one_row or not alike or unsqueeze_dim != 1:
        given: tuple[Tensor, Tensor] = stock(queries, keys, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return given
    from agentcho.runner.model.fused_kernels import TurnForm
    from agentcho.runner.model.fused_kernels import turn as kernel

    pairs = [each.transpose(1, 2).contiguous() for each in (queries, keys)]
    out = [torch.empty_like(each) for each in pairs]
    form = TurnForm(
        heads=queries.shape[1],
        key_heads=keys.shape[1],
        dim=queries.shape[3],
        head_block=HEADS,
        pair_block=1 << (queries.shape[3] // 2 - 1).bit_length(),
    )
    grid = cos.shape[1], -(-form.heads // HEADS) - (-form.key_heads // HEADS)
    _launch(kernel, grid, (*pairs, cos.contiguous(), sin.contiguous(), *out), form)
    return out[0].transpose(1, 2), out[1].transpose(1, 2)


class _Seen:
    """Serves the attention of one layer, and records its queries and keys."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`; returns zeros."""
        self.turned = queries, keys
        return values.new_zeros(1, queries.shape[2], queries.shape[1], values.shape[3])


def _launch(kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], form: Any) -> None:
    """Run a kernel; as in torch, products are rounded before they are added."""
    device = tensors[0].device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*tensors, form, enable_fp_fusion=False)

"""Simulates GPUs: tensors live on the CPU but report the device they were put on, and an operation over tensors of two
devices fails, as it does on real devices. The computed numbers are real.

Must not import agentcho. Exceptions to the device check: copies, CPU indices, zero-dimensional CPU tensors, and causal
biases, which consist of two numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.bias import CausalBias
from torch.overrides import TorchFunctionMode

HOST = torch.device("cpu")


class Mixed(Exception):
    """Raised for an operation over tensors of several devices."""


def put(network: nn.Module, device: torch.device) -> None:
    """Mark a module's tensors as being on `device`."""
    for tensor in (*network.parameters(), *network.buffers()):
        _note(tensor, device)


class Pretend(TorchFunctionMode):
    """While active, tensors remember their devices; tensors made before count as being on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)
        if func == torch.Tensor.device.__get__:
            return _at(args[0])
        if func == torch.Tensor.to:
            return _moved(*args, **kwargs)
        wanted = kwargs.pop("device", None)
        kept = {id(tensor) for tensor in _tensors((args, kwargs))}
        found = _one(func, args, kwargs)
        out = func(*args, **kwargs)
        where = HOST if func == torch.Tensor.cpu else found if wanted is None else torch.device(wanted)
        for tensor in _tensors(out):
            if id(tensor) not in kept:
                _note(tensor, where)
            elif func == torch.Tensor.cpu and _at(tensor) != HOST:
                return _relabelled(tensor, HOST)
        return out


def _one(func: Any, args: Any, kwargs: Any) -> torch.device:
    """The device of the inputs. `Mixed`: there are several."""
    first = args[0] if args and isinstance(args[0], Tensor) else None
    if func == torch.Tensor.copy_ or (func == torch.Tensor.__setitem__ and not list(_tensors(args[1]))):
        return _at(args[0])
    loose = set()
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        loose = {id(index) for index in _tensors(args[1]) if _at(index) == HOST}
    inputs = [t for t in _tensors((args, kwargs)) if id(t) not in loose and (t.ndim or _at(t) != HOST)]
    inputs = [t for t in inputs if not isinstance(t, CausalBias)]
    found = {_at(tensor) for tensor in inputs}
    if len(found) > 1:
        raise Mixed(f"{getattr(func, '__name__', func)} over {sorted(map(str, found))}")
    return found.pop() if found else HOST if first is None else _at(first)


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Simulate `Tensor.to`: a device, a dtype, or both."""
    given = [*args, *(kwargs.get(name) for name in ("device", "dtype"))]
    where = [
        torch.device("cuda", x) if isinstance(x, int) else torch.device(x)
        for x in given
        if isinstance(x, str | torch.device) or type(x) is int
    ]
    kinds = [x for x in given if isinstance(x, torch.dtype)]
    out = tensor.to(kinds[0]) if kinds else tensor
    device = where[0] if where else _at(tensor)
    return out if out is tensor and device == _at(tensor) else _relabelled(out, device)


def _relabelled(tensor: Tensor, device: torch.device) -> Tensor:
    out = tensor.clone()
    _note(out, device)
    return out


def _at(tensor: Tensor) -> torch.device:
    return getattr(tensor, "_pretended", HOST)


def _note(tensor: Tensor, device: torch.device) -> None:
    tensor._pretended = device  # type: ignore[attr-defined]


def _tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict):
        yield from _tensors(list(found.values()))
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _tensors(each)

"""Imports the part of transformers that runs networks. Does not know: models, files.

Most of what that part imports itself serves compilers, training in several processes, and losses of object detection.
Where the process belongs to `agentcho run` or another command that plays, on a CPU, that is left out, by the library's
own switches for what is not installed: the classes of models are the same, and start two seconds sooner. A process that
may have other uses for transformers, such as a notebook or a script, gets all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch

COMMANDS = ("run", "serve", "doctor")
"""Commands for which it is left out."""
SWITCHES = ("is_torch_distributed_available", "is_scipy_available")
"""Functions by which transformers asks what is installed: for training in several processes, and for some losses."""
COMPILER, TRANSFORM = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
T = TypeVar("T")


def whole() -> bool:
    """Whether all of transformers is imported: this process is not a command's, or there is a GPU, for which kernels
    are compiled."""
    return not _commanded() or torch.cuda.is_available() or "transformers.modeling_utils" in sys.modules


def _commanded() -> bool:
    """Whether `agentcho run`, or another of these commands, is what was started: the script, or the package."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    started = Path(file).stem == "agentcho" if spec is None else spec.name == "agentcho.__main__"
    return started and sys.argv[1:2] != [] and sys.argv[1] in COMMANDS


@contextmanager
def left_out() -> Iterator[None]:
    """A context in which imports of transformers leave out what no game needs. What is asked for in functions is
    imported later, when they are called."""
    if whole():
        yield
        return
    utils = (import_module("transformers.utils.import_utils"), import_module("transformers.utils"))
    for name in SWITCHES:
        for module in utils:
            if hasattr(module, name):
                setattr(module, name, _absent)
    stands_in = {} if COMPILER in sys.modules else {COMPILER: _compiler(), TRANSFORM: _transform()}
    sys.modules.update(stands_in)
    try:
        yield
    finally:
        for name in stands_in:
            del sys.modules[name]


def _absent() -> bool:
    return False


def _compiler() -> ModuleType:
    """torch's compiler, as far as functions are marked for it while modules are imported: marks that say nothing."""
    module: Any = ModuleType(COMPILER)
    module.__path__ = []
    module.disable = module.allow_in_graph = module.assume_constant_result = _unmarked
    return module  # type: ignore[no-any-return]


def _unmarked(function: Callable[..., T] | None = None, *_: object, **__: object) -> Any:
    """A decorator that changes nothing, with options or without."""
    return (lambda marked: marked) if function is None else function


def _transform() -> ModuleType:
    """The module of the one class of it that is imported by name. It is made when it is used."""
    module: Any = ModuleType(TRANSFORM)
    module.TransformGetItemToIndex = lambda: import_module(TRANSFORM).TransformGetItemToIndex()
    return module  # type: ignore[no-any-return]


with left_out():
    import transformers
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AttentionInterface,
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        GgufConfig,
    )
    from transformers.initialization import no_init_weights
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

__all__ = [
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "AttentionInterface",
    "AutoConfig",
    "AutoModelForCausalLM",
    "AutoTokenizer",
    "GenerationConfig",
    "GgufConfig",
    "LlamaForCausalLM",
    "no_init_weights",
    "transformers",
]

"""Imports the part of transformers that runs networks. Does not know: models, files.

Most of what that part imports itself serves compilers, training in several processes, and losses of object detection.
Where the process belongs to `agentcho run` or another command that plays, on a CPU, that is left out, by the library's
own switches for what is not installed: the classes of models are the same, and start two seconds sooner. The switches
are put back afterwards; modules that were imported meanwhile stay as they are. A process that may have other uses for
transformers, such as a notebook or a script, gets all of it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar

import torch

COMMANDS = ("run", "serve", "doctor")
"""Commands for which it is left out."""
SWITCHES = ("is_torch_distributed_available", "is_scipy_available")
"""Functions by which transformers asks what is installed: for training in several processes, and for some losses."""
_ALONE = RLock()
"""Held while something is left out, so that nobody takes another's switches for the library's own."""
COMPILER, TRANSFORM = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
SYMBOLIC = "torch.fx.experimental.symbolic_shapes"
T = TypeVar("T")


def fully_imported() -> bool:
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
def lean_imports() -> Iterator[None]:
    """A context in which transformers leaves out what no game needs, where it is imported and where it makes networks.
    It holds for all threads, and for one user at a time. What is asked for in functions is imported later, when they
    are called. Afterwards transformers says again what is installed."""
    if WHOLE:
        yield
        return
    utils = (import_module("transformers.utils.import_utils"), import_module("transformers.utils"))
    with _ALONE, ExitStack() as stack:
        for name in SWITCHES:
            for place in utils:
                if hasattr(place, name):
                    stack.callback(setattr, place, name, getattr(place, name))
                    setattr(place, name, _absent)
        for module in () if COMPILER in sys.modules else _stand_ins():
            if module.__name__ not in sys.modules:
                sys.modules[module.__name__] = module
                stack.callback(module.withdraw)
        yield


def _absent() -> bool:
    return False


class _StandIn(ModuleType):
    """A module of which some names are known. For any other it gives way to the real one."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__path__ = []
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks, of every module
            raise AttributeError(name)
        self.withdraw()
        return getattr(import_module(self.__name__), name)

    def withdraw(self) -> None:
        """Stand in no longer."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def _stand_ins() -> Iterator[_StandIn]:
    """Torch's compiler, as far as functions are marked for it, with marks that say nothing; a class of it that is
    imported by name; and the check of sizes that nobody traces."""
    yield _StandIn(COMPILER, disable=_unmarked, allow_in_graph=_unmarked, assume_constant_result=_unmarked)
    yield _StandIn(TRANSFORM, TransformGetItemToIndex=lambda: import_module(TRANSFORM).TransformGetItemToIndex())
    yield _StandIn(SYMBOLIC, expect_true=bool)


def _unmarked(function: Callable[..., T] | None = None, *_: object, **__: object) -> Any:
    """A decorator that changes nothing, with options or without."""
    return (lambda marked: marked) if function is None else function


WHOLE = fully_imported()
"""What was found before transformers was imported here."""
with lean_imports():
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

if not WHOLE:
    gc.freeze()  # what modules brought is none: looking through it again takes half a second each time

__all__ = [
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "AttentionInterface",
    "AutoConfig",
    "AutoModelForCausalLM",
    "AutoTokenizer",
    "GenerationConfig",
    "GgufConfig",
    "LlamaForCausalLM",
    "lean_imports",
    "no_init_weights",
    "transformers",
]

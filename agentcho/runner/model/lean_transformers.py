"""Imports the part of transformers that runs networks.

Most of what that part imports serves compilers, distributed training, and losses of object detection. If the process is
`agentcho run` or another such command, on a CPU, these imports are skipped, by the library's own switches for packages
that are not installed: the model classes are the same, and start two seconds faster. The switches are restored
afterwards; modules that were imported meanwhile stay as they are. A process that may have other uses for transformers,
such as a notebook or a script, gets all of it.
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
"""The commands for which imports are skipped."""
SWITCHES = ("is_torch_distributed_available", "is_scipy_available")
"""Functions by which transformers checks what is installed, for distributed training and for some losses."""
_ALONE = RLock()
"""Held while imports are skipped, so that no other thread takes the replaced switches for the library's own."""
COMPILER, TRANSFORM = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
SYMBOLIC = "torch.fx.experimental.symbolic_shapes"
T = TypeVar("T")


def fully_imported() -> bool:
    """Whether all of transformers is imported: this process is not one of these commands, or there is a GPU, for which
    kernels are compiled."""
    return not _commanded() or torch.cuda.is_available() or "transformers.modeling_utils" in sys.modules


def _commanded() -> bool:
    """Whether the process was started as `agentcho run` or another of these commands: as the script, or as the
    package."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    started = Path(file).stem == "agentcho" if spec is None else spec.name == "agentcho.__main__"
    return started and sys.argv[1:2] != [] and sys.argv[1] in COMMANDS


@contextmanager
def lean_imports() -> Iterator[None]:
    """A context in which transformers skips imports that no game needs, when it is imported and when it creates
    networks. It affects all threads, and has one user at a time. Imports inside functions happen later, when they are
    called. Afterwards transformers' checks for installed packages are restored."""
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
    """A module with some known names. On access to any other it is replaced by the real one."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__path__ = []
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks every module for these
            raise AttributeError(name)
        self.withdraw()
        return getattr(import_module(self.__name__), name)

    def withdraw(self) -> None:
        """Remove the stand-in."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def _stand_ins() -> Iterator[_StandIn]:
    """Stand-ins for torch's compiler, with decorators that do nothing; for one of its classes that is imported by name;
    and for the size check of symbolic shapes, which nothing traces."""
    yield _StandIn(COMPILER, disable=_unmarked, allow_in_graph=_unmarked, assume_constant_result=_unmarked)
    yield _StandIn(TRANSFORM, TransformGetItemToIndex=lambda: import_module(TRANSFORM).TransformGetItemToIndex())
    yield _StandIn(SYMBOLIC, expect_true=bool)


def _unmarked(function: Callable[..., T] | None = None, *_: object, **__: object) -> Any:
    """A decorator that changes nothing, with or without options."""
    return (lambda marked: marked) if function is None else function


WHOLE = fully_imported()
"""The result before transformers was imported here."""
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
    gc.freeze()  # imported modules are not garbage: scanning them takes half a second each time

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

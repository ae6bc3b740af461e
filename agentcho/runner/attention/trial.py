"""Tries kernels before they are used: compiles them, compares them with dense attention, and refuses those that fail.

A kernel is tried once for each kind of work. One that cannot be compiled, or gives wrong values, is refused on its
device, with the reason in a warning, and dense attention replaces it from then on. Running out of memory does not count
as a failure. Independent of what a kernel computes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor


class KernelKind(Protocol):
    """Equal kinds share one kernel."""

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...


K = TypeVar("K", bound=KernelKind)
P = ParamSpec("P")


class Trial(Generic[K, P]):
    """One kernel and its replacement.

    Args:
        name: The name in warnings.
        without: What decode steps do without the kernel, for warnings.
        kernel: The kernel: called with a kind and its arguments.
        dense: The same by dense attention.
        gaps: Runs a kernel of a kind over random tensors; yields its error against dense attention each time, as a
            share of the largest value.
    """

    def __init__(
        self,
        name: str,
        without: str,
        kernel: Callable[Concatenate[K, P], Tensor],
        dense: Callable[P, Tensor],
        gaps: Callable[[K], Iterable[float]],
    ) -> None:
        self._name, self._without = name, without
        self._kernel, self._dense, self._gaps = kernel, dense, gaps
        self.refused: dict[torch.device, str] = {}
        self._works: dict[K, bool] = {}

    def run(self, kind: K, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """The result of the kernel, or of dense attention where it is refused."""
        if kind.device not in self.refused and self.works(kind):
            try:
                return self._kernel(kind, *args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._refuse(kind.device, failure(error))
        return self._dense(*args, **kwargs)

    def works(self, kind: K) -> bool:
        """Whether there is a kernel of this kind that matches dense attention."""
        if kind not in self._works:
            self._works[kind] = self._tried(kind)
        return self._works[kind]

    def forget(self) -> None:
        """Forget all trials and refusals."""
        self.refused = {}
        self._works = {}

    def _tried(self, kind: K) -> bool:
        try:
            gaps = list(self._gaps(kind))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self._refuse(kind.device, failure(error))
            return False
        wrong = [gap for gap in gaps if not gap <= tolerance(kind.dtype)]
        if wrong:
            self._refuse(kind.device, f"gives values that are off by {wrong[0]:.2g} of the largest")
        return not wrong

    def _refuse(self, device: torch.device, why: str) -> None:
        self.refused[device] = f"{self._name} {why}"
        warnings.warn(f"decode steps {self._without}, and are slower: {self._name} {why}", stacklevel=3)


def tolerance(dtype: torch.dtype) -> float:
    """The largest allowed error of a kernel against dense attention, as a share of the largest value: both round in
    this dtype."""
    return 1e-3 if dtype == torch.float32 else 1 / 32


def failure(error: Exception) -> str:
    """The description of a kernel that raised an error."""
    return f"fails here ({(str(error).strip() or type(error).__name__).splitlines()[0]})"

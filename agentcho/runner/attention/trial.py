"""Kernels that are tried before they are used: compiled, compared with dense attention, and refused where they fail.

A kernel is tried once for each kind of work. One that cannot be compiled, or gives values that are off, is refused on
its device, with the reason in a warning, and dense attention does its work from then on. A full memory says nothing of
a kernel. Does not know: what a kernel computes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor


class KernelKind(Protocol):
    """What has a kernel of its own: equal kinds share one."""

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...


K = TypeVar("K", bound=KernelKind)
P = ParamSpec("P")


class Trial(Generic[K, P]):
    """One kernel and what stands in for it.

    Args:
        name: What warnings call it.
        without: What is so on a device that goes without it.
        kernel: The kernel: a kind, and what it works on.
        dense: The same by dense attention.
        gaps: Runs a kernel of a kind over drawn tensors; how far it is from dense attention each time, as a share of
            the largest value.
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
        """What the kernel gives, or dense attention where it is refused."""
        if kind.device not in self.refused and self.works(kind):
            try:
                return self._kernel(kind, *args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._refuse(kind.device, failure(error))
        return self._dense(*args, **kwargs)

    def works(self, kind: K) -> bool:
        """Whether there is a kernel of this kind that gives what dense attention gives."""
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
    """How far values of a kernel may be from those of dense attention, as a share of the largest: both round in this
    type."""
    return 1e-3 if dtype == torch.float32 else 1 / 32


def failure(error: Exception) -> str:
    """What is said of a kernel that raised an error."""
    return f"fails here ({(str(error).strip() or type(error).__name__).splitlines()[0]})"

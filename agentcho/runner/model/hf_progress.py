"""Hides the library's progress bars over weights, and reports their progress to a callback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from transformers.utils import logging as hf_logging

from agentcho.protocol.progress import ProgressCallback, counted, no_progress

WEIGHTS, REPORT = "Loading weights", "LOAD REPORT"
"""The library's names for its bar over weights, and for its list of weights that it could not use."""
GGUF = "transformers.modeling_gguf_pytorch_utils"
"""The module that draws its own bar, over the tensors of a GGUF file."""
T = TypeVar("T")


@contextmanager
def silenced_progress() -> Iterator[None]:
    """Turn the library's loading bars off, and on again afterwards."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def silenced_report() -> Iterator[None]:
    """Hide the library's list of weights that the network does not have: the other parts of a multimodal model."""

    logger, unlisted = logging.getLogger("transformers.modeling_utils"), _Unlisted()
    logger.addFilter(unlisted)
    try:
        yield
    finally:
        logger.removeFilter(unlisted)


class _Unlisted(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is not that list."""
        return REPORT not in record.getMessage()


@contextmanager
def reported_weights(tell: ProgressCallback) -> Iterator[None]:
    """Report each weight that the library loads in this thread. It counts them only in its progress bar."""
    if tell is no_progress:
        yield
        return
    here = threading.get_ident()

    def bar(made: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        mine = threading.get_ident() == here and options.get("desc") == WEIGHTS
        return _told(args[0], tell, "weights read") if mine else made(*args, **options)

    before = hf_logging.set_tqdm_hook(bar)
    try:
        yield
    finally:
        hf_logging.set_tqdm_hook(before)


@contextmanager
def reported_dequantization(tell: ProgressCallback) -> Iterator[None]:
    """Report each tensor of a GGUF file that the library dequantizes in this thread, and hide its bar, which ignores
    the library's own setting."""
    reader: Any = import_module(GGUF)
    here, before = threading.get_ident(), reader.tqdm

    def bar(tensors: Collection[T], *args: Any, **options: Any) -> Any:
        mine = threading.get_ident() == here
        return _told(tensors, tell, "tensors dequantized") if mine else before(tensors, *args, **options)

    reader.tqdm = bar
    try:
        yield
    finally:
        reader.tqdm = before


def _told(weights: Collection[T], tell: ProgressCallback, what: str) -> Iterator[T]:
    read = counted(tell, what, len(weights))
    for number, weight in enumerate(weights, 1):
        yield weight
        read(number)

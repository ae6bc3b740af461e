"""The files of a model: reports download progress, checks files before weights are read, and after the library failed
finds which file is at fault, why, and what to do. Independent of networks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)
from huggingface_hub.utils.tqdm import tqdm
from safetensors import SafetensorError, safe_open
from transformers.utils.hub import cached_file

from agentcho.errors import ModelBroken, ModelError, ModelNotFound
from agentcho.protocol.progress import ProgressCallback, no_progress

INDEX = "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
Unreadable = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""The exceptions that the library raises for damaged or unexpected model files."""


def check_files(model: str, folder: Path) -> None:
    """Raise `ModelBroken` for the first file that is missing, truncated, or not a safetensors file. Weights are not
    read."""
    shards = _indexed(model, folder)
    for file in shards or sorted(folder.glob("*.safetensors")):
        _check(model, file)
    if not shards and not any(folder.glob("*.safetensors")):
        pickled = any(True for pattern in PICKLED for _ in folder.glob(pattern))
        reason = (
            "it has weights that are pickled, which can run code, and no *.safetensors" if pickled else "no weights"
        )
        remedy = "Save it with save_pretrained(safe_serialization=True)" if pickled else "Copy its *.safetensors there"
        raise ModelBroken(model, folder, reason, remedy)


def _indexed(model: str, folder: Path) -> list[Path]:
    """The weight files that the index names, if there is an index."""
    index = folder / INDEX
    if not index.is_file():
        return []
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        return [folder / name for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelBroken(model, index, f"not an index of shards ({_line(error)})") from error


def _check(model: str, file: Path) -> None:
    """Check that a file is as long as its header says."""
    if not file.is_file():
        raise ModelBroken(model, file, f"the file is missing, but {INDEX} lists it")
    try:
        with safe_open(file, "pt"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelBroken(
            model, file, f"truncated, or not a safetensors file ({file.stat().st_size} bytes; {_line(error)})"
        ) from error


def refusal(model: str, path: str, error: BaseException) -> ModelError:
    """Translate an error of the library into an agentcho error."""
    for cause in _chain(error):
        if isinstance(cause, GatedRepoError):
            page = f"ask for access at https://huggingface.co/{path}, then log in with `hf auth login`"
            return ModelNotFound(model, f"it is a gated model; {page}")
        if isinstance(cause, RepositoryNotFoundError):
            return ModelNotFound(model, "the hub has no such model, or it is private and you are not logged in")
        if isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled | ConnectionError):
            return ModelNotFound(
                model,
                f"it is not in the local cache, and the hub cannot be reached; run `hf download {path}` where it can",
            )
    try:
        if (folder := folder_of(path)) is not None:
            check_files(model, folder)
    except ModelError as found:
        return found
    return ModelNotFound(model, _line(error))


def folder_of(path: str) -> Path | None:
    """The folder with a model's files: its own, or the one in the local cache of the hub."""
    if Path(path).is_dir():
        return Path(path)
    found: Any = None
    try:
        found = cached_file(path, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found).parent


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, each once, because a chain may be circular."""
    passed: set[int] = set()
    while error is not None and id(error) not in passed:
        yield error
        passed.add(id(error))
        error = error.__cause__ or error.__context__


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def download_progress(tell: ProgressCallback) -> dict[str, Any]:
    """The library's option that reports megabytes to `tell`; empty for `no_progress`."""
    return {} if tell is no_progress else {"tqdm_class": _bars(tell)}


def _bars(tell: ProgressCallback) -> type[tqdm]:
    class Told(tqdm):
        """A hidden progress bar that reports only bytes written to disk."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._tells = options.get("unit") == "B" and not str(options.get("name")).endswith(".transfer")
            super().__init__(*args, **(options | {"disable": True}))  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._tells and self.total:
                tell("MB downloaded", int(self.n) >> 20, int(self.total) >> 20)

    return Told

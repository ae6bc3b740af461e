"""The bundled model, a small stand-in that ships with the package. Importing this module does not import torch."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["weights_path"]


def weights_path() -> Path:
    """The folder with the shipped weights, tokenizer and configuration."""
    return Path(str(files(__package__) / "weights"))

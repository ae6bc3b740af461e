"""Digests of a model's weights and tokenizer."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn


def weights_digest(network: nn.Module) -> str:
    """A digest of all weights, by name, dtype and content. It reads every weight."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(network.state_dict().items()):
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        hasher.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data if tensor.ndim else b"")
    return hasher.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """A digest of vocabulary, merges, added tokens and chat template."""
    framed = tokenizer.backend_tokenizer.to_str() + "\0" + str(tokenizer.chat_template)
    return hashlib.blake2b(framed.encode(), digest_size=16).hexdigest()

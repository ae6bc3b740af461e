"""A LoRA adapter on disk: the digest of its weights, and what it was trained for.

    DIR/adapter_model.safetensors, adapter_config.json   as peft writes and reads them
    DIR/agentcho.json                                    base, workflow and traces; absent if trained elsewhere

Must not depend on torch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentcho.config import Leakage, Mode
from agentcho.errors import AdapterError
from agentcho.extras import require

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
TRAINED = "agentcho.json"


class AdapterTraining(BaseModel):
    """The training of an adapter. `base` is the fingerprint of the base model, `traces` the digest of the file of
    traces. Losses are in nats per word over `dev` held-out traces. `chosen`: the score, the number of games and the
    mean by which this checkpoint was chosen; None if it was chosen by loss. `speed`, if it was measured, is in traces
    per second, whole and call by call, with the median, minimum and maximum of the ratio. `step` is that of the kept
    weights; `seconds` and `tokens` count all steps until the file was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-adapter/1"] = "agentcho-adapter/1"
    scenario: str
    mode: Mode
    leakage: Leakage
    base: dict[str, str]
    recipe: dict[str, Any]
    traces: str
    train: int
    dev: int
    before: float
    best: float
    step: int
    tokens: int
    seconds: float
    machine: dict[str, str]
    speed: dict[str, Any] | None = None
    chosen: dict[str, Any] | None = None


class Adapter(NamedTuple):
    """A folder with adapter weights for a base model. `digest` covers weights and configuration."""

    path: Path
    digest: str
    trained: AdapterTraining | None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    def check_base(self, base: dict[str, str]) -> None:
        """Raise `AdapterError` if it was trained on weights other than those of this fingerprint."""
        if self.trained is not None and self.trained.base["weights"] != base["weights"]:
            theirs, ours = self.trained.base["model"], base["model"]
            raise AdapterError(
                self.path,
                f"it was trained on other weights ({theirs}, {self.trained.base.get('dtype', 'dtype unknown')}) than "
                f"the loaded ones ({ours}); if it is the same model, load it with the --dtype of the training",
            )


def find_adapter(folder: str | Path) -> Adapter:
    """The adapter in a folder. Its weights are hashed, not parsed. Raises `AdapterError` if something is missing or
    invalid, and `ExtraMissing` if peft is not installed."""
    require("to use adapters", "tune")
    path = Path(folder)
    if not path.is_dir():
        raise AdapterError(path, "the folder does not exist")
    hasher = hashlib.blake2b(digest_size=16)
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise AdapterError(path, f"the file {name} is missing")
        hasher.update((path / name).read_bytes())
    return Adapter(path, hasher.hexdigest(), _trained(path))


def _trained(path: Path) -> AdapterTraining | None:
    if not (path / TRAINED).is_file():
        return None
    try:
        return AdapterTraining.model_validate_json((path / TRAINED).read_bytes())
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
        raise AdapterError(path, f"the file {TRAINED} is invalid at {place or 'the beginning'}") from None

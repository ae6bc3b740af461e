"""An adapter cannot be trained, or no further."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentcho.errors.base import AgentchoError


class TuneError(AgentchoError):
    """An adapter cannot be trained."""


class BadRecipe(TuneError, ValueError):
    """Options of training that cannot be met; `what` says which, and why."""

    def __init__(self, what: str) -> None:
        super().__init__(what)


class TracesUnfit(TuneError, ValueError):
    """Traces that this scenario and this model cannot be trained on."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class TrainingOther(TuneError):
    """A folder holds the checkpoints of a training that was asked for otherwise."""

    def __init__(self, folder: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{folder} holds another training: {', '.join(changed)} differ. Give another --out, or ask as before"
        )


class LossNotFinite(TuneError):
    """The loss is no number any more. What was best until then is kept."""

    def __init__(self, step: int, folder: Path) -> None:
        super().__init__(
            f"the loss of step {step} is not finite; the best adapter until then is in {folder}. Train with a lower "
            "--rate, or in float32"
        )

"""A model, or an adapter, cannot be used."""

from __future__ import annotations

from pathlib import Path

from agentcho.errors.base import AgentchoError


class ModelError(AgentchoError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """Neither a folder, nor the understudy, nor a model that the local hub cache or the hub can give."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"no model {model!r}: {reason}. Give 'understudy', a folder with config.json and *.safetensors, "
            "or a Hugging Face id that is downloaded or can be reached"
        )
        self.model = model


class ModelBroken(ModelError):
    """A file of a model is missing, damaged, or does not fit the others."""

    def __init__(self, model: str, file: Path, reason: str, remedy: str = "Download or copy the model again") -> None:
        super().__init__(f"{model} cannot be read: {file}: {reason}. {remedy}")
        self.model, self.file, self.reason, self.remedy = model, file, reason, remedy


class BadPlacement(ModelError, ValueError):
    """A device that this machine has not, a dtype that models are not run in, or too few positions or tokens."""

    def __init__(self, what: str, choices: str) -> None:
        super().__init__(f"{what}; give {choices}")


class UnsupportedModel(ModelError):
    """The model was loaded far enough to see that reuse of its keys would be wrong."""

    def __init__(self, model: str, cause: str, remedy: str) -> None:
        super().__init__(f"{model} cannot share encodings: {cause}. {remedy}")
        self.model, self.cause, self.remedy = model, cause, remedy


class FramingError(ModelError):
    """The chat template is missing, or does not frame messages one by one."""

    def __init__(self, model: str, cause: str) -> None:
        super().__init__(
            f"no framing for {model}: {cause}. Use an instruction-tuned model whose tokenizer carries a chat "
            "template, or put a chat_template.jinja beside its tokenizer"
        )
        self.model, self.cause = model, cause


class AdapterNotFound(ModelError):
    """A folder without an adapter, or with one that does not fit the model."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"no adapter in {path}: {reason}. Give a folder with adapter_config.json and adapter_model.safetensors, "
            "as `agentcho tune` or peft writes it"
        )
        self.path = path


class AdapterOther(ModelError):
    """An adapter that was trained on other weights than those that are loaded."""

    def __init__(self, path: Path, base: str, model: str) -> None:
        super().__init__(
            f"the adapter {path} was trained on other weights ({base}) than those loaded ({model}); load that base, "
            "or train one for this model"
        )

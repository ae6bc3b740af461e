"""How far the download of a model's files is, from the bars that the library would draw.

Does not know: which files, from where.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.utils.tqdm import tqdm

from agentcho.progress import Tell, unheard


def heard(tell: Tell) -> dict[str, Any]:
    """The option of the library by which `tell` hears of megabytes; none where nobody listens."""
    return {} if tell is unheard else {"tqdm_class": _bars(tell)}


def _bars(tell: Tell) -> type[tqdm]:
    class Told(tqdm):
        """A bar that is not drawn. Of bytes that are written to disk it tells, and of nothing else."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._tells = options.get("unit") == "B" and not str(options.get("name")).endswith(".transfer")
            super().__init__(*args, **(options | {"disable": True}))  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._tells and self.total:
                tell("MB downloaded", int(self.n) >> 20, int(self.total) >> 20)

    return Told

"""The process in which parts run: reads their places from standard input, and reports what they find on a pipe, one
line of JSON each. It ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

from tools.bench.gpu_day.asked import Asked
from tools.bench.gpu_day.day import Day, Impossible


class Worker:
    """Runs parts, and reports on a pipe."""

    def __init__(self, pipe: int, asked: Asked) -> None:
        self._pipe, self._asked = os.fdopen(pipe, "w"), asked
        self._day = Day(asked, lambda name, value: self._tell(key=name, value=value))

    def run(self, place: str) -> None:
        """Run the part at this place, "module:function", and report how it ended."""
        ended: dict[str, Any] = {"state": "done"}
        try:
            _reset_peak()
            module, _, function = place.partition(":")
            getattr(import_module(module), function)(self._day)
        except Impossible as error:
            ended = {"state": "skipped", "why": str(error)}
        except Exception as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            ended = {"state": "failed", "why": why, "traceback": traceback.format_exc()}
            ended["broken"] = _broken(error)
        self._tell(machine=_where())
        self._tell(**ended, **_peak())

    def _tell(self, **said: Any) -> None:
        self._pipe.write(json.dumps(said) + "\n")
        self._pipe.flush()


def _broken(error: BaseException | None) -> bool:
    """Whether the GPU is unusable for this process: after a CUDA error every later call fails. Running out of memory
    does not count."""
    import torch

    while error is not None:
        said = isinstance(error, RuntimeError) and "CUDA error" in str(error)
        if said and not isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _on_gpu() -> Any:
    """The module `torch.cuda`, if it is in use."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _reset_peak() -> None:
    if (cuda := _on_gpu()) is not None:
        cuda.reset_peak_memory_stats()


def _peak() -> dict[str, int]:
    """The peak bytes of GPU memory of a part: allocated by tensors, and reserved."""
    if (cuda := _on_gpu()) is None:
        return {}
    return {"peak": cuda.max_memory_allocated(), "reserved": cuda.max_memory_reserved()}


def _where() -> dict[str, str]:
    """Versions, the commit, and digests of the code that has run. Empty if the package cannot be imported."""
    try:
        from agentcho.records.environment import machine_info, source_digests, versions
    except ImportError:
        return {}
    return machine_info() | versions() | source_digests()


def main() -> None:
    """Serve until standard input is closed, even in the middle of a part."""
    worker = Worker(int(sys.argv[1]), Asked.read(json.loads(sys.argv[2])))
    asked = queue.Queue[str]()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line.strip())
        os.killpg(0, signal.SIGKILL)  # with all subprocesses

    threading.Thread(target=listen, daemon=True).start()
    while True:
        worker.run(asked.get())


if __name__ == "__main__":
    main()

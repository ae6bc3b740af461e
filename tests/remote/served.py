"""Real servers of the bundled model, each in its own process: `agentcho serve`, and `transformers serve` in an
environment of its own.

Independent of the requests.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentcho.config import ModelConfig
from agentcho.lab.bench.servers import UNDERSTUDY, folder, free_port, ours, running
from tests.clients.environment import python_of


@contextmanager
def agentcho_served(*options: str) -> Iterator[ModelConfig]:
    """`agentcho serve`, and the configuration of a client for it."""
    port = free_port()
    with running([*ours(UNDERSTUDY, "float32", port), *options], port):
        yield ModelConfig(model="openai:understudy", base_url=f"http://127.0.0.1:{port}/v1", server="agentcho")


@contextmanager
def transformers_served() -> Iterator[ModelConfig]:
    """`transformers serve`, and the configuration of a client for it. Packages missing from its environment come from
    the tests' environment."""
    port, model = free_port(), folder(UNDERSTUDY)
    with running(_transformers(python_of("transformers"), model, port), port):
        yield ModelConfig(model=f"openai:{model}", base_url=f"http://127.0.0.1:{port}/v1", server="transformers")


def _transformers(python: Path, model: str, port: int) -> Sequence[str]:
    beside = f"PYTHONPATH={sysconfig.get_path('purelib')}"
    where = ["--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    return ["env", beside, str(python), "-m", "transformers.cli.transformers", "serve", model, *where]

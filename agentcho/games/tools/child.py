"""The process of an isolated tool: reads a call from standard input as JSON, and writes the answer as JSON.

Output that the tool prints is dropped, because it would break the answer.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from contextlib import suppress
from inspect import isawaitable
from types import ModuleType
from typing import Any

import anyio
from pydantic_core import to_json

from agentcho.errors import ToolFailed
from agentcho.games.tools import isolated
from agentcho.games.tools.tool import Tool, tool


def main() -> None:
    """Answer one call."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps output of the tool out of the answer
    asked = json.load(sys.stdin)
    try:
        isolated.importing = asked["file"]
        module = _module(asked["module"], asked["file"])
        isolated.importing = None
        found = _tool(module, asked["function"])
        answer = to_json({"result": _called(found, asked["arguments"])})
    except ToolFailed as error:
        answer = to_json({"failed": str(error)})
    except BaseException as error:
        answer = to_json({"error": f"{type(error).__name__}: {error}"})
    out.write(answer)
    out.close()


def _module(name: str, file: str) -> ModuleType:
    """Return the module of a file: by its name if that leads to the file, otherwise not under `__main__`."""
    with suppress(ImportError, ValueError):
        spec = None if name == "__main__" else importlib.util.find_spec(name)
        if spec is not None and spec.origin == file:
            return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location("agentcho_isolated_tool", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tool(module: ModuleType, qualified: str) -> Tool:
    """Return the tool of that name, or the function that it was made from."""
    found: Any = module
    for name in qualified.split("."):
        found = getattr(found, name)
    return found if isinstance(found, Tool) else tool(found)


def _called(tool: Tool, arguments: str) -> Any:
    given = tool.validate(arguments)
    value = tool.function(**given)
    return anyio.run(_awaited, value) if isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


if __name__ == "__main__":
    main()

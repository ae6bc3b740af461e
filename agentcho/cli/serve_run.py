"""`agentcho serve`: check everything and bind the address, then load the model, then answer requests.

Independent of HTTP and of the contents of requests.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import typer

from agentcho.cli.signals import INTERRUPTED
from agentcho.config import ComputeOptions, DeviceOptions, EngineOptions, RunConfig, TemplateChecks
from agentcho.display.progress import progress
from agentcho.display.safe import inline
from agentcho.engine.core import EngineCore
from agentcho.errors import RecordError
from agentcho.extras import require
from agentcho.games.runs import runtime
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import check_folder, write_errors
from agentcho.records.record import SavedRun, folders

if TYPE_CHECKING:
    from agentcho.serve.config import ServeConfig
    from agentcho.serve.sharing.served import ServedModel, Serving
    from agentcho.serve.web.keys import ApiKeys

NEEDED = "to serve models"
OF_RUNS = (
    *("model", *EngineOptions.model_fields, *DeviceOptions.model_fields, *ComputeOptions.model_fields),
    *("leakage", *TemplateChecks.model_fields),
)
"""Options of a server that are also options of each of its runs."""
FILES = 4
"""The number of open files per record that is being written."""
SOCIETY = "society-"
"""The prefix of the scenario names in records of societies."""


def make_key(file: Path, given: Mapping[str, object]) -> str:
    """Make a key, append its entry to the file, and return it."""
    from agentcho.serve.web.keys import add_key

    return add_key(file, **given)


def serve_models(config: ServeConfig) -> int:
    """Serve until a signal ends it, and return the exit code."""
    require(NEEDED, "serve")
    from agentcho.serve.web.app import Site
    from agentcho.serve.web.keys import ApiKeys
    from agentcho.serve.web.server import bound, serve

    keys = ApiKeys() if config.keys is None else ApiKeys.read(config.keys)
    with bound(config.host, config.port, bool(keys)) as listening:
        if config.folder is not None:
            check_folder(config.folder)
        if config.folder is not None and config.keep_days is not None:
            delete_old(config.folder, timedelta(days=config.keep_days))
        os.umask(0o077)  # only the owner may read files written from now on
        with progress("serve", sys.stderr) as told:
            served = _loaded(config, keys, told.tell)
        site = Site(served, keys, config.limits, config.allow_origin)
        ready = partial(_tell, [model.name for model in served])
        whole = anyio.run(serve, site, served, listening, ready)
    return 0 if whole else INTERRUPTED


def _tell(names: list[str], address: str) -> None:
    typer.echo(inline(f"agentcho serves {', '.join(names)} at {address}/v1; press Ctrl-C to stop"))
    sys.stdout.flush()


def _loaded(config: ServeConfig, keys: ApiKeys, tell: ProgressCallback) -> list[ServedModel]:
    """Return the model, and each of its adapters on an engine of its own."""
    from agentcho.serve.sharing.served import ServedModel

    run = RunConfig(**{name: getattr(config, name) for name in OF_RUNS})
    found = list[ServedModel]()
    for name, adapter in {"": None, **config.adapters}.items():
        how = run if adapter is None else run.model_copy(update={"adapter": str(adapter)})
        called = f"{config.served_name}+{name}" if name else config.served_name
        engine = runtime.load_engine(how.model_copy(update={"deterministic": config.deterministic}), tell)
        found.append(ServedModel(called, engine, how, serving_of(config, keys, engine)))
        found[-1].prepare(tell)
    return found


def serving_of(config: ServeConfig, keys: ApiKeys, engine: EnginePort) -> Serving:
    """Return how a model on this engine is served: the options, limits and keys for the server."""
    from agentcho.serve.sharing.served import Serving
    from agentcho.serve.sharing.society import RetentionLimits

    limits = config.limits
    keeping = RetentionLimits(tokens=limits.society_tokens, messages=limits.society_messages)
    if isinstance(engine, EngineCore):
        keeping = keeping._replace(capacity=engine.store.limit * engine.store.page_tokens)
    return Serving(
        mode=config.leakage,
        markers=config.plain_markers,
        record=config.folder,
        keeping=keeping,
        quota=lambda tenant: keys.tokens(tenant) or limits.tenant_tokens,
        generating=limits.tenant_generating,
        idle=limits.idle_minutes * 60,
        societies=limits.tenant_societies,
        deterministic=config.deterministic,
        logprobs=config.logprobs_rule,
        prefill_budget=config.prefill_budget,
        user_messages=config.user_messages,
        records=None if config.folder is None else most_records(len(config.adapters) + 1),
    )


def most_records(models: int) -> int | None:
    """Return how many records each model may write at a time with half of the files that this process may open.

    None if there is no limit of open files, or it is unknown.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return None if soft == resource.RLIM_INFINITY else max(1, soft // 2 // FILES // models)


def delete_old(folder: Path, age: timedelta) -> list[Path]:
    """Delete the records of societies that ended, or began and never ended, that long ago. Returns their paths.

    Raises `CannotWrite` if one of them cannot be deleted.
    """
    found = [path for path in folders(folder) if not path.is_symlink() and _is_old(path, age)]
    for path in found:
        with write_errors(path):
            shutil.rmtree(path)
    return found


def _is_old(path: Path, age: timedelta) -> bool:
    """Return whether a folder is an old record of a served society that is not being written. Without a date it is
    not."""
    try:
        run = SavedRun(path)
        since = datetime.now(UTC) - datetime.fromisoformat(run.info.ended or run.info.started)
    except (RecordError, ValueError, TypeError):
        return False
    served = run.info.asked == "serve" and run.info.scenario.startswith(SOCIETY)
    return served and run.status != "running" and since > age

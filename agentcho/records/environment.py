"""The environment of a result: versions, machine, commit, digests of sources."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from agentcho.records.cached import file_digests
from agentcho.records.digests import folder_digest

ROOT = Path(__file__).parents[2]
"""The folder that contains the package: the root of a checkout, or where packages are installed."""
BESIDE = ("scenarios", "agents", "tools")
"""Folders of a checkout that also contain the project's code."""
BY_FILE = (
    "scenarios",
    "agents",
    "agentcho/provenance",
    "agentcho/choreography",
    "agentcho/games/play",
    "agentcho/games/runs",
)
"""Folders whose files have a digest each."""
INSTRUCTIONS: Mapping[str, str] = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "avx512_bf16": "BF16",
    "avx512_fp16": "FP16",
    "amx_tile": "AMX",
    "asimd": "NEON",
    "sve": "SVE",
    "i8mm": "I8MM",
    "bf16": "BF16",
}
"""Instruction sets on which speed and the last bits of results depend, by the names that Linux gives them."""
GONE = "gone"
"""Stands for the digest of code that does not exist."""
SHIPPED = "_library"
"""The folder in which an installed package has scenarios and agents."""


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that determine what a model says."""
    packages = ("agentcho", "torch", "transformers", "llguidance")
    return {"python": platform.python_version()} | {package: _version(package) for package in packages}


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def machine_info() -> dict[str, str]:
    """Processor with its instruction sets, cores and system; the commit of the running checkout, if it is one, with
    "-dirty" appended if a tracked file had changed when this was first called: the code that a process has loaded stays
    the same."""
    return {
        "machine": ", ".join(filter(None, (platform.machine(), _processor(), f"{os.cpu_count()} cores"))),
        "system": platform.system(),
        "commit": _commit() or "none",
    }


@cache
def _processor() -> str:
    """The processor's name and instruction sets: "AMD EPYC (AVX2 AVX-512 VNNI BF16)", or "" if they are unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return processor_named(lines)


def processor_named(lines: Iterable[str]) -> str:
    """The name and instruction sets of a processor, from the lines that Linux has about it in `/proc/cpuinfo`."""
    known = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    has = set(known.get("flags", known.get("Features", "")).split())
    sets = " ".join(called for name, called in INSTRUCTIONS.items() if name in has)
    return f"{known.get('model name', '')}{f' ({sets})' if sets else ''}".strip()


@cache
def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def source_digests(files: Iterable[Path] | None = None) -> dict[str, str]:
    """The digests of code (`agentcho.records.digests`).

    Args:
        files: Of these files. By default of those that this process has loaded so far.

    Returns:
        `trees`, as "agentcho/engine:0123456789ab scenarios/debate.py:…": one digest for each folder that contains
        one of these files; for folders whose files are largely independent (`BY_FILE`), one for each file.
    """
    if files is None:
        loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        files = (Path(file) for file in loaded if file)
    named = sorted(set(_named(files)))
    return {"trees": digest_list(tree_digests(ROOT, named))}


def digest_list(digests: Iterable[tuple[str, str]]) -> str:
    """Digests by the names of files and folders, in the form used in results."""
    return " ".join(f"{name}:{digest}" for name, digest in digests)


def tree_digest(root: Path, name: str) -> str:
    """The digest of one file below `root`, or of the Python files in one folder there; "gone" if there is none.

    Scenarios and agents are also found where an installed package has them.
    """
    return tree_digests(root, [name])[0][1]


def tree_digests(root: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """The digests of several files and folders, each with its name."""
    places = [_place(root, name) for name in names]
    held = [[] if place is None else [place] if place.is_file() else list(place.glob("*.py")) for place in places]
    digests = iter(file_digests([file.read_bytes() for files in held for file in files]))
    found = list[tuple[str, str]]()
    for name, place, files in zip(names, places, held, strict=True):
        each = list(islice(digests, len(files)))
        whole = each[0] if place is not None and place.is_file() else folder_digest(each) if each else GONE
        found.append((name, whole))
    return found


def _place(root: Path, name: str) -> Path | None:
    return next((each for each in (root / name, root / "agentcho" / SHIPPED / name) if each.exists()), None)


def digest_unit(file: Path) -> str:
    """The name under which the digest of a file of a checkout is stored: its own, or its folder's."""
    return (file if file.parent.as_posix() in BY_FILE else file.parent).as_posix()


def _named(files: Iterable[Path]) -> Iterator[str]:
    """The names under which the digests of those files that belong to the project are stored."""
    ours = ("agentcho", *(BESIDE if (ROOT / "pyproject.toml").exists() else ()))
    for file in files:
        if file.suffix != ".py" or not file.is_relative_to(ROOT):
            continue
        below = file.relative_to(ROOT)
        if below.parts[:2] == ("agentcho", SHIPPED):
            yield Path(*below.parts[2:]).as_posix()
        elif below.parts[0] in ours:
            yield digest_unit(below)

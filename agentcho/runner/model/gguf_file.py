"""GGUF files, as llama.cpp writes them: what one says of itself, and what of that the library would leave out, before
its weights are read. Needs the package gguf. Does not know: networks, how numbers are multiplied out."""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy

from agentcho.errors import ModelBroken, ModelNotFound, UnsupportedModel
from agentcho.extras import require

MAGIC, VERSIONS, SUFFIX = b"GGUF", (2, 3), ".gguf"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of metadata of one size, as `struct` names them."""
STRING, ARRAY = 8, 9
CHUNK, MOST = 1 << 24, 4
"""Bytes that are read at once; names of files that an error tells."""
WHOLE = "Give the safetensors that it was made from."
TAKEN = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
"""What a file may say that changes what is computed, and where the library keeps it, if it does."""
FACTORS = ("rope_freqs.", "rope_factors_")
"""Names of tensors that turn positions otherwise, which the library does not read."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Of all Llamas from 3.1 on: what their factors are made of, beside the largest of them."""
F32 = 0


class TensorInfo(NamedTuple):
    """One tensor: `shape` as torch has it, `kind` the number of its type, `start` its first byte."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


class GgufFile(NamedTuple):
    """What the header of a file says. `keys`: its metadata without lists; `numbers`: what its tensors are in, in words,
    those that most numbers are in first."""

    path: Path
    architecture: str
    keys: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]
    numbers: str

    @property
    def elements(self) -> int:
        """How many numbers all its tensors have, factors of positions aside."""
        return sum(math.prod(each.shape) for each in self.tensors if not each.name.startswith(FACTORS))

    def digest(self) -> str:
        """A digest of the whole file, 32 hexadecimal digits."""
        hasher = hashlib.blake2b(digest_size=16)
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
        return hasher.hexdigest()


def is_gguf(path: str) -> bool:
    """Whether a model is a GGUF file, by its name."""
    return path.lower().endswith(SUFFIX)


def named_files(folder: Path) -> str:
    """What to say of a folder without a config beside GGUF files: which one may be given. Empty: there is none."""
    files = sorted(str(each) for each in folder.iterdir() if is_gguf(each.name) and each.is_file())
    if not files:
        return ""
    return f"; give the GGUF file itself: {' or '.join(files[:MOST])}{' …' if len(files) > MOST else ''}"


def read(name: str, path: Path) -> GgufFile:
    """The header of a file, whose tensors are known to lie within it. `ModelNotFound`: there is none. `ModelBroken`: it
    is no such file, damaged, or a part of several. `ExtraMissing`: the package gguf is not there."""
    if not path.is_file():
        raise ModelNotFound(name, "the file does not exist")
    require("to read GGUF files", "gguf")
    size = path.stat().st_size
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = _header(path, data)
    except (struct.error, ValueError, OverflowError, MemoryError, OSError) as error:
        raise ModelBroken(name, path, f"truncated, or not a GGUF file ({size} bytes; {error})") from error
    if (parts := found.keys.get("split.count", 0)) > 1:
        part = f"it is part {found.keys.get('split.no', 0) + 1} of {parts}"
        raise ModelBroken(name, path, part, "Join them with `llama-gguf-split --merge FIRST JOINED`")
    return found


@contextmanager
def single_file_options(file: GgufFile) -> Iterator[dict[str, str]]:
    """The library's options for a folder in which that file is alone: it would read what else lies beside one, such as
    a tokenizer's settings, or an adapter."""
    with TemporaryDirectory(prefix="agentcho-gguf-") as folder, fast_reading():
        Path(folder, file.path.name).symlink_to(file.path.resolve())
        yield {"pretrained_model_name_or_path": folder, "gguf_file": file.path.name}


class _Listed(NamedTuple):
    """A list as the package's reader returns it: its bytes, its parts, which of these are values, and its types."""

    size: int
    parts: list[Any]
    values: list[int]
    types: list[Any]


class _Quick:
    """The library's readers that stand in for its own, for as long as anybody asks for it."""

    lock = threading.Lock()
    users = 0
    stock: tuple[Any, Any] | None = None


@contextmanager
def fast_reading() -> Iterator[None]:
    """A context in which the library reads a file in a sixth of the time, and gets the same. Its reader slices a
    `numpy.memmap` for each token of the vocabulary, and asks for each what type it has; and transformers makes the
    table of names of all tensors again for each module of a network. Several threads may be in it at a time."""
    package: Any = import_module("gguf")
    with _Quick.lock:
        if not _Quick.users:
            _Quick.stock = package.GGUFReader, package.get_tensor_name_map
            package.GGUFReader = _reader(package.GGUFReader)
            package.get_tensor_name_map = cache(package.get_tensor_name_map)
        _Quick.users += 1
    try:
        yield
    finally:
        with _Quick.lock:
            _Quick.users -= 1
            if not _Quick.users:
                assert _Quick.stock is not None
                package.GGUFReader, package.get_tensor_name_map = _Quick.stock


def _reader(stock: Any) -> type:
    """The package's reader over a plain array, which reads lists of texts and numbers in one go."""

    class Reader(stock):  # type: ignore[misc]
        """See `fast_reading`."""

        @property
        def data(self) -> numpy.ndarray[Any, Any]:
            """The bytes of the file."""
            return self._bytes

        @data.setter
        def data(self, mapped: numpy.ndarray[Any, Any]) -> None:
            self._bytes = mapped.view(numpy.ndarray)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            of, count = (self._get(orig_offs, numpy.uint32), self._get(orig_offs + 4, numpy.uint64))
            listed = raw_type == ARRAY and self.byte_order == "I" and count[0] > 0
            if not listed or (of[0] != STRING and of[0] not in self.gguf_scalar_to_np):
                return super()._get_field_parts(orig_offs, raw_type)
            types = [self._kinds(ARRAY), self._kinds(of[0])]
            if of[0] == STRING:
                size, parts = _texts(self.data, orig_offs + 12, int(count[0]))
                places = range(3, 2 + len(parts), 2)
            else:
                values = self._get(orig_offs + 12, self.gguf_scalar_to_np[of[0]], count[0])
                size, parts = values.nbytes, [values[place : place + 1] for place in range(len(values))]
                places = range(2, 2 + len(parts))
            return _Listed(12 + size, [of, count, *parts], list(places), types)

        @staticmethod
        def _kinds(number: int) -> Any:
            return import_module("gguf").GGUFValueType(int(number))

    return Reader


def _texts(data: numpy.ndarray[Any, Any], start: int, count: int) -> tuple[int, list[numpy.ndarray[Any, Any]]]:
    """So many texts from there on: how many bytes they take, and of each an array of its length and one of its bytes.
    `struct.error`: the file ends before."""
    parts = list[numpy.ndarray[Any, Any]]()
    length = struct.Struct("=Q").unpack_from
    at = start
    content: Any = data
    for _ in range(count):
        begin = at + 8
        end = begin + length(content, at)[0]
        parts += data[at:begin].view(numpy.uint64), data[begin:end]
        at = end
    return at - start, parts


def apply_rope_factors(file: GgufFile, config: Any) -> None:
    """Give the config the scaling of positions of Llamas from 3.1 on, where a file's factors are those that it makes:
    the library leaves them out."""
    stored = next((each for each in file.tensors if each.name == "rope_freqs.weight" and each.kind == F32), None)
    rope = getattr(config, "rope_parameters", None) or {}
    if stored is None or config.model_type != "llama" or rope.get("rope_type", "default") != "default":
        return
    with file.path.open("rb") as data:
        data.seek(stored.start)
        factors = struct.unpack(f"<{math.prod(stored.shape)}f", data.read(4 * math.prod(stored.shape)))
    turns = [rope["rope_theta"] ** (-index / len(factors)) for index in range(len(factors))]
    if all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(factors, _factors(turns, max(factors)), strict=True)):
        config.rope_parameters = {**rope, "rope_type": "llama3", "factor": max(factors), **LLAMA3}


def _factors(turns: list[float], most: float) -> Iterator[float]:
    """By how much those Llamas divide each frequency (in radians a position): slow ones by `most`, quick ones not."""
    low, high, length = LLAMA3.values()
    for turn in turns:
        share = min(1.0, max(0.0, (length * turn / (2 * math.pi) - low) / (high - low)))
        yield 1 / ((1 - share) / most + share)


def check_taken(name: str, file: GgufFile, config: Any, elements: int) -> None:
    """Refuse what the library would leave out, and compute something else. `elements`: how many numbers the network has
    that it makes of this `config`. `UnsupportedModel`."""
    for cause in _left_out(file, config):
        raise UnsupportedModel(name, cause, WHOLE, what=f"{name} would not be what its file says")
    if elements != file.elements:
        cause = f"its tensors have {file.elements} numbers, and what transformers makes of its metadata has {elements}"
        raise UnsupportedModel(name, cause, WHOLE, what=f"{name} would not be what its file says")


def _left_out(file: GgufFile, config: Any) -> Iterator[str]:
    for key, attribute in TAKEN.items():
        said, taken = file.keys.get(f"{file.architecture}.{key}"), getattr(config, attribute, None)
        if said and (said != taken) and (taken is None or not math.isclose(said, taken, rel_tol=1e-6)):
            yield f"it says {key} = {said:g}, and transformers takes {taken}"
    factors = next((each.name for each in file.tensors if each.name.startswith(FACTORS)), None)
    scaling = file.keys.get(f"{file.architecture}.rope.scaling.type", "none")
    if factors or scaling != "none":
        kind = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        if kind == "default":
            said = f"has factors of positions ({factors})" if factors else f"scales positions ({scaling})"
            yield f"it {said}, which transformers does not take over"


class _Bytes:
    """Values one after another. Past the end it raises `struct.error` or ValueError."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError(f"its header extends past the end of the file, to byte {self.at}")

    def text(self) -> str:
        (size,) = self.take("Q")
        begin = self.at
        self.skip(size)
        return self.data[begin : self.at].decode()

    def value(self, kind: int) -> Any:
        """A number or text; None for a list, which is passed over."""
        if kind in SCALARS:
            return self.take(SCALARS[kind])[0]
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise ValueError(f"unknown metadata type {kind} at byte {self.at}")
        of, count = self.take("IQ")
        if of in SCALARS:
            self.skip(count * struct.calcsize(f"<{SCALARS[of]}"))
            return None
        for _ in range(count):
            self.value(of)
        return None


def _header(path: Path, data: mmap.mmap) -> GgufFile:
    if data[:4] != MAGIC:
        raise ValueError("it does not start with the bytes GGUF")
    at = _Bytes(data)
    at.skip(4)
    version, tensors, keys = at.take("IQQ")
    if version not in VERSIONS:
        raise ValueError(f"version {version} is not supported; supported are {' and '.join(map(str, VERSIONS))}")
    said: dict[str, Any] = {}
    for _ in range(keys):
        key, (kind,) = at.text(), at.take("I")
        said[key] = at.value(kind)
    stored = tuple(_stored(at) for _ in range(tensors))
    align = said.get("general.alignment", 32)
    begin = -(-at.at // align) * align if align > 0 else at.at
    stored = tuple(each._replace(start=begin + each.start) for each in stored)
    numbers = _within(stored, len(data))
    if not isinstance(said.get("general.architecture"), str):
        raise ValueError("general.architecture is missing")
    return GgufFile(path, said["general.architecture"], said, stored, numbers)


def _stored(at: _Bytes) -> TensorInfo:
    name, (dimensions,) = at.text(), at.take("I")
    if dimensions > 8:
        raise ValueError(f"tensor {name} has {dimensions} dimensions")
    sizes = at.take(f"{dimensions}Q")
    kind, start = at.take("IQ")
    return TensorInfo(name, tuple(reversed(sizes)), kind, start)


def _within(tensors: tuple[TensorInfo, ...], size: int) -> str:
    """What the tensors are in, by how many numbers are. ValueError: one lies outside of the file."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    count = Counter[str]()
    for each in tensors:
        kind = GGMLQuantizationType(each.kind)
        block, taken = GGML_QUANT_SIZES[kind]
        end = each.start + math.prod(each.shape) // block * taken
        if end > size:
            raise ValueError(f"tensor {each.name} extends past the end of the file, to byte {end}")
        count[kind.name] += math.prod(each.shape)
    return ", ".join(kind for kind, _ in count.most_common())

"""Reads the headers of GGUF files, as llama.cpp writes them, and finds what the library would ignore, before weights
are read.

Requires the package gguf. Independent of networks and of dequantization.
"""

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
"""The fixed-size types of metadata, as `struct` names them."""
STRING, ARRAY = 8, 9
CHUNK, MOST = 1 << 24, 4
"""The number of bytes read at once; the most file names in an error."""
WHOLE = "Give the safetensors that it was made from."
TAKEN = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
"""Metadata that changes what is computed, and the config attribute in which the library stores it, if it does."""
FACTORS = ("rope_freqs.", "rope_factors_")
"""Name prefixes of tensors that change the rotary frequencies, which the library does not read."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The parameters of the rope factors of all Llamas from 3.1 on, besides the largest factor."""
LAYERS_OF_27B = {"gemma2": 46, "gemma3_text": 62}
F32 = 0


class TensorInfo(NamedTuple):
    """One tensor: `shape` in torch's order, `kind` the number of its type, `start` its first byte."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


class GgufFile(NamedTuple):
    """The header of a file. `keys`: its metadata without lists; `numbers`: the names of its tensors' number formats,
    the most frequent first."""

    path: Path
    architecture: str
    keys: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]
    numbers: str

    @property
    def elements(self) -> int:
        """The number of elements in all its tensors, except rope factors."""
        return sum(math.prod(each.shape) for each in self.tensors if not each.name.startswith(FACTORS))

    def digest(self) -> str:
        """A digest of the whole file, 32 hexadecimal digits."""
        hasher = hashlib.blake2b(digest_size=16)
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
        return hasher.hexdigest()


def is_gguf(path: str) -> bool:
    """Whether a path names a GGUF file, by its suffix."""
    return path.lower().endswith(SUFFIX)


def named_files(folder: Path) -> str:
    """The part of an error about a folder without a config that names its GGUF files; empty if it has none."""
    files = sorted(str(each) for each in folder.iterdir() if is_gguf(each.name) and each.is_file())
    if not files:
        return ""
    return f"; give the GGUF file itself: {' or '.join(files[:MOST])}{' …' if len(files) > MOST else ''}"


def read(name: str, path: Path) -> GgufFile:
    """The header of a file, with all tensors checked to lie within it. Raises `ModelNotFound` if there is no file,
    `ModelBroken` if it is not a GGUF file, damaged, or one part of several, and `ExtraMissing` without the package
    gguf."""
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
    """The library's options for a folder that contains only this file: it would read other files beside it, such as a
    tokenizer's settings, or an adapter."""
    with TemporaryDirectory(prefix="agentcho-gguf-") as folder, fast_reading():
        Path(folder, file.path.name).symlink_to(file.path.resolve())
        yield {"pretrained_model_name_or_path": folder, "gguf_file": file.path.name}


class _Listed(NamedTuple):
    """A list as the package's reader returns it: its size in bytes, its parts, the indices of the parts that are
    values, and its types."""

    size: int
    parts: list[Any]
    values: list[int]
    types: list[Any]


class _Quick:
    """The replaced functions of the packages, and how many contexts use the replacements."""

    lock = threading.Lock()
    users = 0
    stock: tuple[Any, Any] | None = None


@contextmanager
def fast_reading() -> Iterator[None]:
    """A context in which the library reads a file in a sixth of the time, with the same result. Its reader slices a
    `numpy.memmap` for each token of the vocabulary, and checks the type of each; and transformers rebuilds the table of
    all tensor names for each module of a network. Several threads may use it at the same time."""
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
    """The package's reader over a plain array, which reads lists of strings and numbers in one pass."""

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
    """Read `count` strings from `start` on: returns their size in bytes, and for each string an array of its length and
    one of its bytes. Raises `struct.error` if the file ends before."""
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
    """Set the config's rope scaling to that of Llamas from 3.1 on, if a file has exactly its factors: the library
    ignores them."""
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
    """The factors by which those Llamas divide each frequency (in radians per position): `most` for low ones, 1 for
    high ones."""
    low, high, length = LLAMA3.values()
    for turn in turns:
        share = min(1.0, max(0.0, (length * turn / (2 * math.pi) - low) / (high - low)))
        yield 1 / ((1 - share) / most + share)


def apply_linear_scaling(file: GgufFile, config: Any) -> None:
    """Set the scaling of positions in Gemma 3's layers with full attention, as a file says: the library ignores it."""
    said = {key: file.keys.get(f"{file.architecture}.rope.scaling.{key}") for key in ("type", "factor")}
    if config.model_type == "gemma3_text" and said["type"] == "linear" and said["factor"]:
        rope = {**config.rope_parameters["full_attention"], "rope_type": "linear", "factor": said["factor"]}
        config.rope_parameters = {**config.rope_parameters, "full_attention": rope}


def check_taken(name: str, file: GgufFile, config: Any, elements: int) -> None:
    """Refuse a file from which the library would ignore something and compute something else. `elements`: the number of
    elements in the network that it makes of this `config`. Raises `UnsupportedModel`."""
    for cause in _left_out(file, config):
        raise UnsupportedModel(name, cause, WHOLE, what=f"{name} would not be what its file says")
    if elements != file.elements:
        cause = f"its tensors have {file.elements} numbers, and what transformers makes of its metadata has {elements}"
        raise UnsupportedModel(name, cause, WHOLE, what=f"{name} would not be what its file says")


def apply_query_scale(file: GgufFile, config: Any) -> None:
    """Set the config's scale of queries to that of Gemma 2 and 3 of 27B: it stands in no file, and the library has that
    of the smaller ones."""
    if LAYERS_OF_27B.get(config.model_type) == file.keys.get(f"{file.architecture}.block_count", 0):
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads


def _rope(config: Any) -> Mapping[str, Any]:
    """The parameters of the rotary embedding: those of layers with full attention, if there are several."""
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    return rope if isinstance(rope, Mapping) else {}


def _theta(config: Any) -> float | None:
    found = _rope(config).get("rope_theta")
    return found if isinstance(found, float | int) else None


def _left_out(file: GgufFile, config: Any) -> Iterator[str]:
    base, theta = file.keys.get(f"{file.architecture}.rope.freq_base"), _theta(config)
    if base and theta and not math.isclose(base, theta, rel_tol=1e-6):
        yield f"it says rope.freq_base = {base:g}, and transformers takes {theta:g}"
    for key, attribute in TAKEN.items():
        said, taken = file.keys.get(f"{file.architecture}.{key}"), getattr(config, attribute, None)
        if said and (said != taken) and (taken is None or not math.isclose(said, taken, rel_tol=1e-6)):
            yield f"it says {key} = {said:g}, and transformers takes {taken}"
    factors = next((each.name for each in file.tensors if each.name.startswith(FACTORS)), None)
    scaling = file.keys.get(f"{file.architecture}.rope.scaling.type", "none")
    if (factors or scaling != "none") and _rope(config).get("rope_type", "default") == "default":
        said = f"has factors of positions ({factors})" if factors else f"scales positions ({scaling})"
        yield f"it {said}, which transformers does not take over"


class _Bytes:
    """Consecutive values. Reading past the end raises `struct.error` or ValueError."""

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
        """A number or string; a list is skipped and returned as None."""
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
    """The number formats of the tensors, the most frequent first. Raises ValueError if a tensor lies outside of the
    file."""
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

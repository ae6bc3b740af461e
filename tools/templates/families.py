"""Chooses the tokenizer for a template by its name: the real one if a package carries it.

Otherwise a template gets a tokenizer borrowed from a family with the same kind of vocabulary, or one of single bytes;
the control tokens that the template writes are added to it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tools.templates.sources import Template
from tools.templates.vocabularies import beginning, is_there, vocabulary

Kind = Literal["real", "borrowed", "bytes"]
CONTROL = re.compile(
    r"<\|[^|<>\s'\"{}]{1,40}\|>|<｜[^｜<>]{1,40}｜>|\[/?[A-Z][A-Z_]{2,30}\]|<\|[a-z_]+>|<[a-z_]+\|>|\[gMASK\]|<sop>"  # noqa: RUF001
    r"|\]~!?b\[|\[e~\[|</?(?:s|bos|eos|unk|pad|start_of_turn|end_of_turn|start_of_image|seed:[a-z_]+)>"
    r"|<\|?[A-Z_]+_TOKEN\|?>|<(?:user|assistant|system)_token>|<(?:beginning|end)_of_sentence>|<_[a-z]+>|</?role>|〈\|EOS\|〉"
)
"""Strings in a template that are control tokens of its model."""
PLAIN = re.compile(
    r"</?(?:think|tool_call|tool_response|tool_calls|tools|arg_key|arg_value|response|function_calls|step|assistant|user)>"
)
"""Strings in a template that are added tokens of its model, but not special ones."""


class Family(NamedTuple):
    """Templates with one kind of tokenizer. `kind`: where the tokenizer comes from. `ends`: other tokens that end an
    answer, according to the model's generation config. `lines`: line breaks are added tokens. `strips`: tokens take the
    whitespace after them. `begins`: the tokenizer puts BOS before a text."""

    names: str
    vocabulary: str = "bytes"
    kind: Kind = "bytes"
    bos: str | None = None
    eos: str | None = None
    ends: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    lines: bool = False
    strips: bool = False
    begins: bool = False


_CHATML: Any = {"eos": "<|im_end|>", "ends": ("<|endoftext|>",)}
_DEEPSEEK: Any = {"bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>"}  # noqa: RUF001
_S: Any = {"bos": "<s>", "eos": "</s>"}
_COHERE: Any = {"bos": "<BOS_TOKEN>", "eos": "<|END_OF_TURN_TOKEN|>", "begins": True}
_LLAMA3: Any = {"bos": "<|begin_of_text|>", "eos": "<|eot_id|>", "ends": ("<|end_of_text|>", "<|eom_id|>")}
_GEMMA: Any = {"bos": "<bos>", "eos": "<eos>", "begins": True, "lines": True}
_GLM: Any = {"eos": "<|endoftext|>", "ends": ("<|user|>", "<|observation|>")}
_EOT: Any = {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}
_V1: Any = ("mistral-v1", "borrowed")


def _of(names: str, vocabulary: str = "bytes", kind: Kind | None = None, **more: Any) -> Family:
    return Family(names, vocabulary, kind or ("bytes" if vocabulary == "bytes" else "real"), **more)


FAMILIES = (
    _of("smollm2", "smollm2", bos="<|im_start|>", eos="<|im_end|>"),
    _of("smollm3", "llama3", "borrowed", eos="<|im_end|>"),
    _of("r1.distill.llama", "llama3", "borrowed", **_DEEPSEEK),
    _of("r1.distill|r1.0528.qwen3", "qwen2.5", "borrowed", **_DEEPSEEK),
    _of("hermes.2|hermes.3", "llama3", "borrowed", bos="<|begin_of_text|>", eos="<|im_end|>", ends=("<|eot_id|>",)),
    _of("functionary|firefunction|huatuogpt.*llama|muse", "llama3", "borrowed", **_LLAMA3),
    _of("llama.?4", "llama4", bos="<|begin_of_text|>", eos="<|eot|>", ends=("<|end_of_text|>", "<|eom|>")),
    _of("llama.?3", "llama3", **_LLAMA3),
    _of("deepseek.(llm|coder|chat)", bos=_DEEPSEEK["bos"], eos="<|EOT|>", ends=(_DEEPSEEK["eos"],)),
    _of("deepseek.?(r1|v3|prover)", "deepseek", **_DEEPSEEK),
    _of("deepseek.?v[24]", "deepseek", "borrowed", **_DEEPSEEK),
    _of(
        "kat.v1|marco|skywork|miro|nex.n|xiyan|seallms|dianjin|baichuan.m2|huatuogpt", "qwen2.5", "borrowed", **_CHATML
    ),
    _of(r"qwen3.?[5678]", "qwen3.5", **_CHATML),
    _of("qwen3|qwq", "qwen3", **_CHATML),
    _of("qwen.?1.5|qwen.?2|qvq|mimo|qwen.chat", "qwen2.5", **_CHATML),
    _of("mistral.v1|mistral.*v0.1|mixtral.8x7b.inst|mistral.instruct$|mistral$", "mistral-v1", **_S),
    _of("mistral.v2v3|mistral.*v0.3|mistral.large", "mistral-v3", **_S),
    _of("nemo.instruct|v3.tekken", "tekken-240718", **_S),
    _of("mistral.small|ministral|devstral|v7.tekken|pixtral", "tekken-240911", **_S),
    _of("cz.llama.2|js.llama$|unsloth.llama$|code.llama|llava", *_V1, **_S),
    _of("codellama", *_V1, plain=("<step>",), **_S),
    _of("phi.?3", *_V1, bos="<s>", eos="<|endoftext|>", ends=("<|assistant|>", "<|end|>"), strips=True),
    _of("phi.?4", bos="<|endoftext|>", eos="<|im_end|>"),
    _of("openchat|starling", *_V1, bos="<s>", eos="<|end_of_turn|>", ends=("</s>",)),
    _of("internlm|minicpm.?3|dolphin|minicpm", *_V1, bos="<s>", eos="</s>", ends=("<|im_end|>",)),
    _of("yi", *_V1, bos="<|startoftext|>", eos="<|endoftext|>", ends=("<|im_end|>",)),
    _of("zephyr|danube|vicuna|alpaca|solar.10|orion|unsloth.unsloth|metharme", *_V1, **_S),
    _of("gemma.?4", bos="<bos>", eos="<eos>", ends=("<turn|>",), begins=True, lines=True),
    _of("gemma", ends=("<end_of_turn>",), **_GEMMA),
    _of("command|cohere|aya", **_COHERE),
    _of("granite", bos="<|end_of_text|>", eos="<|end_of_text|>"),
    _of("olmo|falcon", **_EOT),
    _of("kimi|moonlight", bos="[BOS]", eos="[EOS]", ends=("<|im_end|>",)),
    _of("glm|cogagent|codegeex", **_GLM),
    _of("gpt.?oss", "llama4", "borrowed", bos="<|startoftext|>", eos="<|return|>", ends=("<|endoftext|>", "<|call|>")),
    _of("minimax", bos="]~!b[", eos="[e~[", plain=("]~b]",)),
    _of("nemotron", bos="<s>", eos="<|im_end|>", ends=("</s>",)),
    _of("lfm2", bos="<|startoftext|>", eos="<|im_end|>", begins=True),
    _of("seed.oss", bos="<seed:bos>", eos="<seed:eos>"),
    _of("apertus", bos="<s>", eos="<|assistant_end|>"),
    _of("bielik|spark", bos="<s>", eos="<|im_end|>"),
    _of("apriel", bos="<s>", eos="<|end|>"),
    _of("gigachat", bos="<s>", eos="</s>", ends=("<|message_sep|>",)),
    _of("stepfun", bos=_DEEPSEEK["bos"], eos="<|im_end|>"),
    _of("jamba", bos="<|startoftext|>", eos="<|endoftext|>", ends=("<|eom|>",)),
    _of("reka", bos="<s>", eos="<sep>"),
    _of("exaone", bos="[BOS]", eos="[|endofturn|]"),
    _of("idefics|smolvlm", bos="<|begin_of_text|>", eos="<end_of_utterance>", plain=("<end_of_utterance>",)),
    _of("rwkv", eos="</s>"),
    _of("solar.open", eos="<|end|>"),
    _of("ling", eos="<|role_end|>"),
    _of("laguna|hy3|hy.mt2|ernie|telechat", **_S),
)
"""Matched against the name of a template, ignoring case; the first match counts."""
OTHER = Family("", eos="</s>", bos="<s>")
"""The family of templates that match no other."""


def family(name: str) -> Family:
    """The family of a template. If no package here carries its vocabulary, it gets single bytes."""
    found = next((each for each in FAMILIES if re.search(each.names, name, re.IGNORECASE)), OTHER)
    if found.kind == "bytes" or is_there(found.vocabulary):
        return found
    return found._replace(vocabulary="bytes", kind="bytes")


def tokenizer(template: Template, of: Family) -> PreTrainedTokenizerFast:
    """A tokenizer with the template and the control tokens of its family."""
    core = Tokenizer.from_str(_written(of.vocabulary))
    known = core.get_vocab(with_added_tokens=True)
    words = {of.bos, of.eos, *of.ends} - {None} if of.kind != "real" else {of.bos, of.eos} - {None}
    special = {str(word) for word in words} | (set(CONTROL.findall(template.source)) if of.kind != "real" else set())
    plain = set(PLAIN.findall(template.source)) if of.kind != "real" else set[str]()
    plain |= {*of.plain, *(("\n", "\n\n", "\n\n\n", "  ", "   ") if of.lines else ())}
    added = [(word, word not in plain) for word in sorted((special | plain) - set(known))]
    keeps = {"<s>", "</s>", "<|endoftext|>"}
    tokens = [
        AddedToken(word, special=marked, normalized=False, rstrip=of.strips and word not in keeps)
        for word, marked in added
    ]
    core.add_special_tokens([each for each in tokens if each.special])
    core.add_tokens([each for each in tokens if not each.special])
    if of.begins and of.bos:
        core = beginning(core, of.bos)
    named = {f"{name}_token": word for name, word in (("bos", of.bos), ("eos", of.eos)) if word}
    make: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerFast = make(tokenizer_object=core, clean_up_tokenization_spaces=False, **named)
    made.chat_template = template.source
    return made


@lru_cache(maxsize=4)
def _written(name: str) -> str:
    """A tokenizer as JSON, from which a new one is made for each template."""
    return str((_single_bytes() if name == "bytes" else vocabulary(name)).to_str())


def _single_bytes() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core

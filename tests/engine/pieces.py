"""Tiny tokenizers of the SentencePiece kinds with the quirks of real ones, and templates shaped like theirs.

Llama 2, Mistral 7B v0.1 and Mixtral put a blank before every text (`legacy`). So does Phi-3, whose control tokens also
absorb the blanks that follow them. Mistral 7B v0.3 puts one only before the first text (`first`); Gemma puts none and
has line breaks among its added tokens (`never`). All have byte fallback. Must not import agentcho.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BLANK = "\u2581"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;!?'\"/|[]<>()#_-0123456789"
WORDS = ("Hello", "there", "said", "to", "the", "fox", "user", "model", "INST", "Bob")
INST = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + ' ' + eos_token }}"
    "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
)
"""Llama 2: every user message begins with BOS; a blank precedes each content."""
BARE = INST.replace("bos_token + '[INST] '", "'[INST] '").replace("{% for", "{{ bos_token }}{% for", 1)
"""Mistral 7B: one BOS at the beginning."""
LINES = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""Zephyr and TinyLlama: role markers are plain text, and the template writes no BOS."""
TURNS = (
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\\n' + m.content + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
"""Gemma."""
TAKING = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
"""Phi-3."""
KINDS = {
    "llama-2": ("legacy", INST),
    "mistral-v1": ("legacy", BARE),
    "mistral-v3": ("first", BARE),
    "zephyr": ("legacy", LINES),
    "gemma": ("never", TURNS),
    "phi-3": ("legacy", TAKING),
}


def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer of one of `KINDS`."""
    prefix, template = KINDS[kind]
    core = _pieces()
    steps: list[Any] = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix == "first":
        core.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme="first", split=False)
    else:
        spaces = normalizers.Replace(" ", BLANK)
        core.normalizer = spaces if prefix == "never" else normalizers.Sequence([normalizers.Prepend(BLANK), spaces])
    core.decoder = decoders.Sequence(steps if prefix == "never" else [*steps, decoders.Strip(" ", 1, 0)])
    marks = ("<start_of_turn>", "<end_of_turn>") if kind == "gemma" else ()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>", *marks)])
    if kind == "phi-3":
        taking = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
        core.add_special_tokens([AddedToken(text, special=True, normalized=False, rstrip=True) for text in taking])
    if kind == "gemma":
        core.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("\n", "\n\n", "<table>")])
    make: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )
    fast.chat_template = template
    return fast


def _pieces() -> Tokenizer:
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    for letter in (BLANK, *LETTERS):
        vocabulary.setdefault(letter, len(vocabulary))
    merges: list[tuple[str, str]] = []
    for word in (*WORDS, *(BLANK + word for word in WORDS)):
        for end in range(1, len(word)):
            if word[: end + 1] not in vocabulary:
                merges.append((word[:end], word[end]))
                vocabulary[word[: end + 1]] = len(vocabulary)
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return Tokenizer(model)
